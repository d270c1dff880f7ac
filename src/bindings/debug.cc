#include "bindings/debug.h"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <utility>

#include "bindings/call_cost.h"
#include "bindings/compute.h"
#include "bindings/region_walk_stretches.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

pb::object steal(PyObject* object) {
  if (!object) throw pb::error_already_set();
  return pb::reinterpret_steal<pb::object>(object);
}

pb::object sizes_of(const Dim& d) { return steal(dim_tuple(d)); }

// (op, numbers of its arguments, sizes, batch size, whether it shares its argument's memory) of a node.
pb::tuple graph_node(NodeId id) {
  const Graph& g = engine().graph;
  if (id >= g.size()) throw IndexError(text("expected a node below ", g.size(), ", got ", id));
  const Sig& s = g.sig(id);
  const bool alias = g.node(id).flags & Node::view;
  const bool merged = alias && g.node(id).flags & Node::merged, view = alias && !merged;
  // If an equal value was recorded before, that node comes first among the arguments.
  const uint32_t first = merged ? 1 : 0, count = merged ? s.n_args : g.node(id).n_args;
  pb::list arguments;
  for (uint32_t i = 0; i < count; ++i) arguments.append(g.args(id)[first + i]);
  return pb::make_tuple(op_info(s.op).meta->name, arguments, sizes_of(*s.y), s.y->bd, view);
}

// Gradient of the last backward() with respect to a node, or None.
pb::object node_gradient(NodeId id) {
  Engine& e = engine();
  if (id >= e.graph.size()) throw IndexError(text("expected a node below ", e.graph.size(), ", got ", id));
  if (!e.has_gradient(id)) return pb::none();
  const float* g = e.gradient(id);
  return steal(array_of(g, e.graph.dim(id)));
}

// Names of ops -> (seconds forward, launches forward, seconds backward, launches backward).
pb::dict op_times() {
  pb::dict d;
  const std::vector<OpTime>& times = engine().executor.op_times;
  for (OpId i = 0; i < times.size(); ++i) {
    const OpTime& t = times[i];
    if (t.forward_launches + t.backward_launches)
      d[op_info(i).meta->name] =
          pb::make_tuple(t.forward, t.forward_launches, t.backward, t.backward_launches);
  }
  return d;
}

// A method or constant more of a class written in C.
void extend(const pb::object& cls, const pb::str& name, const pb::object& value) {
  if (!PyType_Check(cls.ptr())) throw TypeError("_extend(): expected a class");
  auto* type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  if (PyDict_SetItem(type->tp_dict, name.ptr(), value.ptr()) < 0) throw pb::error_already_set();
  PyType_Modified(type);
}

}  // namespace

void add_debug(pb::module_& m) {
  using namespace pb::literals;
  m.def("_graph_node", &graph_node, "index"_a);
  m.def("_node_gradient", &node_gradient, "index"_a);
  m.def("_op_times", &op_times);
  m.def(
      "_set_profiling",
      [](int level) {
        if (level || this_thread) engine().executor.profiling = level;
      },
      "level"_a);
  m.def(
      "_set_region_cost",
      [](double ns) { call_cost_scale = std::clamp(ns / tuning::kMeasuredRegion, 0.125, 8.); }, "ns"_a);
  m.def("_time_hints", [](bool timed) { hints_are_timed = timed; }, "timed"_a);
  m.def(
      "_own_numbers", [](std::optional<bool> always) { engine().graph.own_numbers(always); },
      "always"_a = pb::none());
  m.def("_memo_memory", [] { return pb::make_tuple(memo_memory.bytes, n_shared_traces()); });
  m.def("_limit_memos", [](size_t bytes) { return std::exchange(memo_memory.most, bytes); }, "bytes"_a);
  m.def("_extend", &extend, "cls"_a, "name"_a, "value"_a);
  m.def(
      "_constructor",
      [](const pb::object& cls, const pb::object& function) { constructor(cls.ptr(), function.ptr()); },
      "cls"_a, "function"_a);
}

}  // namespace dyc::py
