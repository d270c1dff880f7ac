// Calls of objects in a walk, and of Python's own functions among them.
#include <algorithm>
#include <cstring>

#include "bindings/operators.h"
#include "bindings/python_compat.h"
#include "bindings/region_walk_log.h"

namespace dyc::py {

namespace {

// Python's own function of this name; null: the script has put another one there.
PyObject* builtin(const char* name) {
  PyObject* found = PyDict_GetItemString(PyEval_GetBuiltins(), name);
  const auto* f = reinterpret_cast<PyCFunctionObject*>(found);
  const bool own = found && PyCFunction_CheckExact(found) && std::strcmp(f->m_ml->ml_name, name) == 0 &&
                   f->m_module && PyUnicode_Check(f->m_module) &&
                   PyUnicode_CompareWithASCIIString(f->m_module, "builtins") == 0;
  return own ? Owned(found).release() : nullptr;
}

struct Builtins {
  PyObject *len = builtin("len"), *isinstance = builtin("isinstance"), *sum = builtin("sum"),
           *getattr = builtin("getattr");
  // Of numbers and text they make numbers and text.
  PyObject* const plain[8] = {builtin("min"),
                              builtin("max"),
                              builtin("abs"),
                              builtin("round"),
                              reinterpret_cast<PyObject*>(&PyLong_Type),
                              reinterpret_cast<PyObject*>(&PyFloat_Type),
                              reinterpret_cast<PyObject*>(&PyUnicode_Type),
                              reinterpret_cast<PyObject*>(&PyBool_Type)};
};
const Builtins& own_builtins() {
  static const Builtins own;
  return own;
}

}  // namespace

WalkValue Walker::call_object(PyObject* function, const WalkNode& node, Frame& frame) {
  const Builtins& own = own_builtins();
  if (function == own.len || function == own.isinstance) return call_builtin(function, node, frame);
  if (only_records(node, function)) return record_call(function, node, frame);
  if (concatenates_pairs(function)) return record_pairs(node, frame);
  if (PyFunction_Check(function)) return call_function(function, {}, node, frame);
  if (PyMethod_Check(function) || PyCFunction_Check(function)) {
    if (node.drawer.walk == walk_ && node.drawer.of == function) return draw(node.drawer.found, node, frame);
    if (const Drawer drawer = Drawer::of(function); drawer.kind != Drawer::none) {
      node.drawer = {walk_, function, drawer};
      return draw(drawer, node, frame);
    }
  }
  if (PyMethod_Check(function) && PyFunction_Check(PyMethod_GET_FUNCTION(function)))
    return call_function(PyMethod_GET_FUNCTION(function), {PyMethod_GET_SELF(function)}, node, frame);
  if (PyType_Check(function) &&
      PyType_HasFeature(reinterpret_cast<PyTypeObject*>(function), Py_TPFLAGS_HEAPTYPE))
    return construct(reinterpret_cast<PyTypeObject*>(function), node, frame);
  if (PyCFunction_Check(function) || PyType_Check(function)) return call_builtin(function, node, frame);
  return call_function(call_of(function), {function}, node, frame);
}

WalkValue Walker::call_builtin(PyObject* function, const WalkNode& node, Frame& frame) {
  const Builtins& own = own_builtins();
  const size_t n = node.parts.size() - 1;
  if (PyTuple_GET_SIZE(node.object.get()) != 0) refuse("an argument by name");
  if (function == own.len && n == 1)
    return keep_part(PyLong_FromSize_t(length(evaluate(node.parts[1], frame))));
  if (function == reinterpret_cast<PyObject*>(&PyList_Type) && n == 1) return copy_of(node.parts[1], frame);
  if (function == own.sum && n == 1) return sum(evaluate(node.parts[1], frame));
  if (function == own.getattr && n == 2) {
    const WalkValue base = evaluate(node.parts[1], frame);
    return attribute_named(base, evaluate(node.parts[2], frame));
  }
  if (std::find(std::begin(own.plain), std::end(own.plain), function) != std::end(own.plain))
    return call_plainly(function, {}, node, frame);
  if (function != own.isinstance || n != 2) refuse("a function that does more than record");
  const WalkValue value = evaluate(node.parts[1], frame), types = evaluate(node.parts[2], frame);
  bool is = false;
  if (types.object && !PyTuple_CheckExact(types.object)) {
    is = is_instance(value, types.object);
  } else {
    for (size_t i = 0, m = length(types); i < m; ++i) {
      PyObject* type = element(types, i).object;
      if (!type) refuse("a class that is a result");
      is = is_instance(value, type) || is;
    }
  }
  return {is ? Py_True : Py_False};
}

// A function that makes a number or text of numbers and text, and nothing else. `self`: its first argument,
// or nothing.
WalkValue Walker::call_plainly(PyObject* function, WalkValue self, const WalkNode& node, Frame& frame) {
  PyObject* args[1 + tuning::kWalkArguments];
  size_t n = 0;
  if (self.object) args[n++] = self.object;
  if (node.parts.size() > tuning::kWalkArguments || PyTuple_GET_SIZE(node.object.get()) != 0)
    refuse("a function of numbers with other arguments");
  for (size_t i = 1; i < node.parts.size(); ++i) {
    args[n] = evaluate(node.parts[i], frame).object;
    if (!args[n] || !is_python_value(args[n])) refuse("a function of something else than numbers and text");
    ++n;
  }
  const WalkValue made = keep_part(PyObject_Vectorcall(function, args, n, nullptr));
  if (!is_python_value(made.object)) refuse("a function that makes something else than numbers and text");
  return made;
}

WalkValue Walker::attribute_named(WalkValue base, WalkValue name) {
  if (!name.object || !PyUnicode_CheckExact(name.object)) refuse("getattr() of a name that is no text");
  WalkNode read;
  read.kind = WalkNode::attribute;
  read.object = Owned(keep(interned(name.object).release()).object);
  return attribute(read, base);
}

// Text that is put together of text and whole numbers.
WalkValue Walker::join(const WalkNode& node, Frame& frame) {
  static PyObject* const nothing = PyUnicode_FromStringAndSize("", 0);
  Owned all(nothing);
  for (const WalkNode& part : node.parts) {
    PyObject* of = evaluate(part, frame).object;
    if (!of || !(PyUnicode_CheckExact(of) || PyLong_CheckExact(of))) refuse("text of something else");
    const Owned text(keep(PyObject_Str(of)).object);
    all = Owned(keep(PyUnicode_Concat(all.get(), text.get())).object);
  }
  return {all.get()};
}

// sum() of a list, whose items it adds to 0. Of real numbers Python may add them more precisely than one by
// one.
WalkValue Walker::sum(WalkValue items) {
  static PyObject* const zero = PyLong_FromLong(0);
  WalkValue all{zero};
  const size_t n = length(items);
  spend(n);
  for (size_t i = 0; i < n; ++i) {
    const WalkValue item = element(items, i);
    if (item.object && !PyLong_CheckExact(item.object) && !is_node(item)) refuse("a sum of other things");
    all = arithmetic(WalkNode::add, all, item);
  }
  return all;
}

bool Walker::is_instance(WalkValue value, PyObject* type) {
  if (Py_TYPE(type) != &PyType_Type) refuse("a class with a class of its own");
  auto* wanted = reinterpret_cast<PyTypeObject*>(type);
  if (value.result) {
    static PyTypeObject* const of[] = {nullptr, &PyTuple_Type, &PyList_Type};
    const WalkResult& r = *value.result;
    return PyType_IsSubtype(r.kind == WalkResult::recorded ? r.type : of[r.kind], wanted);
  }
  PyTypeObject* own = Py_TYPE(value.object);
  if (PyType_IsSubtype(own, wanted)) return true;
  // An object may say that it is of another class.
  static PyObject* const name = PyUnicode_InternFromString("__class__");
  if (own->tp_getattro != PyObject_GenericGetAttr || !name ||
      _PyType_Lookup(own, name) != _PyType_Lookup(&PyBaseObject_Type, name))
    refuse("an object that may say another class");
  return false;
}

}  // namespace dyc::py
