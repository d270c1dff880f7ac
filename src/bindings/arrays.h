// NumPy arrays as arguments: of numbers, of indices, as operands.
#pragma once
#include "bindings/expression.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <pybind11/numpy.h>

namespace dyc::py {

// Arrays cut out of other memory (fields of records, say) may lie at odd addresses: those are copied.
constexpr int kAligned = pybind11::detail::npy_api::NPY_ARRAY_ALIGNED_;
using FloatArray = pybind11::array_t<float, pybind11::array::f_style | pybind11::array::forcecast | kAligned>;

inline bool is_array(PyObject* object) { return pybind11::isinstance<pybind11::array>(object); }

// Any array or nested sequence of real numbers, column-major. TypeError for text, complex numbers and times.
FloatArray float_array(PyObject* object, const char* op, const char* name);

// The elements in column-major order, converted on the way: no array in between.
void copy_numbers(const pybind11::array& from, float* to);
// The same to other strides, in bytes.
void copy_numbers(const pybind11::array& from, const std::vector<pybind11::ssize_t>& strides, float* to);

// Elements of an array of one axis (or of n x 1 x ..): ints, or floats, which are truncated. False: of
// another kind, to be taken element by element.
bool uints_of_array(PyObject* array, const char* op, const char* name, std::vector<uint32_t>* out);

// One number: an array without axes, or of one axis and one element.
bool is_number_array(PyObject* object);

// An array as an operand: an input {shape} of its values now.
NodeId array_node(PyObject* array, const char* op);

}  // namespace dyc::py
