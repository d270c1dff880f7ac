// The Expression type: values, gradients, inputs that can be set. Its operators: operators.cc.
#include "bindings/expression.h"

#include "bindings/arguments.h"
#include "bindings/arrays.h"
#include "bindings/compute.h"
#include "bindings/fibers.h"
#include "bindings/operators.h"
#include "bindings/signatures.h"

namespace dyc::py {

PyObject* StaleError = nullptr;

// ---------------------------------------------------------------- allocation

namespace {

constexpr int kMostFree = 4096;
PyObject* free_list[kMostFree];
int n_free = 0;

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  if (type->tp_basicsize == sizeof(PyExpression) && n_free < kMostFree &&
      !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    free_list[n_free++] = self;
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

PyObject* make_expression(NodeId id, PyTypeObject* type) {
  PyObject* e;
  if (n_free > 0) {
    e = free_list[--n_free];
    PyObject_Init(e, type);
  } else {
    e = type->tp_alloc(type, 0);
    if (!e) return nullptr;
  }
  auto* p = reinterpret_cast<PyExpression*>(e);
  const Graph& g = engine().graph;
  p->id = id;
  p->generation = g.generation();
  p->graph = g.number;
  p->renewals = g.renewals();
  return e;
}

namespace {

// `op` was given an expression that is none of this thread's graph.
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
  const char* name = Py_TYPE(parameters)->tp_name;
  throw ValueError(text("expected parameters of a model, got empty ones, as ", name, "() makes"));
}

bool to_node(PyObject* object, const char* op, NodeId* id) {
  Engine* mine = engine_or_error();
  if (!mine) [[unlikely]]
    return false;
  Engine& e = *mine;
  if (is_expression(object)) [[likely]] {
    const PyTypeObject* type = Py_TYPE(object);
    const bool plain = type->tp_basicsize == sizeof(PyExpression);  // Parameters hold more
    if (!plain &&
        (PyObject_TypeCheck(object, &ParametersType) || PyObject_TypeCheck(object, &LookupParametersType))) {
      const auto* storage = reinterpret_cast<PyParameters*>(object)->storage;
      *id = storage ? e.graph.find_parameter(**storage, true) : kNone;
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

PyObject* npvalue_of(const float* v, const Dim& d) { return array_of(v, d); }

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

using Converter = PyObject* (*)(const float*, const Dim&);

// recalculate=False, by position or keyword.
bool parse_recalculate(PyObject* const* args, Py_ssize_t n, PyObject* names, const char* method,
                       int* recalculate) {
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  if (n + named > 1 ||
      (named && !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "recalculate") == 0)) {
    PyErr_Format(PyExc_TypeError, "%s(): expected at most one argument, recalculate", method);
    return false;
  }
  *recalculate = n + named ? PyObject_IsTrue(args[0]) : 0;
  return *recalculate >= 0;
}

template <Converter convert>
PyObject* get_value(PyObject* self, const char* method, PyObject* const* args, Py_ssize_t n,
                    PyObject* names) {
  int recalculate;
  NodeId id;
  if (!parse_recalculate(args, n, names, method, &recalculate) || !to_node(self, method, &id)) return nullptr;
  return guarded([&] {
    const float* v = compute_value(id, recalculate, method);
    return convert(v, engine().graph.dim(id));
  });
}

PyObject* method_value(PyObject* s, PyObject* const* a, Py_ssize_t n, PyObject* k) {
  return get_value<value_of>(s, "value", a, n, k);
}
PyObject* method_npvalue(PyObject* s, PyObject* const* a, Py_ssize_t n, PyObject* k) {
  return get_value<npvalue_of>(s, "npvalue", a, n, k);
}
PyObject* method_vec_value(PyObject* s, PyObject* const* a, Py_ssize_t n, PyObject* k) {
  return get_value<list_of>(s, "vec_value", a, n, k);
}
PyObject* method_scalar_value(PyObject* s, PyObject* const* a, Py_ssize_t n, PyObject* k) {
  return get_value<scalar_of>(s, "scalar_value", a, n, k);
}

PyObject* method_tensor_value(PyObject* s, PyObject* const* a, Py_ssize_t n, PyObject* k) {
  return get_value<tensor_of>(s, "tensor_value", a, n, k);
}

PyObject* method_forward(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  int recalculate;
  NodeId id;
  if (!parse_recalculate(args, n, names, "forward", &recalculate) || !to_node(self, "forward", &id))
    return nullptr;
  return guarded([&]() -> PyObject* {
    compute_forward(id, recalculate);
    Py_RETURN_NONE;
  });
}

PyObject* method_backward(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  if (n + named > 1 ||
      (named && !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "full") == 0)) {
    PyErr_SetString(PyExc_TypeError, "backward(): expected at most one argument, full");
    return nullptr;
  }
  const int full = n + named ? PyObject_IsTrue(args[0]) : 0;
  NodeId id;
  if (full < 0 || !to_node(self, "backward", &id)) return nullptr;
  return guarded([&]() -> PyObject* {
    compute_backward(id, full);
    Py_RETURN_NONE;
  });
}

PyObject* method_gradient(PyObject* self, PyObject*) {
  NodeId id;
  if (!to_node(self, "gradient", &id)) return nullptr;
  return guarded([&] {
    const float* g = engine().gradient(id);
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

void set_floats(PyObject* self, PyObject* values, const char* op) {
  const std::vector<float> v = as_floats(values, op, "values");
  NodeId id;
  if (!to_node(self, op, &id)) throw PythonError();
  Engine& e = engine();
  if (e.graph.node(id).flags & Node::constant)
    throw ValueError(text(op, "(): expected an input made with reusable_expr=True"));
  const size_t size = e.graph.sig(id).size;
  if (v.size() != size)
    throw ValueError(text(op, "(): expected ", size, " values for ", e.graph.dim(id), ", got ", v.size()));
  check_change("set()", id);
  std::memcpy(e.graph.values(id), v.data(), size * 4);
  e.invalidate();
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
    std::memcpy(engine().graph.mutable_ids(id), v.data(), n * 4);
    engine().invalidate();
    Py_RETURN_NONE;
  });
}

// A method of one argument, by position or name.
template <PyObject* (*f)(PyObject*, PyObject*), const char* const (&names)[1]>
PyObject* one_argument(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  if (n == 1 && !kwnames) [[likely]]
    return f(self, args[0]);
  return guarded([&] { return f(self, parse("set", names, 1, args, n, kwnames)[0]); });
}
constexpr const char* kS[] = {"s"};
constexpr const char* kData[] = {"data"};
constexpr const char* kI[] = {"i"};

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

#define FAST(f) reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(f))
constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;

PyMethodDef expression_methods[] = {
    {"value", FAST(method_value), kFast,
     "value(recalculate=False)\n--\n\nValue as DyNet gives it: a float for one element, a list for a vector, "
     "else an array."},
    {"npvalue", FAST(method_npvalue), kFast,
     "npvalue(recalculate=False)\n--\n\nValue as a float64 array; the batch is the last axis."},
    {"vec_value", FAST(method_vec_value), kFast,
     "vec_value(recalculate=False)\n--\n\nValue as a flat list, column-major, batch last."},
    {"scalar_value", FAST(method_scalar_value), kFast,
     "scalar_value(recalculate=False)\n--\n\nValue of an expression of one element."},
    {"tensor_value", FAST(method_tensor_value), kFast,
     "tensor_value(recalculate=False)\n--\n\nValue as a Tensor: argmax, largest elements, samples."},
    {"forward", FAST(method_forward), kFast,
     "forward(recalculate=False)\n--\n\nComputes every node up to this one."},
    {"backward", FAST(method_backward), kFast,
     "backward(full=False)\n--\n\nGradients of this scalar: added to the parameters; of all its ancestors "
     "with full=True."},
    {"gradient", method_gradient, METH_NOARGS,
     "gradient()\n--\n\nGradient of the last backward() with respect to this expression."},
    {"dim", method_dim, METH_NOARGS, "dim()\n--\n\n((d1, ..., dk), batch size)."},
    {nullptr, nullptr, 0, nullptr}};

// Attributes of other libraries' arrays: AttributeErrors that say what to write, so that hasattr() tells
// arrays and expressions apart as it does with DyNet. A subclass may have them: this is no data descriptor.
struct PyAdvice {
  PyObject_HEAD const char *name, *text;
};
PyTypeObject AdviceType = blank_type();

PyObject* give_advice(PyObject* self, PyObject*, PyObject*) {
  const auto* advice = reinterpret_cast<PyAdvice*>(self);
  return PyErr_Format(PyExc_AttributeError, "an Expression has no attribute '%s': %s", advice->name,
                      advice->text);
}

void add_advice(const char* name, const char* advice) {
  auto* made = reinterpret_cast<PyAdvice*>(AdviceType.tp_alloc(&AdviceType, 0));
  if (!made) throw PythonError();
  made->name = name;
  made->text = advice;
  const int failed = PyDict_SetItemString(ExpressionType.tp_dict, name, reinterpret_cast<PyObject*>(made));
  Py_DECREF(made);
  if (failed) throw PythonError();
}

PyMethodDef input_methods[] = {{"set", FAST((&one_argument<input_set, kS>)), kFast,
                                "set(s)\n--\n\nNew value; what depends on it is computed again."},
                               {nullptr, nullptr, 0, nullptr}};
PyMethodDef vector_methods[] = {{"set", FAST((&one_argument<vector_set, kData>)), kFast,
                                 "set(data)\n--\n\nNew values, flat and column-major."},
                                {nullptr, nullptr, 0, nullptr}};
PyMethodDef lookup_methods[] = {
    {"set", FAST((&one_argument<index_set, kI>)), kFast, "set(i)\n--\n\nLooks up row i instead."},
    {nullptr, nullptr, 0, nullptr}};
PyMethodDef lookup_batch_methods[] = {
    {"set", FAST((&one_argument<indices_set, kI>)), kFast, "set(i)\n--\n\nLooks up these rows instead."},
    {nullptr, nullptr, 0, nullptr}};
PyMethodDef no_methods[] = {{nullptr, nullptr, 0, nullptr}};
PyMethodDef picker_methods[] = {{"set_index", FAST((&one_argument<index_set, kI>)), kFast,
                                 "set_index(i)\n--\n\nPicks element i instead."},
                                {nullptr, nullptr, 0, nullptr}};
PyMethodDef picker_batch_methods[] = {
    {"set_index", FAST((&one_argument<indices_set, kI>)), kFast, "set_index(i)\n--\n\nPicks these instead."},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject make_type(const char* name, PyTypeObject* base, PyMethodDef* methods, const char* doc) {
  PyTypeObject t{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&t), 1);
  t.tp_name = name;
  t.tp_basicsize = sizeof(PyExpression);
  t.tp_dealloc = dealloc;
  t.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
  t.tp_doc = doc;
  t.tp_methods = methods;
  t.tp_base = base;
  t.tp_new = construct;
  if (!base) {
    t.tp_repr = described;
    t.tp_str = str;
    t.tp_as_number = &expression_numbers;
    t.tp_as_mapping = &expression_mapping;
    t.tp_as_sequence = &expression_sequence;
  }
  return t;
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
PyTypeObject InputType = make_type("_dynet._inputExpression", &ExpressionType, input_methods,
                                   "_inputExpression(g, s, device=''): a scalar input.");
PyTypeObject VectorInputType =
    make_type("_dynet._vecInputExpression", &ExpressionType, vector_methods,
              "_vecInputExpression(g, val, dim=None, batch_size=1, device=''): a vector input.");
PyTypeObject TensorInputType = make_type("_dynet._tensorInputExpression", &ExpressionType, vector_methods,
                                         "_tensorInputExpression(g, val, dim=None, batch_size=1, device='', "
                                         "reusable_expr=False): a tensor input.");
PyTypeObject SparseInputType = make_type(
    "_dynet._sparseInputExpression", &ExpressionType, vector_methods,
    "_sparseInputExpression(g, idxs, val, dim, batch_size=1, defval=0, device=''): a sparse input.");
PyTypeObject TransposedInputType =
    make_type("_dynet.inputTensorTranspose", &ExpressionType, no_methods, nullptr);
PyTypeObject LookupType =
    make_type("_dynet._lookupExpression", &ExpressionType, lookup_methods,
              "_lookupExpression(g, p, index=0, update=True): a row of a LookupParameters.");
PyTypeObject LookupBatchType =
    make_type("_dynet._lookupBatchExpression", &ExpressionType, lookup_batch_methods,
              "_lookupBatchExpression(g, p, indices, update=True): a batch of rows of a LookupParameters.");
PyTypeObject PickerType = make_type("_dynet._pickerExpression", &ExpressionType, picker_methods,
                                    "_pickerExpression(g, e, index=0, dim=0): a picked slice.");
PyTypeObject PickerBatchType =
    make_type("_dynet._pickerBatchExpression", &ExpressionType, picker_batch_methods,
              "_pickerBatchExpression(g, e, indices, dim=0): picked slices, one per batch item.");

void constructor(PyObject* type, PyObject* function) {
  if (!constructors) constructors = PyDict_New();
  if (!constructors || PyDict_SetItem(constructors, type, function) < 0) throw PythonError();
}

namespace {

void add_all_advice() {
  AdviceType.tp_name = "dynet_compat._core._Advice";
  AdviceType.tp_basicsize = sizeof(PyAdvice);
  AdviceType.tp_flags = Py_TPFLAGS_DEFAULT;
  AdviceType.tp_descr_get = give_advice;
  if (PyType_Ready(&AdviceType) < 0) throw PythonError();
  add_advice("shape", "x.dim() gives ((d1, d2, ..), batch size)");
  add_advice("T", "write transpose(x)");
  add_advice("item", "x.scalar_value() gives the number");
  add_advice("numpy", "x.npvalue() gives the array");
  add_advice("detach", "write nobackprop(x)");
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
  for (PyTypeObject* t : types) {
    sign_methods(t->tp_methods);
    sign_type(*t);
    if (PyType_Ready(t) < 0) throw PythonError();
    Py_INCREF(t);
    PyModule_AddObject(module, std::strchr(t->tp_name, '.') + 1, reinterpret_cast<PyObject*>(t));
  }
  // NumPy scalars and arrays leave operators with an Expression to us.
  PyDict_SetItemString(ExpressionType.tp_dict, "__array_ufunc__", Py_None);
  add_all_advice();
  PyType_Modified(&ExpressionType);
}

}  // namespace dyc::py
