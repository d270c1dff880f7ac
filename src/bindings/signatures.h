// Signatures that Python's `inspect` reads. CPython takes them from the documentation, which must begin with
// "name($self, a, b=1)\n--\n\n"; here texts are written shorter, "name(a, b=1): what it does", or without
// a signature where there are no arguments, and brought into that form when types and modules are made.
#pragma once
#include "bindings/expression.h"

namespace dyc::py {

void sign_methods(PyMethodDef* methods);      // of a type
void sign_functions(PyMethodDef* functions);  // of a module
void sign_type(PyTypeObject& type);           // before PyType_Ready(): "Name(a, b=1): what it is"

// Functions and classes made by pybind11, whose texts are "name(self: T, a: X = d) -> R\n\nwhat it does".
void sign_pybind_classes(PyObject* module);

}  // namespace dyc::py
