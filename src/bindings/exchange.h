// Arrays of the device that other libraries give and take: CUDA Array Interface (version 3) and DLPack.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "bindings/expression.h"
#include "bindings/float_arrays.h"
#include "bindings/pybind_names.h"
#include "exec/cuda/exchange.h"

namespace dyc::py {

// An array that was given, kept alive while this exists.
struct Given {
  std::vector<int64_t> shape;
  GivenArray from;
  std::shared_ptr<void> owner;

  // Of its shape; with `batched`, the last axis is the batch. ValueError where a Dim cannot hold it.
  Dim dim(const char* op, bool batched = false) const;
  std::string shape_text() const;
  // TypeError unless all of its elements are on the first axis.
  void check_flat(PyObject* object, const char* op, const char* name) const;
  // Its last axes come first, its first one last: rows of a table.
  void move_first_axis_to_end();
};

// Of an array of another library that is_foreign(): none where it is no array of a device. Throws ValueError
// where it is one of another device, or one that cannot be read, and TypeError for numbers that are not real.
std::optional<Given> given_foreign(PyObject* object, const char* op, const char* name);

inline std::optional<Given> given_array(PyObject* object, const char* op, const char* name) {
  if (!is_foreign(object)) return std::nullopt;
  return given_foreign(object, op, name);
}

// CuPy's array of a Tensor, whose reference is given up.
PyObject* cupy_array(PyObject* tensor);
// Memory of the graph on the device, for a call during which it stays.
pybind11::object device_view(const float* at, const ArrayLayout& layout, std::shared_ptr<const void> owner);
// Elements of an array of the device, or of the host, go to that many floats of the device's memory, which
// this thread has locked.
void store_on_device(const pybind11::object& array, float* to, size_t floats, bool add, const char* op);
// An array may have another size than its attribute `shape` says.
inline void check_result_size(int64_t got, size_t floats, const char* op) {
  if (static_cast<size_t>(got) != floats)
    throw ValueError(text(op, ": expected a result of ", floats, " numbers, got an array of ", got));
}

// A Tensor of a node's values, in memory of the device.
PyObject* tensor_on_device(std::shared_ptr<DeviceMemory> memory, NodeId id);
pybind11::object tensor_class();  // tensor.cc

}  // namespace dyc::py
