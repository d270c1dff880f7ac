// Functions that record an op of the table under another name, or with arguments in another order than the
// op's attributes.
#include "bindings/arguments.h"
#include "bindings/compute.h"
#include "bindings/signatures.h"

namespace dyc::py {

namespace {

// What the function records: an op, its attributes and indices.
struct OpCall {
  OpId op;
  std::vector<uint32_t> words{}, ids{};
  bool list = false;
  bool all_dims = false;  // words end with the number of x's dimensions and all of these

  void add(uint32_t word) { words.push_back(word); }
  void add(float number) {
    uint32_t word;
    std::memcpy(&word, &number, 4);
    words.push_back(word);
  }
  void add_counted(const std::vector<uint32_t>& list) {
    words.push_back(static_cast<uint32_t>(list.size()));
    words.insert(words.end(), list.begin(), list.end());
  }
};

// The op's errors name the function.
template <class E>
[[noreturn]] void rethrow(const E& error, const std::string& op, const char* function) {
  const std::string message = error.what(), prefix = op + "()";
  if (message.compare(0, prefix.size(), prefix) != 0) throw error;
  throw E(function + message.substr(op.size()));
}

// x is the first argument; arrange(arguments, call) converts the others, before x is looked at:
// converting may run Python code, which may start another graph.
template <size_t N, class F>
PyObject* alias(const char* function, const char* const (&names)[N], size_t required, OpId op,
                PyObject* const* args, Py_ssize_t n, PyObject* keywords, F&& arrange) {
  return guarded([&] {
    const Arguments<N> a = parse(function, names, required, args, n, keywords);
    OpCall r{op};
    arrange(a, r);
    const NodeId x = a.node(0);
    Graph& graph = engine().graph;
    if (r.all_dims) {
      const uint32_t nd = graph.dim(x).nd;
      r.add(nd);
      for (uint32_t d = 0; d < nd; ++d) r.add(d);
    }
    try {
      return recorded(graph.record(r.op, &x, 1, r.words.data(), static_cast<uint32_t>(r.words.size()),
                                   {r.ids.data(), static_cast<uint32_t>(r.ids.size()), r.list}));
    } catch (const ValueError& error) {
      rethrow(error, op_info(r.op).meta->name, function);
    }
  });
}

#define FUNCTION(name) PyObject* name(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* keywords)

template <size_t N>
std::vector<uint32_t> list_of(const Arguments<N>& a, size_t i, const char* name) {
  return as_uints(a[i], a.op(), name);
}

template <size_t N>
uint32_t gradient_mode(const Arguments<N>& a, size_t i) {
  if (!PyUnicode_Check(a[i])) {
    PyErr_Format(PyExc_TypeError, "%s(): expected a str for gradient_mode, got %s", a.op(), type_name(a[i]));
    throw PythonError();
  }
  const std::string mode = a.string(i);
  if (mode == "zero_gradient") return 0;
  if (mode == "straight_through_gradient") return 1;
  throw ValueError(text(a.op(),
                        "(): expected gradient_mode to be one of ['zero_gradient', "
                        "'straight_through_gradient'], got '",
                        mode, "'"));
}

template <class Op>
FUNCTION(with_mode) {
  static const char* const names[] = {"x", "gradient_mode"};
  return alias(Op::meta.name, names, 2, op_id<Op>, args, n, keywords,
               [](const auto& a, OpCall& r) { r.add(gradient_mode(a, 1)); });
}

FUNCTION(transpose) {
  static const char* const names[] = {"x", "dims"};
  return alias("transpose", names, 1, op_id<Transpose>, args, n, keywords, [](const auto& a, OpCall& r) {
    r.add_counted(a[1] ? list_of(a, 1, "dims") : std::vector<uint32_t>{1, 0});
  });
}

FUNCTION(pickrange) {
  static const char* const names[] = {"x", "s", "e"};
  return alias("pickrange", names, 3, op_id<PickRange>, args, n, keywords,
               [](const auto& a, OpCall& r) { r.words = {a.uint(1, 0), a.uint(2, 0), 0}; });
}

FUNCTION(pick_batch_elem) {
  static const char* const names[] = {"x", "v"};
  return alias("pick_batch_elem", names, 2, op_id<PickBatchElems>, args, n, keywords,
               [](const auto& a, OpCall& r) {
                 r.ids = {a.uint(1, 0)};
                 r.words = {1};
                 r.list = true;
               });
}

// Words: [r, n,] whether the batch is reduced too, number of dimensions, dimensions.
template <class Op, size_t required>
FUNCTION(over_dims) {
  static const char* const names[] = {"x", "d", "b", "n"};
  return alias(Op::meta.name, names, required, op_id<Op>, args, n, keywords, [](const auto& a, OpCall& r) {
    const std::vector<uint32_t> d = list_of(a, 1, "d");
    r.add(uint32_t{a.truth(2, false)});
    r.add_counted(d);
  });
}

FUNCTION(mean_dim) {
  static const char* const names[] = {"x", "d", "b", "n"};
  return alias("mean_dim", names, 3, op_id<MomentDim>, args, n, keywords, [](const auto& a, OpCall& r) {
    const std::vector<uint32_t> d = list_of(a, 1, "d");
    r.words = {1, a.uint(3, 0), a.truth(2, false)};
    r.add_counted(d);
  });
}

FUNCTION(moment_dim) {
  static const char* const names[] = {"x", "d", "r", "b", "n"};
  return alias("moment_dim", names, 4, op_id<MomentDim>, args, n, keywords, [](const auto& a, OpCall& r) {
    const std::vector<uint32_t> d = list_of(a, 1, "d");
    r.words = {a.uint(2, 1), a.uint(4, 0), a.truth(3, false)};
    r.add_counted(d);
  });
}

FUNCTION(sum_batches) {
  static const char* const names[] = {"x"};
  return alias("sum_batches", names, 1, op_id<SumDim>, args, n, keywords,
               [](const auto&, OpCall& r) { r.words = {1, 0}; });
}

FUNCTION(mean_batches) {
  static const char* const names[] = {"x"};
  return alias("mean_batches", names, 1, op_id<MomentDim>, args, n, keywords,
               [](const auto&, OpCall& r) { r.words = {1, 0, 1, 0}; });
}

FUNCTION(moment_batches) {
  static const char* const names[] = {"x", "r"};
  return alias("moment_batches", names, 2, op_id<MomentDim>, args, n, keywords,
               [](const auto& a, OpCall& r) { r.words = {a.uint(1, 1), 0, 1, 0}; });
}

FUNCTION(std_batches) {
  static const char* const names[] = {"x"};
  return alias("std_batches", names, 1, op_id<StdDim>, args, n, keywords,
               [](const auto&, OpCall& r) { r.words = {1, 0}; });
}

FUNCTION(mean_elems) {
  static const char* const names[] = {"x"};
  return alias("mean_elems", names, 1, op_id<MomentDim>, args, n, keywords, [](const auto&, OpCall& r) {
    r.words = {1, 0, 0};
    r.all_dims = true;
  });
}

FUNCTION(moment_elems) {
  static const char* const names[] = {"x", "r"};
  return alias("moment_elems", names, 2, op_id<MomentDim>, args, n, keywords, [](const auto& a, OpCall& r) {
    r.words = {a.uint(1, 1), 0, 0};
    r.all_dims = true;
  });
}

FUNCTION(std_elems) {
  static const char* const names[] = {"x"};
  return alias("std_elems", names, 1, op_id<StdDim>, args, n, keywords, [](const auto&, OpCall& r) {
    r.words = {0};
    r.all_dims = true;
  });
}

FUNCTION(log_softmax) {
  static const char* const names[] = {"x", "restrict"};
  return alias("log_softmax", names, 1, op_id<LogSoftmax>, args, n, keywords, [](const auto& a, OpCall& r) {
    if (!a.has(1)) return;
    r.op = op_id<RestrictedLogSoftmax>;
    r.ids = list_of(a, 1, "restrict");
    r.list = true;
  });
}

FUNCTION(hinge_batch) {
  static const char* const names[] = {"x", "vs", "m"};
  return alias("hinge_batch", names, 2, op_id<Hinge>, args, n, keywords, [](const auto& a, OpCall& r) {
    r.ids = list_of(a, 1, "vs");
    r.list = true;
    r.add(a.number(2, 1.f));
    r.add(static_cast<uint32_t>(r.ids.size()));
  });
}

// Labels: one list for all batch items, or a list of lists, one per item.
std::vector<uint32_t> labels(PyObject* v) {
  const bool lists = PySequence_Check(v) && !PyUnicode_Check(v) && PySequence_Size(v) > 0;
  PyObject* first = lists ? PySequence_GetItem(v, 0) : nullptr;
  const bool nested = first && PySequence_Check(first) && !PyUnicode_Check(first);
  Py_XDECREF(first);
  PyErr_Clear();
  if (!nested) return as_uints(v, "hinge_dim", "v");
  std::vector<uint32_t> all;
  for (Py_ssize_t i = 0; i < PySequence_Size(v); ++i) {
    PyObject* item = PySequence_GetItem(v, i);
    if (!item) throw PythonError();
    try {
      const std::vector<uint32_t> some = as_uints(item, "hinge_dim", "v");
      all.insert(all.end(), some.begin(), some.end());
    } catch (...) {
      Py_DECREF(item);
      throw;
    }
    Py_DECREF(item);
  }
  return all;
}

FUNCTION(hinge_dim) {
  static const char* const names[] = {"x", "v", "d", "m"};
  return alias("hinge_dim", names, 2, op_id<HingeDim>, args, n, keywords, [](const auto& a, OpCall& r) {
    r.ids = labels(a[1]);
    r.list = true;
    r.add(a.uint(2, 0));
    r.add(a.number(3, 1.f));
  });
}

#undef FUNCTION

const ApiFunction alias_functions[] = {
    {"round(x, gradient_mode)", with_mode<Round>},
    {"ceil(x, gradient_mode)", with_mode<Ceil>},
    {"floor(x, gradient_mode)", with_mode<Floor>},
    {"argmax(x, gradient_mode)", with_mode<ArgMax>},
    {"transpose(x, dims=[1, 0])", transpose},
    {"pickrange(x, s, e)", pickrange},
    {"pick_batch_elem(x, v)", pick_batch_elem},
    {"sum_dim(x, d, b=False, n=0)", over_dims<SumDim, 2>},
    {"std_dim(x, d, b, n=0)", over_dims<StdDim, 3>},
    {"mean_dim(x, d, b, n=0)", mean_dim},
    {"moment_dim(x, d, r, b, n=0)", moment_dim},
    {"sum_batches(x)", sum_batches},
    {"mean_batches(x)", mean_batches},
    {"moment_batches(x, r)", moment_batches},
    {"std_batches(x)", std_batches},
    {"mean_elems(x)", mean_elems},
    {"moment_elems(x, r)", moment_elems},
    {"std_elems(x)", std_elems},
    {"log_softmax(x, restrict=None)", log_softmax},
    {"hinge_batch(x, vs, m=1.0)", hinge_batch},
    {"hinge_dim(x, v, d=0, m=1.0)", hinge_dim},
};

}  // namespace

void add_alias_functions(PyObject* module) { add_api_functions(module, alias_functions); }

}  // namespace dyc::py
