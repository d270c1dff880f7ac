// Arrays of numbers, as pybind11 has them.
#pragma once
#include "bindings/arrays.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <pybind11/numpy.h>

namespace dyc::py {

// Arrays cut out of other memory (fields of records, say) may lie at odd addresses: those are copied.
constexpr int kAligned = pybind11::detail::npy_api::NPY_ARRAY_ALIGNED_;
using FloatArray = pybind11::array_t<float, pybind11::array::f_style | pybind11::array::forcecast | kAligned>;

// Any array or nested sequence of real numbers, column-major. TypeError for text, complex numbers and times.
FloatArray float_array(PyObject* object, const char* op, const char* name);

inline std::string shape_text(const pybind11::array& a) {
  return pybind11::str(pybind11::object(a.attr("shape"))).cast<std::string>();
}

// Axis by axis from `first` on.
inline bool has_shape(const pybind11::array& a, const Dim& dim, uint32_t first) {
  if (a.ndim() != static_cast<pybind11::ssize_t>(dim.nd + first)) return false;
  for (uint32_t i = 0; i < dim.nd; ++i)
    if (a.shape(first + i) != static_cast<pybind11::ssize_t>(dim.d[i])) return false;
  return true;
}

// The elements in column-major order, converted on the way: no array in between.
void copy_numbers(const pybind11::array& from, float* to);
// The same to other strides, in bytes.
void copy_numbers(const pybind11::array& from, const std::vector<pybind11::ssize_t>& strides, float* to);

}  // namespace dyc::py
