// NumPy arrays as arguments: of numbers, of indices, as operands. What takes them as pybind11 has them:
// float_arrays.h.
#pragma once
#include "bindings/expression.h"

namespace dyc::py {

// NumPy's class; find_arrays() sets it when the module is made.
extern PyTypeObject* ArrayType;
void find_arrays();

inline bool is_array(PyObject* object) { return PyObject_TypeCheck(object, ArrayType); }

// Elements of an array of one axis (or of n x 1 x ..): ints, or floats, which are truncated. False: of
// another kind, to be taken element by element.
bool uints_of_array(PyObject* array, const char* op, const char* name, std::vector<uint32_t>* out);

// One number: an array without axes, or of one axis and one element.
bool is_number_array(PyObject* object);

// Shape of a NumPy array of floats or doubles, with 1 to 2**31 - 1 elements; with `batched` the last axis is
// the batch. False: another array or object, of which more has to be asked.
bool dim_of_array(PyObject* array, bool batched, Dim* dim);

// An array as an operand: an input {shape} of its values now.
NodeId array_node(PyObject* array, const char* op);

}  // namespace dyc::py
