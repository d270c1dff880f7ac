// The Expression type: values, gradients, inputs that can be set. Its operators: operators.cc.
#include <algorithm>

#include "bindings/background.h"
#include "bindings/expression.h"

#include "bindings/arguments.h"
#include "bindings/arrays.h"
#include "bindings/compute.h"
#include "bindings/exchange.h"
#include "bindings/fibers.h"
#include "bindings/operators.h"
#include "bindings/signatures.h"
#include "bindings/tuning.h"

namespace dyc::py {

PyObject* StaleError = nullptr;

// ---------------------------------------------------------------- allocation

constinit FreeExpressions free_expressions;

namespace {

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  FreeExpressions& free = free_expressions;
  if (type->tp_basicsize == sizeof(PyExpression) && free.n < tuning::kFreeExpressions &&
      !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    free.list[free.n++] = reinterpret_cast<PyExpression*>(self);
    return;
  }
  type->tp_free(self);
}

}  // namespace

PyObject* empty_expression(PyTypeObject* type) {
  auto* self = reinterpret_cast<PyExpression*>(type->tp_alloc(type, 0));
  if (self) self->id = self->generation = kNone;
  return reinterpret_cast<PyObject*>(self);
}

PyObject* allocate_expression(NodeId id, PyTypeObject* type) {
  PyObject* e = type->tp_alloc(type, 0);
  return e ? set_node(reinterpret_cast<PyExpression*>(e), engine().graph, id) : nullptr;
}

namespace {

// `op` was given an expression that does not belong to this thread's graph.
void refuse(const PyExpression* p, const char* op) {
  const Graph& g = engine().graph;
  if (p->id == kNone)
    PyErr_Format(StaleError, "%s(): expected expressions of a graph, got an empty one, as Expression() makes",
                 op);
  else if (p->graph == g.number && p->renewals == g.renewals())
    PyErr_Format(StaleError,
                 "%s(): expected expressions of this graph, got expression %u/%u, which cg_revert() took "
                 "back; record it again",
                 op, p->id, p->renewals);
  else if (p->graph == g.number)
    PyErr_Format(
        StaleError,
        "%s(): expected expressions of this graph (version %u), got expression %u/%u of an earlier one; "
        "record it again after renew_cg()",
        op, g.renewals(), p->id, p->renewals);
  else
    PyErr_Format(
        StaleError,
        "%s(): expected expressions of this thread's graph, got expression %u/%u of %s; record it in "
        "this thread, or pass its value",
        op, p->id, p->renewals, whose_graph(p->graph));
}

// Recording the node may find no memory.
bool parameter_to_node(Engine& e, PyObject* object, NodeId* id) {
  try {
    *id = e.graph.parameter(storage_in(object), true);
    return true;
  } catch (...) {
    set_error();
    return false;
  }
}

}  // namespace

const std::shared_ptr<Storage>& storage_in(PyObject* parameters) {
  const auto* storage = reinterpret_cast<PyParameters*>(parameters)->storage;
  if (storage) return *storage;
  throw ValueError(
      text("expected parameters of a model, got empty ones, as ", type_name(parameters), "() makes"));
}

bool other_to_node(PyObject* object, const char* op, NodeId* id) {
  Engine* mine = engine_or_error();
  if (!mine) [[unlikely]]
    return false;
  Engine& e = *mine;
  if (is_expression(object)) [[likely]] {
    const PyTypeObject* type = Py_TYPE(object);
    const bool plain = type->tp_basicsize == sizeof(PyExpression);  // Parameters hold more
    if (!plain && is_parameters(object)) {
      const auto* storage = reinterpret_cast<PyParameters*>(object)->storage;
      *id = storage ? e.graph.parameters.find(**storage, true) : kNone;
      return *id != kNone || parameter_to_node(e, object, id);
    }
    const auto* p = reinterpret_cast<PyExpression*>(object);
    if (is_current(p, e.graph)) [[likely]] {
      *id = p->id;
      return true;
    }
    refuse(p, op);
    return false;
  }
  if (is_array(object)) {
    try {
      *id = array_node(object, op);
      return true;
    } catch (...) {
      set_error();
      return false;
    }
  }
  PyErr_Format(PyExc_TypeError, "%s(): expected an Expression, got %s", op, type_name(object));
  return false;
}

namespace {

// ---------------------------------------------------------------- values

PyObject* list_of(const float* v, const Dim& d) {
  const Py_ssize_t n = static_cast<Py_ssize_t>(d.size());
  PyObject* list = PyList_New(n);
  if (!list) return nullptr;
  for (Py_ssize_t i = 0; i < n; ++i) PyList_SET_ITEM(list, i, PyFloat_FromDouble(v[i]));
  return list;
}

PyObject* scalar_of(const float* v, const Dim& d) {
  if (d.size() != 1) throw RuntimeError(text("scalar_value(): expected one element, got ", d));
  return PyFloat_FromDouble(v[0]);
}

PyObject* value_of(const float* v, const Dim& d) {
  if (d.nd >= 2) return array_of(v, d);
  if (d.size() == 1) return PyFloat_FromDouble(v[0]);
  return list_of(v, d);
}

// The one argument of a method, False by default, by position or keyword. False: an error is set.
bool parse_flag(PyObject* const* args, Py_ssize_t n, PyObject* names, const char* method, const char* flag,
                int* value) {
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  if (n + named > 1 || (named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), flag) != 0)) {
    PyErr_Format(PyExc_TypeError, "%s(): expected at most one argument, %s", method, flag);
    return false;
  }
  *value = n + named ? PyObject_IsTrue(args[0]) : 0;
  return *value >= 0;
}

// A method that computes something of the node, of which it makes an object.
template <Text method, Text flag, PyObject* (*compute)(NodeId, int, const char*)>
PyObject* computing(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  int value;
  NodeId id;
  if (!parse_flag(args, n, names, method.text, flag.text, &value) || !to_node(self, method.text, &id))
    return nullptr;
  return guarded([&] { return compute(id, value, method.text); });
}

template <PyObject* (*convert)(const float*, const Dim&)>
PyObject* value_as(NodeId id, int recalculate, const char* method) {
  const float* v = compute_value(id, recalculate, method);
  return convert(v, engine().graph.dim(id));
}

// A method that makes an object of the node's value.
template <Text method, PyObject* (*convert)(const float*, const Dim&)>
PyObject* reading(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  if (!this_thread && n == 0 && !names) [[unlikely]]
    if (const LentLoss* loss = lent_loss(self))
      return guarded([&] { return convert(&loss->value, loss->dim); });
  return computing<method, "recalculate", value_as<convert>>(self, args, n, names);
}

// On a device, without asking it for the values; where it has no memory for a copy, on the host.
PyObject* tensor_value(NodeId id, int recalculate, const char* method) {
  if (recalculate) compute_value(id, true, method);
  try {
    if (auto memory = compute_on_device(id)) return tensor_on_device(std::move(memory), id);
  } catch (const MemoryError&) {
  }
  return value_as<tensor_of>(id, 0, method);
}

PyObject* forward(NodeId id, int recalculate, const char*) {
  compute_forward(id, recalculate);
  return none();
}

PyObject* backward(NodeId id, int full, const char*) {
  compute_backward(id, full);
  return none();
}

PyObject* method_gradient(PyObject* self, PyObject*) {
  NodeId id;
  if (!to_node(self, "gradient", &id)) return nullptr;
  return guarded([&] {
    const float* g = compute_gradient(id);
    return array_of(g, engine().graph.dim(id));
  });
}

PyObject* method_dim(PyObject* self, PyObject*) {
  NodeId id;
  if (!to_node(self, "dim", &id)) return nullptr;
  const Dim& d = engine().graph.dim(id);
  return Py_BuildValue("(NI)", dim_tuple(d), d.bd);
}

PyObject* str(PyObject* self) {
  const auto* e = reinterpret_cast<PyExpression*>(self);
  return PyUnicode_FromFormat("expression %u/%u", e->id == kNone ? 0 : e->id, e->renewals);
}

// ---------------------------------------------------------------- inputs that can be set

// The node of an input that gets so many values.
NodeId input_to_set(PyObject* self, size_t n, const char* op) {
  NodeId id;
  if (!to_node(self, op, &id)) throw PythonError();
  Graph& g = engine().graph;
  if (g.node(id).flags & Node::constant)
    throw ValueError(text(op, "(): expected an input made with reusable_expr=True"));
  if (n != g.sig(id).size)
    throw ValueError(text(op, "(): expected ", g.sig(id).size, " values for ", g.dim(id), ", got ", n));
  check_change("set()", id);
  return id;
}

// False: the array is not on a device.
[[gnu::cold, gnu::noinline]] bool set_on_device(PyObject* self, PyObject* values, const char* op) {
  const auto given = given_foreign(values, op, "values");
  if (!given) return false;
  given->check_flat(values, op, "values");
  const NodeId id = input_to_set(self, static_cast<size_t>(given->from.array.total), op);
  engine().executor.set_input(id, Exchange().take(given->from));
  engine().invalidate();
  return true;
}

void set_floats(PyObject* self, PyObject* values, const char* op) {
  const bool foreign = is_foreign(values);
  if (foreign && set_on_device(self, values, op)) return;
  const std::vector<float> v = floats_on_host(values, foreign, op, "values");
  const NodeId id = input_to_set(self, v.size(), op);
  std::copy(v.begin(), v.end(), engine().graph.values(id));
  engine().executor.set_input(id, nullptr);
  engine().invalidate();
}

// Values are converted before the node is looked up: conversion may run Python code, which may start
// another graph.
PyObject* input_set(PyObject* self, PyObject* value) {
  return guarded([&]() -> PyObject* {
    const float v = as_float(value, "set", "value");
    NodeId id;
    if (!to_node(self, "set", &id)) return nullptr;
    check_change("set()", id);
    engine().graph.values(id)[0] = v;
    engine().invalidate();
    Py_RETURN_NONE;
  });
}

PyObject* vector_set(PyObject* self, PyObject* values) {
  return guarded([&]() -> PyObject* {
    set_floats(self, values, "set");
    Py_RETURN_NONE;
  });
}

PyObject* index_set(PyObject* self, PyObject* value) {
  return guarded([&]() -> PyObject* {
    const uint32_t index = as_uint(value, "set", "index");
    NodeId id;
    if (!to_node(self, "set", &id)) return nullptr;
    check_change("set()", id);
    *engine().graph.mutable_ids(id) = index;
    engine().invalidate();
    Py_RETURN_NONE;
  });
}

PyObject* indices_set(PyObject* self, PyObject* values) {
  return guarded([&]() -> PyObject* {
    const std::vector<uint32_t> v = as_uints(values, "set", "indices");
    NodeId id;
    if (!to_node(self, "set", &id)) return nullptr;
    const uint32_t n = engine().graph.ids(id).n;
    if (v.size() != n) throw ValueError(text("set(): expected ", n, " indices, got ", v.size()));
    check_change("set()", id);
    std::copy_n(v.begin(), n, engine().graph.mutable_ids(id));
    engine().invalidate();
    Py_RETURN_NONE;
  });
}

// ---------------------------------------------------------------- classes that can be called

// Python functions that make the node of a new _inputExpression(..) and the like; set by constructor().
PyObject* constructors = nullptr;

// A subclass's __init__ takes the arguments, if it likes.
PyObject* construct(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* make = nullptr;
  for (PyTypeObject* t = type; t && !make; t = t->tp_base)  // of the class, or of the one it is derived from
    make = constructors ? PyDict_GetItem(constructors, reinterpret_cast<PyObject*>(t)) : nullptr;
  if (!make) return empty_expression(type);
  PyObject* made = PyObject_Call(make, args, kwargs);
  if (!made) return nullptr;
  auto* self = reinterpret_cast<PyExpression*>(type->tp_alloc(type, 0));
  if (self) {
    const auto* from = reinterpret_cast<PyExpression*>(made);
    self->id = from->id;
    self->generation = from->generation;
    self->graph = from->graph;
    self->renewals = from->renewals;
  }
  Py_DECREF(made);
  return reinterpret_cast<PyObject*>(self);
}

template <Text name, PyObject* (*convert)(const float*, const Dim&)>
constexpr FastMethod get_value = reading<name, convert>;

// With a GPU's name, the array of a library that computes there; Python has the function for it.
constexpr FastMethod npvalue_anywhere =
    method<"npvalue", 0, "recalculate", "device">([](PyObject* self, const auto& a) {
      const bool recalculate = a.truth(0, false);
      NodeId id;
      if (!to_node(self, a.op(), &id)) throw PythonError();
      if (a.string(1).rfind("GPU", 0) != 0) return value_as<array_of>(id, recalculate, a.op());
      return cupy_array(tensor_value(id, recalculate, a.op()));
    });

PyObject* npvalue(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  if (n < 2 && !names) [[likely]]
    return get_value<"npvalue", array_of>(self, args, n, names);
  return npvalue_anywhere(self, args, n, names);
}

PyMethodDef expression_methods[] = {
    fast_method("value", get_value<"value", value_of>, "value(recalculate=False)"),
    fast_method("npvalue", npvalue, "npvalue(recalculate=False, device='')"),
    fast_method("vec_value", get_value<"vec_value", list_of>, "vec_value(recalculate=False)"),
    fast_method("scalar_value", get_value<"scalar_value", scalar_of>, "scalar_value(recalculate=False)"),
    fast_method("tensor_value", computing<"tensor_value", "recalculate", tensor_value>,
                "tensor_value(recalculate=False)"),
    fast_method("forward", computing<"forward", "recalculate", forward>, "forward(recalculate=False)"),
    fast_method("backward", computing<"backward", "full", backward>, "backward(full=False)"),
    plain_method("gradient", method_gradient),
    plain_method("dim", method_dim),
    {nullptr, nullptr, 0, nullptr}};

// Attributes of other libraries' arrays: AttributeErrors that say what to write, so that hasattr()
// is false, as it is with DyNet. A subclass may have them: this is no data descriptor.
struct PyAdvice {
  PyObject_HEAD const char *name, *text;
};
PyObject* give_advice(PyObject* self, PyObject*, PyObject*) {
  const auto* advice = reinterpret_cast<PyAdvice*>(self);
  return PyErr_Format(PyExc_AttributeError, "an Expression has no attribute '%s': %s", advice->name,
                      advice->text);
}

PyTypeObject AdviceType = static_type(
    {"dynet_compat._core._Advice", nullptr, sizeof(PyAdvice), nullptr, nullptr, nullptr, nullptr, 0});

void add_advice(const char* name, const char* advice) {
  auto* made = reinterpret_cast<PyAdvice*>(AdviceType.tp_alloc(&AdviceType, 0));
  if (!made) throw PythonError();
  made->name = name;
  made->text = advice;
  const int failed = PyDict_SetItemString(ExpressionType.tp_dict, name, reinterpret_cast<PyObject*>(made));
  Py_DECREF(made);
  if (failed) throw PythonError();
}

PyMethodDef input_methods[] = {fast_method("set", one_argument<"set", "s", input_set>, "set(s)"),
                               {nullptr, nullptr, 0, nullptr}};
PyMethodDef vector_methods[] = {fast_method("set", one_argument<"set", "data", vector_set>, "set(data)"),
                                {nullptr, nullptr, 0, nullptr}};
PyMethodDef lookup_methods[] = {fast_method("set", one_argument<"set", "i", index_set>, "set(i)"),
                                {nullptr, nullptr, 0, nullptr}};
PyMethodDef lookup_batch_methods[] = {fast_method("set", one_argument<"set", "i", indices_set>, "set(i)"),
                                      {nullptr, nullptr, 0, nullptr}};
PyMethodDef no_methods[] = {{nullptr, nullptr, 0, nullptr}};
PyMethodDef picker_methods[] = {fast_method("set_index", one_argument<"set", "i", index_set>, "set_index(i)"),
                                {nullptr, nullptr, 0, nullptr}};
PyMethodDef picker_batch_methods[] = {
    fast_method("set_index", one_argument<"set", "i", indices_set>, "set_index(i)"),
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject make_type(const char* name, PyTypeObject* base, PyMethodDef* methods, const char* doc) {
  return static_type({name, doc, sizeof(PyExpression), dealloc, methods, construct, base});
}

constexpr const char* expression_doc =
    R"doc(Expression(): a node of the computation graph: recorded now, computed when its value is asked for.

x + y, x - y broadcast; x * y and x @ y are the matrix product; x / y divides element by element;
x ** y is the power; each also takes a number on either side. x[i] picks a row, x[a:b] a range of rows.

Source: DyNet 2.1 `Expression`.
Example:
    >>> x, y = dy.inputVector([1.0, 2.0]), dy.inputVector([4.0, 8.0])
    >>> (x + y).value(), (x - y).value(), (-x).value(), (y / x).value()
    ([5.0, 10.0], [-3.0, -6.0], [-1.0, -2.0], [4.0, 4.0])
    >>> (x + 1).value(), (1 - x).value(), (2 * x).value(), (8 / y).value(), (x ** 2).value()
    ([2.0, 3.0], [0.0, -1.0], [2.0, 4.0], [2.0, 1.0], [1.0, 4.0])
    >>> (dy.inputTensor([[1.0, 2.0], [3.0, 4.0]]) * x).value()
    [5.0, 11.0]
    >>> x[1].value(), y[0:2].value()
    (2.0, [4.0, 8.0])
)doc";

constexpr const char* stale_doc =
    R"doc(The nodes of an expression or state are gone or in another thread's graph.

renew_cg() or cg_revert() took them back. The error is a ValueError, as DyNet raises for operands, and a
RuntimeError, as it raises for value().

Example:
    >>> x = dy.ones(2)
    >>> graph = dy.renew_cg()
    >>> x + 1
    Traceback (most recent call last):
    dynet_compat.StaleExpressionError: +(): expected expressions of this graph (version ...), got expression
    ... of an earlier one; record it again after renew_cg()
)doc";

}  // namespace

PyTypeObject ExpressionType = make_type("_dynet.Expression", nullptr, expression_methods, expression_doc);
PyTypeObject InputType =
    make_type("_dynet._inputExpression", &ExpressionType, input_methods, "_inputExpression(g, s, device='')");
PyTypeObject VectorInputType = make_type("_dynet._vecInputExpression", &ExpressionType, vector_methods,
                                         "_vecInputExpression(g, val, dim=None, batch_size=1, device='')");
PyTypeObject TensorInputType =
    make_type("_dynet._tensorInputExpression", &ExpressionType, vector_methods,
              "_tensorInputExpression(g, val, dim=None, batch_size=1, device='', reusable_expr=False)");
PyTypeObject SparseInputType =
    make_type("_dynet._sparseInputExpression", &ExpressionType, vector_methods,
              "_sparseInputExpression(g, idxs, val, dim, batch_size=1, defval=0, device='')");
PyTypeObject TransposedInputType =
    make_type("_dynet.inputTensorTranspose", &ExpressionType, no_methods, nullptr);
PyTypeObject LookupType = make_type("_dynet._lookupExpression", &ExpressionType, lookup_methods,
                                    "_lookupExpression(g, p, index=0, update=True)");
PyTypeObject LookupBatchType =
    make_type("_dynet._lookupBatchExpression", &ExpressionType, lookup_batch_methods,
              "_lookupBatchExpression(g, p, indices, update=True)");
PyTypeObject PickerType = make_type("_dynet._pickerExpression", &ExpressionType, picker_methods,
                                    "_pickerExpression(g, e, index=0, dim=0)");
PyTypeObject PickerBatchType =
    make_type("_dynet._pickerBatchExpression", &ExpressionType, picker_batch_methods,
              "_pickerBatchExpression(g, e, indices, dim=0)");

void constructor(PyObject* type, PyObject* function) {
  if (!constructors) constructors = PyDict_New();
  if (!constructors || PyDict_SetItem(constructors, type, function) < 0) throw PythonError();
}

namespace {

void add_all_advice() {
  AdviceType.tp_descr_get = give_advice;
  if (PyType_Ready(&AdviceType) < 0) throw PythonError();
  add_advice("shape", "x.dim() gives ((d1, d2, ..), batch size)");
  add_advice(
      "__cuda_array_interface__",
      "x.tensor_value() has it, and memory that lives as long as the Tensor; from_dlpack(x) is another way");
  add_advice("T", "write transpose(x)");
  add_advice("item", "x.scalar_value() gives the number");
  add_advice("numpy", "x.npvalue() gives the array");
  add_advice("detach", "write nobackprop(x)");
  add_advice("sum", "write sum_elems(x)");
  add_advice("mean", "write mean_elems(x)");
}

void add_stale_error(PyObject* module) {
  PyObject* bases = PyTuple_Pack(2, PyExc_ValueError, PyExc_RuntimeError);
  StaleError = PyErr_NewExceptionWithDoc("dynet_compat.StaleExpressionError", stale_doc, bases, nullptr);
  Py_XDECREF(bases);
  Py_XINCREF(StaleError);
  if (!StaleError || PyModule_AddObject(module, "StaleExpressionError", StaleError) < 0) throw PythonError();
}

}  // namespace

void add_expression_types(PyObject* module) {
  add_stale_error(module);
  PyTypeObject* types[] = {&ExpressionType,      &InputType,      &VectorInputType, &TensorInputType,
                           &SparseInputType,     &LookupType,     &LookupBatchType, &PickerType,
                           &TransposedInputType, &PickerBatchType};
  static const std::string transposed = text("inputTensorTranspose(val, dim=None, batch_size=1, device=''): ",
                                             documentation("inputTensorTranspose"));
  TransposedInputType.tp_doc = transposed.c_str();
  ExpressionType.tp_repr = described;
  ExpressionType.tp_str = str;
  ExpressionType.tp_as_number = &expression_numbers;
  ExpressionType.tp_as_mapping = &expression_mapping;
  ExpressionType.tp_as_sequence = &expression_sequence;
  for (PyTypeObject* t : types) add_type(module, *t);
  // NumPy scalars and arrays leave operators with an Expression to us.
  PyDict_SetItemString(ExpressionType.tp_dict, "__array_ufunc__", Py_None);
  add_all_advice();
  PyType_Modified(&ExpressionType);
}

}  // namespace dyc::py
