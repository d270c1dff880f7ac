// Documentation of classes and methods.
#pragma once
#include "bindings/expression.h"

namespace dyc::py {

// Once, when all types are in the module: gives classes and their methods the texts of bindings/docs.
void attach_documentation(PyObject* module);

}  // namespace dyc::py
