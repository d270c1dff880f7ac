// Signatures that Python's `inspect` reads. CPython takes them from the documentation, which must begin with
// "name($self, a, b=1)\n--\n\n"; here texts are written shorter, "name(a, b=1): what it does", or without
// a signature where there are no arguments, and brought into that form when types and modules are made.
#pragma once
#include <span>
#include <string>

#include "bindings/arguments.h"

namespace dyc::py {

// What all static types of this module set.
struct TypeFields {
  const char* name;  // with its module
  const char* doc;   // "Name(a, b=1): what it is"
  size_t size;       // of an object
  destructor dealloc;
  PyMethodDef* methods = nullptr;
  newfunc create = nullptr;
  PyTypeObject* base = nullptr;
  unsigned long flags = Py_TPFLAGS_BASETYPE;
};

// A static type; other fields can be set before add_type().
inline PyTypeObject static_type(const TypeFields& f) {
  const PyVarObject head[] = {PyVarObject_HEAD_INIT(nullptr, 0)};
  PyTypeObject t{};
  t.ob_base = head[0];
  t.tp_name = f.name;
  t.tp_doc = f.doc;
  t.tp_basicsize = static_cast<Py_ssize_t>(f.size);
  t.tp_dealloc = f.dealloc;
  t.tp_methods = f.methods;
  t.tp_new = f.create;
  t.tp_base = f.base;
  t.tp_flags = Py_TPFLAGS_DEFAULT | f.flags;
  return t;
}

// Keeps a text that a method table or a type points to.
const char* kept(std::string text);

// Signs the type and its methods, and adds it to the module under the last part of its name.
void add_type(PyObject* module, PyTypeObject& type);

void sign_methods(PyMethodDef* methods);  // of a type

// Adds functions of the API, under the names that their signatures begin with, and with the texts of
// ops/docs.
struct ApiFunction {
  std::string signature;
  FastMethod function;
};
void add_api_functions(PyObject* module, std::span<const ApiFunction> functions);

// Functions and classes made by pybind11, whose texts are "name(self: T, a: X = d) -> R\n\nwhat it does".
void sign_pybind_classes(PyObject* module);
// Instances of the private base of these classes, or of a class of the script that has no other: TypeError
// where pybind11 ends the process.
void guard_pybind_base();

}  // namespace dyc::py
