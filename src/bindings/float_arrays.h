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

// The elements in column-major order, converted on the way: no array in between.
void copy_numbers(const pybind11::array& from, float* to);
// The same to other strides, in bytes.
void copy_numbers(const pybind11::array& from, const std::vector<pybind11::ssize_t>& strides, float* to);

}  // namespace dyc::py
