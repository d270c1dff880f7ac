// Python functions generated from the op table: one per public op, plus record() for any op.
#include <algorithm>
#include <array>
#include <cstring>

#include "bindings/compute.h"
#include "bindings/documentation.h"
#include "bindings/signatures.h"
#include "cuda/driver/backend.h"

namespace dyc::py {

namespace {

// The arguments of one call, sorted into what the recorder takes.
struct OpArguments {
  std::vector<NodeId> nodes;
  std::vector<uint32_t> attrs, ids;
  bool list = false;
};

uint32_t bits(float f) {
  uint32_t w;
  std::memcpy(&w, &f, 4);
  return w;
}

}  // namespace

bool allow_empty_sums = false;

namespace {

void append(OpArguments& c, const OpInfo& info, const Param& p, PyObject* value) {
  const char* op = info.meta->name;
  switch (p.kind) {
    case Param::expr: {
      NodeId id;
      if (!to_node(value, op, &id)) throw PythonError();
      c.nodes.push_back(id);
      return;
    }
    case Param::exprs:
      c.nodes = as_nodes(value, op);
      if (c.nodes.empty() && allow_empty_sums && (!std::strcmp(op, "esum") || !std::strcmp(op, "average")))
        c.nodes.push_back(engine().graph.constant(Dim{{1}}, 0.f));
      if (c.nodes.empty()) {
        PyErr_Format(PyExc_AssertionError, "%s(): expected at least one Expression, got an empty list", op);
        throw PythonError();
      }
      return;
    case Param::real:
      c.attrs.push_back(bits(as_float(value, op, p.name)));
      return;
    case Param::uint:
      c.attrs.push_back(as_uint(value, op, p.name));
      return;
    case Param::flag:
      c.attrs.push_back(PyObject_IsTrue(value) != 0);
      return;
    case Param::index:
      c.ids.push_back(as_uint(value, op, p.name));
      return;
    case Param::indices:
      c.ids = as_uints(value, op, p.name);
      c.attrs.push_back(static_cast<uint32_t>(c.ids.size()));
      c.list = true;
      return;
    case Param::number:  // of ops that operators record
      return;
  }
}

void append_default(OpArguments& c, const Param& p) {
  if (p.kind == Param::real) c.attrs.push_back(bits(static_cast<float>(p.standard)));
  else if (p.kind == Param::index) c.ids.push_back(static_cast<uint32_t>(p.standard));
  else c.attrs.push_back(static_cast<uint32_t>(p.standard));
}

OpArguments parse(OpId op, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const OpInfo& info = op_info(op);
  const uint32_t most = info.n_params;
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  if (n > most) {
    PyErr_Format(PyExc_TypeError, "%s(): expected at most %u arguments, got %zd", info.meta->name, most, n);
    throw PythonError();
  }
  PyObject* values[16] = {};
  for (Py_ssize_t i = 0; i < n; ++i) values[i] = args[i];
  for (Py_ssize_t k = 0; k < named; ++k) {
    PyObject* name = PyTuple_GET_ITEM(names, k);
    uint32_t i = 0;
    while (i < most && PyUnicode_CompareWithASCIIString(name, info.params[i].name) != 0) ++i;
    if (i == most || values[i]) {
      PyErr_Format(PyExc_TypeError, "%s(): got %s argument %R", info.meta->name,
                   i == most ? "an unexpected" : "a repeated", name);
      throw PythonError();
    }
    values[i] = args[n + k];
  }
  // Expressions last: converting a number may run Python code, which may start another graph.
  OpArguments c;
  for (const bool nodes : {false, true})
    for (uint32_t i = 0; i < most; ++i) {
      const Param& p = info.params[i];
      if ((p.kind == Param::expr || p.kind == Param::exprs) != nodes) continue;
      if (values[i]) {
        append(c, info, p, values[i]);
      } else if (p.required()) {
        PyErr_Format(PyExc_TypeError, "%s(): expected an argument %s", info.meta->name, p.name);
        throw PythonError();
      } else {
        append_default(c, p);
      }
    }
  return c;
}

NodeId record(OpId op, const OpArguments& c) {
  return engine().graph.record(op, c.nodes.data(), static_cast<uint32_t>(c.nodes.size()), c.attrs.data(),
                               static_cast<uint32_t>(c.attrs.size()),
                               {c.ids.data(), static_cast<uint32_t>(c.ids.size()), c.list});
}

template <class Op>
PyTypeObject* result_type() {
  return std::is_same_v<Op, Pick> ? &PickerType : &ExpressionType;
}

template <class Op>
PyObject* general(PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return guarded(
      [&] { return recorded(record(op_id<Op>, parse(op_id<Op>, args, n, names)), result_type<Op>()); });
}

// Are these the first parameters of the op, and after them at most a number, which has a default?
template <class Op>
constexpr bool takes(std::initializer_list<Param::Kind> kinds) {
  const size_t n = kinds.size(), params = std::size(Op::params);
  if (params < n || params > n + 1) return false;
  for (size_t i = 0; i < n; ++i)
    if (Op::params[i].kind != kinds.begin()[i]) return false;
  if (params == n) return true;
  const Param& last = Op::params[n];
  return (last.kind == Param::uint || last.kind == Param::real) && !last.required();
}

// Records it with the default of that number, if it has one.
template <class Op, uint32_t params>
PyObject* record_default(const NodeId* nodes, uint32_t n, const Graph::Ids& ids) {
  constexpr uint32_t attrs = std::size(Op::params) - params;
  uint32_t attr = 0;
  if constexpr (attrs > 0) {
    constexpr Param last = Op::params[params];
    if (last.kind == Param::real) attr = bits(static_cast<float>(last.standard));
    else attr = static_cast<uint32_t>(last.standard);
  }
  return recorded(engine().graph.record(op_id<Op>, nodes, n, &attr, attrs, ids), result_type<Op>());
}

constexpr Py_ssize_t kShortList = 16;

bool is_short_list(PyObject* object) {
  if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) return false;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(object);
  PyObject* const* items = PySequence_Fast_ITEMS(object);
  return n > 0 && n <= kShortList && std::all_of(items, items + n, is_expression);
}

template <class Op>
PyObject* call_with_list(PyObject* list) {
  NodeId ids[kShortList];
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(list);
  for (Py_ssize_t i = 0; i < n; ++i)
    if (!to_node(PySequence_Fast_GET_ITEM(list, i), Op::meta.name, &ids[i])) return nullptr;
  return guarded([&] { return record_default<Op, 1>(ids, static_cast<uint32_t>(n), Graph::Ids{}); });
}

template <class Op>
PyObject* call_with_index(PyObject* x, PyObject* object) {
  NodeId id;
  if (!to_node(x, Op::meta.name, &id)) return nullptr;
  return guarded([&] {
    const uint32_t index = as_uint(object, Op::meta.name, Op::params[1].name);
    return record_default<Op, 2>(&id, 1, {&index, 1, false});
  });
}

// Calls of one or two Expressions, of one and an index, or of a short list of them, and nothing else skip the
// general parser.
template <class Op>
PyObject* call(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  constexpr uint32_t params = std::size(Op::params);
  constexpr bool one = params == 1 && Op::params[0].kind == Param::expr;
  constexpr bool two = params == 2 && Op::params[0].kind == Param::expr && Op::params[1].kind == Param::expr;
  if constexpr (takes<Op>({Param::exprs}))
    if (n == 1 && !names) {
      if (!engine_or_error()) return nullptr;  // may wait for it, while other threads may change the list
      if (is_short_list(args[0])) return call_with_list<Op>(args[0]);
    }
  if constexpr (takes<Op>({Param::expr, Param::index}))
    if (n == 2 && !names && PyLong_CheckExact(args[1]))  // converting others may run Python code
      return call_with_index<Op>(args[0], args[1]);
  if constexpr (one || two) {
    if (n == params && !names) {
      NodeId ids[2];
      if (!to_node(args[0], Op::meta.name, &ids[0])) return nullptr;
      if constexpr (two)
        if (!to_node(args[1], Op::meta.name, &ids[1])) return nullptr;
      return guarded([&] {
        Graph& g = engine().graph;
        return recorded(one ? g.unary(op_id<Op>, ids[0]) : g.binary(op_id<Op>, ids[0], ids[1]));
      });
    }
  }
  return general<Op>(args, n, names);
}

template <class... Ops>
constexpr std::array<FastMethod, sizeof...(Ops)> entries(OpList<Ops...>) {
  return {&call<Ops>...};
}

constexpr auto functions = entries(AllOps{});

#define DOC(name, text) {#name, text},
const DocText docs[] = {
#include "ops/docs/arithmetic.inc"
#include "ops/docs/contract.inc"
#include "ops/docs/conv.inc"
#include "ops/docs/elementwise.inc"
#include "ops/docs/input.inc"
#include "ops/docs/linalg.inc"
#include "ops/docs/list.inc"
#include "ops/docs/loss.inc"
#include "ops/docs/lstm.inc"
#include "ops/docs/matmul.inc"
#include "ops/docs/random.inc"
#include "ops/docs/reduce.inc"
#include "ops/docs/select.inc"
#include "ops/docs/shape.inc"
#include "ops/docs/simplex.inc"
#include "ops/docs/softmax.inc"
};
#undef DOC

}  // namespace

OpId op_of_function(PyObject* function) {
  const FastMethod method = method_of_function(function);
  if (!method) return kOps;
  return static_cast<OpId>(std::find(functions.begin(), functions.end(), method) - functions.begin());
}

PlainCall plain_call(OpId op, size_t n) {
  const OpInfo& info = op_info(op);
  PlainCall call;
  OpArguments defaults;
  for (uint32_t i = 0; i < info.n_params; ++i) {
    const Param& p = info.params[i];
    if (i >= n) {
      if (p.required()) return {};
      append_default(defaults, p);
    } else if (p.kind == Param::exprs && i == 0) {
      call.list = true;
    } else if (p.kind == Param::index && i + 1 == n) {
      call.index = true;
    } else if (p.kind != Param::expr || call.list) {
      return {};
    }
  }
  if (!defaults.ids.empty() || defaults.attrs.size() > PlainCall::kMostAttrs) return {};
  call.n_attrs = static_cast<uint8_t>(defaults.attrs.size());
  std::copy(defaults.attrs.begin(), defaults.attrs.end(), call.attrs);
  call.possible = n > 0 && n <= info.n_params;
  return call;
}

namespace {

OpId op_named(const char* name) {
  OpId op = 0;
  while (op < kOps && std::strcmp(op_info(op).meta->name, name) != 0) ++op;
  return op;
}

// A function of one expression, element by element?
bool is_of_x(const char* function) {
  const OpId op = op_named(function);
  return op < kOps && op_info(op).meta->kind == OpKind::unary && op_info(op).n_params == 1;
}

}  // namespace

std::string documentation(const char* function) {
  const auto* const found = std::find_if(
      std::begin(docs), std::end(docs), [&](const DocText& d) { return std::strcmp(d.name, function) == 0; });
  if (found == std::end(docs)) return "";
  std::string text = found->text;
  if (is_of_x(function))
    add_section(text, "Args:\n    x: Expression {..}xB.\nReturns:\n    Expression {..}xB.\n");
  return with_source(function, std::move(text));
}

namespace {

// "d=0" as Python writes it; not by repr(), which calls handlers of signals.
std::string default_text(const Param& p) {
  if (p.required()) return p.name;
  const int with_point = p.kind == Param::real ? Py_DTSF_ADD_DOT_0 : 0;
  char* number = PyOS_double_to_string(p.standard, 'r', 0, with_point, nullptr);
  if (!number) throw PythonError();
  std::string out = text(p.name, "=", number);
  PyMem_Free(number);
  return out;
}

std::string signature(const OpInfo& info) {
  std::string s = info.meta->name;
  s += "(";
  for (uint32_t i = 0; i < info.n_params; ++i) s += (i ? ", " : "") + default_text(info.params[i]);
  return s + ")";
}

PyObject* record_op(PyObject*, PyObject* args) {
  const char* name;
  PyObject *exprs, *attrs = nullptr, *ids = nullptr;
  if (!PyArg_ParseTuple(args, "sO|OO", &name, &exprs, &attrs, &ids)) return nullptr;
  return guarded([&]() -> PyObject* {
    const OpId op = op_named(name);
    if (op == kOps || !op_info(op).shape) throw ValueError(text("record(): no op named ", name));
    OpArguments c;
    c.nodes = as_nodes(exprs, name);
    if (attrs) {
      PyObject* fast = PySequence_Fast(attrs, "record(): attrs must be a sequence");
      if (!fast) throw PythonError();
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); ++i) {
        PyObject* a = PySequence_Fast_GET_ITEM(fast, i);
        if (PyFloat_Check(a)) c.attrs.push_back(bits(static_cast<float>(PyFloat_AS_DOUBLE(a))));
        else c.attrs.push_back(static_cast<uint32_t>(PyLong_AsLong(a)));
      }
      Py_DECREF(fast);
      if (PyErr_Occurred()) throw PythonError();
    }
    if (ids && ids != Py_None) {
      c.list = !PyIndex_Check(ids) && !PyFloat_Check(ids);
      if (c.list) c.ids = as_uints(ids, name, "index");
      else c.ids.push_back(as_uint(ids, name, "index"));
    }
    const bool pick = op == op_id<Pick>;
    return recorded(record(op, c), pick ? (c.list ? &PickerBatchType : &PickerType) : &ExpressionType);
  });
}

PyObject* doc(PyObject*, PyObject* name) {
  const char* wanted = PyUnicode_AsUTF8(name);
  if (!wanted) return nullptr;
  const std::string body = documentation(wanted);
  if (!body.empty()) return PyUnicode_FromString(body.c_str());
  Py_RETURN_NONE;
}

PyObject* op_table(PyObject*, PyObject*) {
  PyObject* rows = PyList_New(0);
  for (OpId i = 0; i < kOps; ++i) {
    const OpInfo& r = op_info(i);
    const Meta& m = *r.meta;
    PyObject* row = Py_BuildValue(
        "{s:s,s:s,s:s,s:O,s:O,s:O,s:O,s:s,s:O,s:s,s:s}", "name", m.name, "formula", m.formula, "signature",
        signature(r).c_str(), "public", m.hidden ? Py_False : Py_True, "shape", r.shape ? Py_True : Py_False,
        "nondiff", m.nondiff ? Py_True : Py_False, "gradient", m.nondiff ? Py_False : Py_True, "batch",
        m.batch == Batch::none ? "no launch" : "nodes of any shape share a launch", "leaf",
        m.kind == OpKind::input || m.kind == OpKind::draw || m.kind == OpKind::parameter ? Py_True : Py_False,
        "doc", documentation(m.name).c_str(), "kind",
        std::array{"input", "parameter", "draw", "view", "unary", "binary", "per_node", "matmul", "lookup",
                   "user", "custom"}[static_cast<size_t>(m.kind)]);
    PyList_Append(rows, row);
    Py_DECREF(row);
  }
  return rows;
}

PyObject* device_kernels(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  for (const cuda::KernelName& kernel : cuda::kernel_names()) {
    PyObject* entry = Py_BuildValue("(ss)", kernel.file.c_str(), kernel.expression.c_str());
    PyList_Append(list, entry);
    Py_DECREF(entry);
  }
  return list;
}

PyMethodDef extra[] = {
    {"record", record_op, METH_VARARGS,
     "record(name, exprs, attrs=(), ids=None)\n--\n\nRecords any op of the table."},
    {"doc", doc, METH_O, "doc(name)\n--\n\nDocumentation of a function of the API, or None."},
    {"_device_kernels", device_kernels, METH_NOARGS,
     "_device_kernels()\n--\n\nFile and name of each kernel that a CUDA device may be asked for."},
    {"op_table", op_table, METH_NOARGS, "op_table()\n--\n\nThe definitions of all ops, as dicts."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_op_functions(PyObject* module) {
  std::vector<ApiFunction> all;
  for (OpId i = 0; i < kOps; ++i)
    if (const OpInfo& r = op_info(i); !r.meta->hidden && r.shape) all.push_back({signature(r), functions[i]});
  add_api_functions(module, all);
  if (PyModule_AddFunctions(module, extra) < 0) throw PythonError();
}

}  // namespace dyc::py
