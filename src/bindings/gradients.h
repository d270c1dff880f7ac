// Gradients that scripts write, and gradients of a whole collection as flat arrays: gradients.cc.
#pragma once
#include "bindings/expression.h"

namespace dyc::py {

// Methods of Parameters and LookupParameters.
PyObject* has_gradient(PyObject* self, PyObject*);
PyObject* set_gradient(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames);
PyObject* touched_rows(PyObject* self, PyObject*);
PyObject* set_row_gradients(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames);

}  // namespace dyc::py
