// Inputs, constants, random nodes, and frequent functions whose arguments the op table does not describe.
#include <algorithm>
#include <cstring>

#include "bindings/arguments.h"
#include "bindings/compute.h"
#include "bindings/exchange.h"
#include "bindings/float_arrays.h"
#include "bindings/operators.h"
#include "bindings/signatures.h"

namespace dyc::py {

namespace {

namespace py = pybind11;

using Args = PyObject* const*;
#define FUNCTION(name) PyObject* name(PyObject*, Args args, Py_ssize_t n, PyObject* kw)

constexpr FastMethod scalar_input = method<"scalarInput", 1, "s", "device">([](const auto& a) {
  const float v = a.number(0, 0);
  Graph& g = engine().graph;
  const NodeId id = g.input(Dim({1}), true);
  g.values(id)[0] = v;
  return recorded(id, &InputType);
});

constexpr FastMethod vec_input = method<"vecInput", 1, "dim", "device">([](const auto& a) {
  const Dim d = as_dim(a[0], a.op());
  Graph& g = engine().graph;
  const NodeId id = g.input(d, true);
  std::memset(g.values(id), 0, d.size() * 4);
  return recorded(id, &VectorInputType);
});

// The memory is there before the graph changes.
PyObject* device_input(const Given& given, const Dim& dim, bool writable, PyTypeObject* type) {
  auto memory = Exchange().take(given.from);
  Engine& e = engine();
  const NodeId id = e.graph.input(dim, writable);
  e.executor.set_input(id, std::move(memory));
  return recorded(id, type);
}

// _input_foreign(array, batched, writable): of another library's array; None: it is not on a device.
constexpr FastMethod input_foreign =
    method<"_input_foreign", 3, "array", "batched", "writable">([](const auto& a) -> PyObject* {
      const auto given = given_array(a[0], "inputTensor", "arr");
      if (!given) return none();
      const Dim d = given->dim("inputTensor", a.truth(1, false));
      return device_input(*given, d, a.truth(2, false), &TensorInputType);
    });

// Null: the array is not on a device.
[[gnu::cold, gnu::noinline]] PyObject* device_vector(PyObject* v, const char* op) {
  const auto given = given_foreign(v, op, "v");
  if (!given) return nullptr;
  given->check_flat(v, op, "v");
  return device_input(*given, Dim({static_cast<uint32_t>(given->from.array.total)}), true, &VectorInputType);
}

bool all_floats(PyObject* const* items, Py_ssize_t size) {
  bool floats = true;  // without a branch, so that the objects are fetched side by side
  for (Py_ssize_t i = 0; i < size; ++i) floats &= PyFloat_CheckExact(items[i]) != 0;
  return floats;
}

// inputVector is on the hot path of feature-based models: numbers go straight into the arena.
constexpr FastMethod input_vector = method<"inputVector", 1, "v", "device">([](const auto& a) {
  PyObject* v = a[0];
  Graph& g = engine().graph;
  const bool list = PyList_CheckExact(v) || PyTuple_CheckExact(v);
  const Py_ssize_t size = list ? PySequence_Fast_GET_SIZE(v) : 0;
  PyObject** const items = list ? PySequence_Fast_ITEMS(v) : nullptr;
  if (list && all_floats(items, size)) {
    const NodeId id = g.input(Dim({static_cast<uint32_t>(size)}), true);
    float* out = g.values(id);
    for (Py_ssize_t i = 0; i < size; ++i) out[i] = static_cast<float>(PyFloat_AS_DOUBLE(items[i]));
    return recorded(id, &VectorInputType);
  }
  if (list && has_plain_items(v)) {
    for (Py_ssize_t i = 0; i < size; ++i)
      if (!PyFloat_CheckExact(items[i])) as_float(items[i], a.op(), "v");  // may be too large
    const NodeId id = g.input(Dim({static_cast<uint32_t>(size)}), true);
    float* out = g.values(id);
    for (Py_ssize_t i = 0; i < size; ++i) {
      const bool is_float = PyFloat_CheckExact(items[i]);
      out[i] = is_float ? static_cast<float>(PyFloat_AS_DOUBLE(items[i])) : as_float(items[i], a.op(), "v");
    }
    return recorded(id, &VectorInputType);
  }
  const bool foreign = is_foreign(v);
  if (foreign)
    if (PyObject* const x = device_vector(v, a.op())) return x;
  const std::vector<float> values = floats_on_host(v, foreign, a.op(), "v");
  const NodeId id = g.input(Dim({static_cast<uint32_t>(values.size())}), true);
  std::copy(values.begin(), values.end(), g.values(id));
  return recorded(id, &VectorInputType);
});

// _input_plain(array, batched, writable): of a NumPy array of floats; None: it is something else.
constexpr FastMethod input_plain =
    method<"_input_plain", 3, "array", "batched", "writable">([](const auto& a) -> PyObject* {
      const bool batched = a.truth(1, false), writable = a.truth(2, false);
      Dim d;
      if (!dim_of_array(a[0], batched, &d)) return none();
      Graph& g = engine().graph;
      const NodeId id = g.input(d, writable);
      copy_numbers(py::reinterpret_borrow<py::array>(a[0]), g.values(id));
      return recorded(id, &TensorInputType);
    });

// _input_array(array, dims, batch, writable, kind): array of float32, any layout, column-major read.
constexpr FastMethod input_array =
    method<"_input_array", 5, "array", "dims", "batch", "writable", "kind">([](const auto& a) {
      if (!is_array(a[0])) throw TypeError(text(a.op(), "(): expected an array"));
      py::array array = py::reinterpret_borrow<py::array>(a[0]);
      if (!std::strchr("biuf", array.dtype().kind())) array = float_array(a[0], "inputTensor", "arr");
      Dim d = as_dim(a[1], "inputTensor");
      d.bd = a.uint(2, 1);
      if (d.bd == 0) throw ValueError("inputTensor(): expected a batch size of at least 1, got 0");
      if (static_cast<size_t>(array.size()) != d.size())
        throw ValueError(
            text("inputTensor(): expected ", d.size(), " values for ", d, ", got ", array.size()));
      Graph& g = engine().graph;
      const NodeId id = g.input(d, PyObject_IsTrue(a[3]));
      copy_numbers(array, g.values(id));
      const std::string kind = PyUnicode_AsUTF8(a[4]);
      return recorded(id, kind == "sparse"   ? &SparseInputType
                          : kind == "vector" ? &VectorInputType
                                             : &TensorInputType);
    });

PyObject* constant_of(const Dim& d, float value) { return recorded(engine().graph.constant(d, value)); }

constexpr FastMethod zeros = method<"zeros", 1, "dim", "batch_size", "device">(
    [](const auto& a) { return constant_of(a.dim(0, 1), 0.f); });

constexpr FastMethod ones = method<"ones", 1, "dim", "batch_size", "device">(
    [](const auto& a) { return constant_of(a.dim(0, 1), 1.f); });

constexpr FastMethod constant = method<"constant", 2, "dim", "val", "batch_size", "device">(
    [](const auto& a) { return constant_of(a.dim(0, 2), a.number(1, 0)); });

constexpr FastMethod random_normal =
    method<"random_normal", 1, "dim", "mean", "stddev", "batch_size", "device">([](const auto& a) {
      return recorded(engine().graph.draw(DrawKind::normal, a.number(1, 0), a.number(2, 1), a.dim(0, 3)));
    });

constexpr FastMethod random_bernoulli =
    method<"random_bernoulli", 2, "dim", "p", "scale", "batch_size", "device">([](const auto& a) {
      return recorded(engine().graph.draw(DrawKind::bernoulli, a.number(1, 0), a.number(2, 1), a.dim(0, 3)));
    });

constexpr FastMethod random_uniform =
    method<"random_uniform", 3, "dim", "left", "right", "batch_size", "device">([](const auto& a) {
      return recorded(engine().graph.draw(DrawKind::uniform, a.number(1, 0), a.number(2, 1), a.dim(0, 3)));
    });

constexpr FastMethod random_gumbel =
    method<"random_gumbel", 1, "dim", "mu", "beta", "batch_size", "device">([](const auto& a) {
      const float mu = a.number(1, 0), beta = a.number(2, 1);
      if (mu != 0.f || beta != 1.f)
        throw ValueError(text("random_gumbel(): expected mu 0 and beta 1, got ", mu, " and ", beta));
      return recorded(engine().graph.draw(DrawKind::gumbel, 0, 1, a.dim(0, 3)));
    });

// x times a fresh Bernoulli(1 - p) / (1 - p) mask of the given shape.
PyObject* drop(NodeId x, const Dim& mask, float p) {
  Graph& g = engine().graph;
  const NodeId m = g.draw(DrawKind::bernoulli, 1.f - p, 1.f / (1.f - p), mask);
  return recorded(g.binary(op_id<CMult>, x, m));
}

constexpr FastMethod dropout = method<"dropout", 2, "x", "p">([](const auto& a) {
  const NodeId x = a.node(0);
  return drop(x, engine().graph.dim(x), a.number(1, 0));
});

constexpr FastMethod dropout_dim = method<"dropout_dim", 3, "x", "d", "p">([](const auto& a) {
  const NodeId x = a.node(0);
  Dim mask = engine().graph.dim(x);
  const uint32_t d = a.uint(1, 0);
  if (mask.nd >= 4 || d >= mask.nd)
    throw ValueError(text("dropout_dim(): expected fewer than 4 dimensions and d below their number, got ",
                          mask, ", d ", d));
  mask.d[d] = 1;
  return drop(x, mask, a.number(2, 0));
});

constexpr FastMethod dropout_batch = method<"dropout_batch", 2, "x", "p">([](const auto& a) {
  const NodeId x = a.node(0);
  Dim mask = engine().graph.dim(x);
  for (uint32_t i = 0; i < mask.nd; ++i) mask.d[i] = 1;
  return drop(x, mask, a.number(1, 0));
});

constexpr FastMethod block_dropout = method<"block_dropout", 2, "x", "p">([](const auto& a) {
  const NodeId x = a.node(0);
  const float p = a.number(1, 0);
  if (!(p >= 0.f && p <= 1.f)) throw ValueError(text("block_dropout(): expected 0 <= p <= 1, got ", p));
  Graph& g = engine().graph;
  const float scale = 1.f / (1.f - p);
  Dim one = g.dim(x);
  for (uint32_t i = 0; i < one.nd; ++i) one.d[i] = 1;
  one.bd = 1;
  // DyNet draws nothing then
  if (p == 1.f) return recorded(g.binary(op_id<CMult>, x, g.constant(one, 0.f)));
  return recorded(g.binary(op_id<CMult>, x, g.draw(DrawKind::bernoulli, 1.f - p, scale, one)));
});

constexpr FastMethod noise = method<"noise", 2, "x", "stddev">([](const auto& a) {
  const NodeId x = a.node(0);
  Graph& g = engine().graph;
  const NodeId e = g.draw(DrawKind::normal, 0.f, a.number(1, 0), g.dim(x));
  return recorded(g.binary(op_id<Add>, x, e));
});

constexpr FastMethod reshape = method<"reshape", 2, "x", "d", "batch_size">([](const auto& a) {
  const NodeId x = a.node(0);
  Graph& g = engine().graph;
  if (!PyTuple_Check(a[1]) && !PyList_Check(a[1])) {
    PyErr_Format(PyExc_TypeError, "reshape(): expected a tuple for d, got %s", type_name(a[1]));
    throw PythonError();
  }
  const Dim d = as_dim(a[1], a.op());
  uint32_t attrs[kMaxDims + 2] = {d.nd};
  for (uint32_t i = 0; i < d.nd; ++i) attrs[1 + i] = d.d[i];
  attrs[1 + d.nd] = a.uint(2, 1);
  const Dim* xd = &g.dim(x);
  const Dim y = Reshape::shape({a.op(), &xd, 1, attrs, d.nd + 2});
  return recorded(g.view(op_id<Reshape>, x, y, 0));
});

constexpr FastMethod to_device = method<"to_device", 2, "e", "device_str">([](const auto& a) {
  const NodeId x = a.node(0);
  const char* device = PyUnicode_Check(a[1]) ? PyUnicode_AsUTF8(a[1]) : "";
  check_device(device ? device : "", "to_device()");
  Graph& g = engine().graph;
  return recorded(g.view(op_id<ToDevice>, x, g.dim(x), 0));
});

constexpr FastMethod concatenate_cols = method<"concatenate_cols", 1, "xs">([](const auto& a) {
  const std::vector<NodeId> nodes = as_nodes(a[0], a.op());
  if (nodes.empty()) {
    PyErr_SetString(PyExc_AssertionError,
                    "concatenate_cols(): expected at least one Expression, got an empty list");
    throw PythonError();
  }
  const uint32_t axis = 1;
  return recorded(engine().graph.record(op_id<Concatenate>, nodes.data(), static_cast<uint32_t>(nodes.size()),
                                        &axis, 1, {}));
});

// [concatenate([x, y]) for x, y in zip(xs, ys)]
constexpr FastMethod concatenate_pairs = method<"concatenate_pairs", 2, "xs", "ys">([](const auto& a) {
  const std::vector<NodeId> xs = as_nodes(a[0], "concatenate"), ys = as_nodes(a[1], "concatenate");
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < std::min(xs.size(), ys.size()); ++i) {
    const NodeId pair[2] = {xs[i], ys[i]};
    const uint32_t axis = 0;
    nodes.push_back(engine().graph.record(op_id<Concatenate>, pair, 2, &axis, 1, {}));
    engine().recorded(nodes.back());
  }
  return list_of_recorded(nodes.size(), "concatenate", [&](size_t i) { return make_expression(nodes[i]); });
});

constexpr FastMethod pickneglogsoftmax_batch =
    method<"pickneglogsoftmax_batch", 2, "x", "vs">([](const auto& a) {
      const NodeId x = a.node(0);
      const std::vector<uint32_t> ids = as_uints(a[1], a.op(), "vs");
      const uint32_t count = static_cast<uint32_t>(ids.size());
      return recorded(
          engine().graph.record(op_id<PickNegLogSoftmax>, &x, 1, &count, 1, {ids.data(), count, true}));
    });

constexpr FastMethod pick_batch = method<"pick_batch", 2, "e", "indices", "dim">([](const auto& a) {
  const NodeId x = a.node(0);
  const std::vector<uint32_t> ids = as_uints(a[1], a.op(), "indices");
  const uint32_t attrs[2] = {a.uint(2, 0), static_cast<uint32_t>(ids.size())};
  if (ids.empty()) throw ValueError("pick_batch(): expected at least one index, got none");
  return recorded(engine().graph.record(op_id<Pick>, &x, 1, attrs, 2, {ids.data(), attrs[1], true}),
                  &PickerBatchType);
});

const ApiFunction input_functions[] = {
    {"scalarInput(s, device='')", scalar_input},
    {"vecInput(dim, device='')", vec_input},
    {"inputVector(v, device='')", input_vector},
    {"_input_plain(array, batched, writable)", input_plain},
    {"_input_array(array, dims, batch, writable, kind)", input_array},
    {"_input_foreign(array, batched, writable)", input_foreign},
    {"zeros(dim, batch_size=1, device='')", zeros},
    {"ones(dim, batch_size=1, device='')", ones},
    {"constant(dim, val, batch_size=1, device='')", constant},
    {"random_normal(dim, mean=0.0, stddev=1.0, batch_size=1, device='')", random_normal},
    {"random_bernoulli(dim, p, scale=1.0, batch_size=1, device='')", random_bernoulli},
    {"random_uniform(dim, left, right, batch_size=1, device='')", random_uniform},
    {"random_gumbel(dim, mu=0.0, beta=1.0, batch_size=1, device='')", random_gumbel},
    {"dropout(x, p)", dropout},
    {"dropout_dim(x, d, p)", dropout_dim},
    {"dropout_batch(x, p)", dropout_batch},
    {"block_dropout(x, p)", block_dropout},
    {"noise(x, stddev)", noise},
    {"reshape(x, d, batch_size=1)", reshape},
    {"to_device(e, device_str)", to_device},
    {"concatenate_cols(xs)", concatenate_cols},
    {"_concatenate_pairs(xs, ys)", concatenate_pairs},
    {"pickneglogsoftmax_batch(x, vs)", pickneglogsoftmax_batch},
    {"pick_batch(e, indices, dim=0)", pick_batch},
};

}  // namespace

bool concatenates_pairs(PyObject* function) { return method_of_function(function) == concatenate_pairs; }

bool copies_data(PyObject* function) { return method_of_function(function) == input_vector; }

bool is_plain_data(PyObject* object) {
  if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) return false;
  PyObject* const* items = PySequence_Fast_ITEMS(object);
  const Py_ssize_t size = Py_SIZE(object);
  return all_floats(items, size) || std::all_of(items, items + size, [](PyObject* item) {
           return PyFloat_CheckExact(item) || PyLong_CheckExact(item);
         });
}

void add_input_functions(PyObject* module) { add_api_functions(module, input_functions); }

}  // namespace dyc::py
