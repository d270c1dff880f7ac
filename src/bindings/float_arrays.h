// Arrays of numbers, as pybind11 has them.
#pragma once
#include "bindings/arrays.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <pybind11/numpy.h>

namespace dyc::py {

// Views of other memory (fields of records, say) may be misaligned: those are copied.
constexpr int kAligned = pybind11::detail::npy_api::NPY_ARRAY_ALIGNED_;
using FloatArray = pybind11::array_t<float, pybind11::array::f_style | pybind11::array::forcecast | kAligned>;

// The slow part of is_foreign(): looks for members of CUDA's Array Interface or DLPack (exchange.cc). The
// last of Python's own types that had none is kept in `unexchanged_type`.
bool may_be_exchanged(PyObject* object);
extern PyTypeObject* unexchanged_type;

// Neither an array nor a number of Python or NumPy, nor one of our own: may be an array of another library.
inline bool is_foreign(PyObject* object) {
  const PyTypeObject* const type = Py_TYPE(object);
  return type != ArrayType && type != unexchanged_type && !PyList_Check(object) && !PyTuple_Check(object) &&
         !PyLong_Check(object) && !PyUnicode_Check(object) && may_be_exchanged(object);
}

// A foreign object, or a NumPy array of it where NumPy does not know it otherwise; throws as given_array().
pybind11::object on_host(PyObject* foreign, const char* op, const char* name);

// as_floats(), of foreign arrays too.
inline std::vector<float> floats_on_host(PyObject* object, bool foreign, const char* op, const char* name) {
  return as_floats(foreign ? on_host(object, op, name).ptr() : object, op, name);
}

// Any array or nested sequence of real numbers, column-major. TypeError for text, complex numbers and times.
FloatArray float_array(PyObject* object, const char* op, const char* name);

// Shape and strides in bytes of a column-major array.
struct ArrayLayout {
  explicit ArrayLayout(size_t item) : step(static_cast<pybind11::ssize_t>(item)) {}
  void add(size_t n) {
    shape.push_back(static_cast<pybind11::ssize_t>(n));
    strides.push_back(step);
    step *= shape.back();
  }
  void add(const Dim& dim) {
    for (uint32_t i = 0; i < dim.nd; ++i) add(dim.d[i]);
  }
  // Rows, each column-major, one after the other.
  void add_rows(size_t n, const Dim& dim) {
    add(n);
    step = strides.back();
    add(dim);
    strides[0] = step;
  }

  std::vector<pybind11::ssize_t> shape, strides;
  pybind11::ssize_t step;  // of the next axis
};

// Of a parameter's values: rows of a table first.
inline ArrayLayout layout_of(const Storage& s) {
  ArrayLayout layout(sizeof(float));
  if (s.is_lookup()) layout.add_rows(s.rows, s.dim);
  else layout.add(s.dim);
  return layout;
}

// The elements in column-major order, converted on the way: no array in between.
void copy_numbers(const pybind11::array& from, float* to);
// The same to other strides, in bytes.
void copy_numbers(const pybind11::array& from, const std::vector<pybind11::ssize_t>& strides, float* to);

}  // namespace dyc::py
