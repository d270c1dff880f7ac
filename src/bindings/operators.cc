// Operators and indexing of expressions.
#include "bindings/operators.h"

#include "bindings/arguments.h"
#include "bindings/arrays.h"
#include "bindings/compute.h"

namespace dyc::py {

namespace {

// A real number other than an Expression: int, float, NumPy scalar, 1-element array. False with an error set
// for integers that no float can hold.
bool as_number(PyObject* o, float* out) {
  if (!PyFloat_CheckExact(o) && !PyLong_CheckExact(o)) {
    if (is_expression(o) || PyUnicode_Check(o) || PyBytes_Check(o) || !PyNumber_Check(o)) return false;
    if (is_array(o) && !is_number_array(o)) return false;
    if (is_array(o)) {
      *out = as_float(o, "operator", "the operand");
      return true;
    }
  }
  const double d = PyFloat_CheckExact(o) ? PyFloat_AS_DOUBLE(o) : PyFloat_AsDouble(o);
  if (d == -1.0 && PyErr_Occurred()) {
    if (!PyLong_Check(o) || !PyErr_ExceptionMatches(PyExc_OverflowError)) PyErr_Clear();
    return false;
  }
  *out = static_cast<float>(d);
  return true;
}

// Operands that are expressions, or arrays beside one.
bool is_operand(PyObject* o) { return is_expression(o) || (is_array(o) && !is_number_array(o)); }

NodeId record_with_number(OpId op, NodeId x, float c) {
  uint32_t word;
  std::memcpy(&word, &c, 4);
  Graph& g = engine().graph;
  // Of one element: Graph::owns_number() says so, too, but after a lookup for each new number.
  const OpId own = with_own_number(op);
  if (own != op && g.dim(x).batch_size() == 1) return g.record(own, &x, 1, nullptr, 0, {&word, 1, false});
  return g.record(op, &x, 1, &word, 1, {});
}

PyObject* with_number(OpId op, PyObject* x, float c, const char* name) {
  NodeId id;
  if (!to_node(x, name, &id)) return nullptr;
  return guarded([&] { return recorded(record_with_number(op, id, c)); });
}

PyObject* with_expression(OpId op, PyObject* x, PyObject* y, const char* name) {
  NodeId ids[2];
  if (!to_node(x, name, &ids[0]) || !to_node(y, name, &ids[1])) return nullptr;
  return guarded([&] { return recorded(engine().graph.binary(op, ids[0], ids[1])); });
}

// The ops of an operator on two expressions, or on one and a number to its right or left. The number is an
// argument of an op of its own; to the right after `convert`.
struct OperatorOps {
  OpId both, right, left;  // left: `both` if there is none
  float (*convert)(float);
};

float same_number(float c) { return c; }
float negated(float c) { return -c; }
float inverse(float c) { return 1.f / c; }

constexpr OperatorOps kOperators[] = {
    {op_id<Add>, op_id<AddConst>, op_id<AddConst>, same_number},
    {op_id<Sub>, op_id<AddConst>, op_id<ConstMinus>, negated},
    {op_id<MatMul>, op_id<Scale>, op_id<Scale>, same_number},
    {op_id<CDiv>, op_id<Scale>, op_id<ConstDiv>, inverse},
};
// Of a number to the power of an expression there is no op.
constexpr OperatorOps kPower = {op_id<Pow>, op_id<PowConst>, op_id<Pow>, same_number};

constexpr const OperatorOps& ops_of(BinaryOperator which) { return kOperators[static_cast<size_t>(which)]; }

template <const OperatorOps& ops>
PyObject* binary(PyObject* a, PyObject* b, const char* name) {
  float c;
  if (is_expression(a) && is_expression(b)) return with_expression(ops.both, a, b, name);
  if (is_expression(a) && as_number(b, &c)) return with_number(ops.right, a, ops.convert(c), name);
  if (ops.left != ops.both && is_expression(b) && as_number(a, &c)) return with_number(ops.left, b, c, name);
  if (PyErr_Occurred()) return nullptr;
  if (is_operand(a) && is_operand(b)) return with_expression(ops.both, a, b, name);
  Py_RETURN_NOTIMPLEMENTED;
}

PyObject* add(PyObject* a, PyObject* b) { return binary<ops_of(BinaryOperator::add)>(a, b, "+"); }
PyObject* subtract(PyObject* a, PyObject* b) { return binary<ops_of(BinaryOperator::subtract)>(a, b, "-"); }
PyObject* multiply(PyObject* a, PyObject* b) { return binary<ops_of(BinaryOperator::multiply)>(a, b, "*"); }
PyObject* divide(PyObject* a, PyObject* b) { return binary<ops_of(BinaryOperator::divide)>(a, b, "/"); }
PyObject* power(PyObject* a, PyObject* b, PyObject*) { return binary<kPower>(a, b, "**"); }

// Not in DyNet, where `*` is the matrix product.
PyObject* matrix_multiply(PyObject* a, PyObject* b) {
  if (is_operand(a) && is_operand(b)) return with_expression(op_id<MatMul>, a, b, "@");
  Py_RETURN_NOTIMPLEMENTED;
}

PyObject* negative(PyObject* a) {
  NodeId id;
  if (!to_node(a, "-", &id)) return nullptr;
  return guarded([&] { return recorded(engine().graph.unary(op_id<Negate>, id)); });
}

PyObject* same(PyObject* a) {
  Py_INCREF(a);
  return a;
}

int truth(PyObject*) { return 1; }

// Bounds of one slice over n elements, Python's rules for negative bounds; DyNet's for the rest:
// 0 <= start < n, 0 < stop <= n, step > 0.
void slice_bounds(PyObject* slice, int64_t n, int32_t* from, int32_t* to, int32_t* step) {
  auto* s = reinterpret_cast<PySliceObject*>(slice);
  auto bound = [&](PyObject* o, const char* name, int64_t standard) {
    if (o == Py_None) return standard;
    const int64_t v = as_int(o, "[]", name);
    return v < 0 ? v + n : v;
  };
  const int64_t a = bound(s->start, "start", 0), b = bound(s->stop, "stop", n);
  const int64_t k = s->step == Py_None ? 1 : as_int(s->step, "[]", "step");
  if (k <= 0) throw ValueError(text("slice: expected step > 0, got ", k));
  if (a < 0 || a >= n || b <= a || b > n)
    throw ValueError(text("slice: expected 0 <= start < stop <= ", n, ", got ", a, ":", b));
  *from = static_cast<int32_t>(a);
  *to = static_cast<int32_t>(b);
  *step = static_cast<int32_t>(k);
}

NodeId select_slices(NodeId x, const std::vector<PyObject*>& slices) {
  Graph& g = engine().graph;
  const Dim& d = g.dim(x);
  if (slices.size() > d.nd + 1u)
    throw ValueError(text("slice: expected at most ", d.nd + 1, " slices for ", d, ", got ", slices.size()));
  const uint32_t n = static_cast<uint32_t>(slices.size());
  std::vector<uint32_t> attrs = {n}, from = {n}, to = {n};
  for (uint32_t i = 0; i < n; ++i) {
    int32_t a, b, k;
    slice_bounds(slices[i], i < d.nd ? d.d[i] : d.bd, &a, &b, &k);
    attrs.push_back(k);
    from.push_back(a);
    to.push_back(b);
  }
  if (n == 1 && attrs[1] == 1) {
    const uint32_t range[3] = {from[1], to[1], 0};
    return g.record(op_id<PickRange>, &x, 1, range, 3, {});
  }
  attrs.insert(attrs.end(), from.begin(), from.end());
  attrs.insert(attrs.end(), to.begin(), to.end());
  return g.record(op_id<StridedSelect>, &x, 1, attrs.data(), static_cast<uint32_t>(attrs.size()), {});
}

PyObject* subscript(PyObject* self, PyObject* key) {
  NodeId x;
  if (!to_node(self, "[]", &x)) return nullptr;
  return guarded([&]() -> PyObject* {
    if (PySlice_Check(key)) return recorded(select_slices(x, {key}));
    if (PyTuple_Check(key)) {
      std::vector<PyObject*> slices;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
        if (!PySlice_Check(PyTuple_GET_ITEM(key, i))) {
          PyErr_Format(PyExc_AttributeError, "[]: expected only slices in the tuple, got %s",
                       type_name(PyTuple_GET_ITEM(key, i)));
          return nullptr;
        }
        slices.push_back(PyTuple_GET_ITEM(key, i));
      }
      return recorded(select_slices(x, slices));
    }
    if (!PyIndex_Check(key)) {
      PyErr_Format(PyExc_AssertionError, "[]: expected an int or slices, got %s", type_name(key));
      return nullptr;
    }
    const Py_ssize_t at = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (at == -1 && PyErr_Occurred()) return nullptr;
    Graph& g = engine().graph;
    const Py_ssize_t n = g.dim(x).rows();
    if (at >= n || at < -n) throw IndexError(text("[]: expected -", n, " <= index < ", n, ", got ", at));
    const uint32_t index = static_cast<uint32_t>(at < 0 ? at + n : at), axis = 0;
    return recorded(g.record(op_id<Pick>, &x, 1, &axis, 1, {&index, 1, false}), &PickerType);
  });
}

PyObject* item(PyObject* self, Py_ssize_t i) {
  PyObject* key = PyLong_FromSsize_t(i);
  PyObject* result = subscript(self, key);
  Py_DECREF(key);
  return result;
}

}  // namespace

PyNumberMethods expression_numbers = [] {
  PyNumberMethods n{};
  n.nb_add = add;
  n.nb_subtract = subtract;
  n.nb_multiply = multiply;
  n.nb_matrix_multiply = matrix_multiply;
  n.nb_true_divide = divide;
  n.nb_power = power;
  n.nb_negative = negative;
  n.nb_positive = same;
  n.nb_bool = truth;
  return n;
}();
PyMappingMethods expression_mapping = {nullptr, subscript, nullptr};
PySequenceMethods expression_sequence = [] {
  PySequenceMethods s{};
  s.sq_item = item;  // iteration: rows until IndexError
  return s;
}();

NodeId record_operator(BinaryOperator which, NodeId a, NodeId b) {
  const NodeId ids[] = {a, b};
  return engine().graph.record(ops_of(which).both, ids, 2);
}

NodeId record_operator(BinaryOperator which, NodeId a, float b) {
  return record_with_number(ops_of(which).right, a, ops_of(which).convert(b));
}

NodeId record_operator(BinaryOperator which, float a, NodeId b) {
  return record_with_number(ops_of(which).left, b, a);
}

}  // namespace dyc::py
