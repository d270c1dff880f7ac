// The Expression type and what every binding needs to take and give expressions. Hand-written C API:
// an operator or op call costs tens of nanoseconds, which pybind11 cannot do.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>
#include <vector>

#include "base/platform.h"
#include "bindings/python_compat.h"
#include "bindings/tuning.h"
#include "exec/engine.h"

namespace dyc::py {

// All expressions, and the subtypes for inputs, lookups and picks, which add set() or set_index().
struct PyExpression {
  PyObject_HEAD uint32_t id;
  // Of the graph when it was recorded. No graph: the empty handle that Expression() makes.
  uint32_t generation, graph, renewals;
};

// Is its node in that graph?
inline bool is_current(const PyExpression* e, const Graph& g) {
  return e->generation == g.generation() || (e->graph == g.number && g.keeps(e->id, e->generation));
}

// Parameters and LookupParameters are expressions too: they enter each graph on first use.
struct PyParameters {
  PyExpression base;
  std::shared_ptr<Storage>* storage;  // owned; null: empty Parameters
};

// Of Parameters or LookupParameters; ValueError for empty ones.
const std::shared_ptr<Storage>& storage_in(PyObject* parameters);

// The default graph of this thread, which has none before it needs one.
extern constinit thread_local Engine* this_thread DYC_STATIC_TLS;
[[gnu::cold]] Engine& make_engine();
inline Engine& engine() {
  Engine* e = this_thread;
  if (e) [[likely]]
    return *e;
  return make_engine();
}
// The same for callers that C++ exceptions may not pass: null after setting a Python exception.
[[gnu::cold]] Engine* make_engine_or_error();
inline Engine* engine_or_error() {
  Engine* e = this_thread;
  if (e) [[likely]]
    return e;
  return make_engine_or_error();
}

extern PyTypeObject ExpressionType;        // Expression
extern PyTypeObject InputType;             // _inputExpression            .set(float)
extern PyTypeObject VectorInputType;       // _vecInputExpression         .set(floats)
extern PyTypeObject TensorInputType;       // _tensorInputExpression      .set(floats)
extern PyTypeObject SparseInputType;       // _sparseInputExpression
extern PyTypeObject TransposedInputType;   // inputTensorTranspose
extern PyTypeObject LookupType;            // _lookupExpression           .set(int)
extern PyTypeObject LookupBatchType;       // _lookupBatchExpression      .set(ints)
extern PyTypeObject PickerType;            // _pickerExpression           .set_index(int)
extern PyTypeObject PickerBatchType;       // _pickerBatchExpression      .set_index(ints)
extern PyTypeObject ParametersType;        // Parameters        (parameters.cc)
extern PyTypeObject LookupParametersType;  // LookupParameters  (parameters.cc)

// Raised where an expression or state is used whose nodes are gone or in another thread's graph: a
// ValueError, as DyNet's operations raise, and a RuntimeError, as its value() does.
extern PyObject* StaleError;

// A handle without a node, which scripts keep in the place of an expression to come. For Parameters, too.
PyObject* empty_expression(PyTypeObject* type);

// Expressions that were freed, for the next ones.
struct FreeExpressions {
  PyExpression* list[tuning::kFreeExpressions] = {};
  int n = 0;
};
extern constinit FreeExpressions free_expressions;

inline PyObject* set_node(PyExpression* e, const Graph& g, NodeId id) {
  e->id = id;
  e->generation = g.generation();
  e->graph = g.number;
  e->renewals = g.renewals();
  return reinterpret_cast<PyObject*>(e);
}
PyObject* allocate_expression(NodeId id, PyTypeObject* type);

// New expression for a node of this thread's graph. Compiled into each function of the API, as to_node() is:
// as calls, the two were 15 % of the instructions of `-x`.
inline PyObject* make_expression(NodeId id, PyTypeObject* type = &ExpressionType) {
  FreeExpressions& free = free_expressions;
  if (free.n == 0) [[unlikely]]
    return allocate_expression(id, type);
  PyExpression* e = free.list[--free.n];
  revive(reinterpret_cast<PyObject*>(e), type);
  return set_node(e, engine().graph, id);
}

// Is it an expression that is no parameter?
inline bool is_plain_expression(PyObject* object) {
  const PyTypeObject* type = Py_TYPE(object);
  return type == &ExpressionType ||
         (type->tp_base == &ExpressionType && type->tp_basicsize == sizeof(PyExpression));
}

// Node of an operand. Sets TypeError (not an Expression) or StaleError, naming `op`, and returns false.
bool other_to_node(PyObject* object, const char* op, NodeId* id);
inline bool to_node(PyObject* object, const char* op, NodeId* id) {
  const Engine* mine = this_thread;
  if (mine && is_plain_expression(object)) [[likely]] {
    const auto* e = reinterpret_cast<PyExpression*>(object);
    if (e->generation == mine->graph.generation()) [[likely]] {
      *id = e->id;
      return true;
    }
  }
  return other_to_node(object, op, id);
}
inline bool is_expression(PyObject* object) {
  const PyTypeObject* type = Py_TYPE(object);
  if (type == &ExpressionType || type->tp_base == &ExpressionType) [[likely]]
    return true;
  if (type == &PyFloat_Type || type == &PyLong_Type) return false;
  return PyType_IsSubtype(Py_TYPE(object), &ExpressionType);
}

inline bool is_parameters(PyObject* object) {
  return PyObject_TypeCheck(object, &ParametersType) || PyObject_TypeCheck(object, &LookupParametersType);
}

// Runs f, turning C++ exceptions into Python ones; f returns PyObject* or anything convertible to it.
void set_error();  // call inside catch (...)
template <class F>
PyObject* guarded(F&& f) {
  try {
    return f();
  } catch (...) {
    set_error();
    return nullptr;
  }
}
// Thrown when a Python error is already set.
struct PythonError {};

// The type of an object for messages: "int", "dynet.Parameters", "dynet.Expression" for all kinds of them.
const char* type_name(PyObject* object);

// repr() of classes whose texts are made in Python (dynet_compat/inspection/reprs.py).
PyObject* described(PyObject* self);

// A keyword that a call does not know; names those that it does.
[[noreturn]] void refuse_keyword(const char* op, const char* given, const char* const* names, size_t n);

// One line in the log of the package, once for each name: `advice` says what to write instead.
void deprecated(const std::string& name, const std::string& advice);

// ---- arguments; all throw PythonError after setting a Python exception that names op and argument
uint32_t as_uint(PyObject* object, const char* op, const char* name);  // ints, and floats truncated
int64_t as_int(PyObject* object, const char* op, const char* name);    // the same, also negative
float as_float(PyObject* object, const char* op, const char* name);
std::vector<uint32_t> as_uints(PyObject* object, const char* op, const char* name);  // any iterable
std::vector<float> as_floats(PyObject* object, const char* op, const char* name);    // any iterable or array
Dim as_dim(PyObject* object, const char* op);                      // int, float, tuple, list; batch size 1
std::vector<NodeId> as_nodes(PyObject* sequence, const char* op);  // any sequence of Expressions
// Of a list or tuple: ints, floats and expressions only, which are converted without running Python code
// that could change the list.
bool has_plain_items(PyObject* sequence);

// ---- values
PyObject* array_of(const float* data,
                   const Dim& dim);   // float64, Fortran order, batch last if > 1; null data: zeros
PyObject* dim_tuple(const Dim& dim);  // (d1, d2, ...)
PyObject* tensor_of(const float* data, const Dim& dim);  // a Tensor with a copy  (tensor.cc)

// Text of ops/docs for a function of the API; empty if there is none.
std::string documentation(const char* function);

// A class of expressions may be called: `function` then makes the node.
void constructor(PyObject* type, PyObject* function);

// Adds types and functions to the module.
void add_expression_types(PyObject* module);  // expression.cc
void add_op_functions(PyObject* module);      // functions.cc: one per public op
void add_alias_functions(PyObject* module);   // aliases.cc: ops under other names or argument orders
void add_input_functions(PyObject* module);   // inputs.cc
void add_parameter_types(PyObject* module);   // parameters.cc
void add_argmax(PyObject* module);            // argmax.cc

// New Parameters / LookupParameters object.
PyObject* make_parameters(const std::shared_ptr<Storage>& storage);

}  // namespace dyc::py
