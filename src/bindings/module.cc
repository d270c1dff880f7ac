// The module _core.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/random.h"
#include "base/thread_pool.h"
#include "bindings/compute.h"
#include "bindings/model.h"
#include "model/collection.h"

namespace py = pybind11;

namespace dyc::py {

namespace {

// What --dynet-autobatch and DYNET_COMPAT_SCHEDULER chose; renew_cg(autobatching=...) overrides.
Engine::Options default_options;

uint32_t renew(bool immediate_compute, bool check_validity, const pybind11::object& autobatching) {
  Engine::Options o = default_options;
  o.immediate = immediate_compute;
  o.check_validity = check_validity;
  if (!autobatching.is_none()) o.batching = pybind11::cast<bool>(autobatching);
  engine().renew(o);
  return engine().version();
}

NodeId last_of(const pybind11::list& exprs, const char* op) {
  NodeId last = 0;
  for (NodeId id : as_nodes(exprs.ptr(), op)) last = std::max(last, id);
  return last;
}

pybind11::dict launch_counts(const pybind11::object& expression) {
  NodeId id;
  if (!to_node(expression.ptr(), "launch_counts", &id)) throw pybind11::error_already_set();
  const Planner::Counts c = engine().planner.count(id);
  pybind11::dict d;
  d["nodes"] = c.nodes;
  d["bucket"] = c.bucket;
  d["depth"] = c.depth;
  d["agenda"] = c.agenda;
  d["lower_bound"] = c.lower_bound;
  return d;
}

pybind11::dict timing() {
  Engine& e = engine();
  pybind11::dict d;
  d["plan"] = e.timing.plan;
  d["forward"] = e.timing.forward;
  d["backward"] = e.timing.backward;
  d["planned_nodes"] = e.timing.planned_nodes;
  d["launches"] = e.executor.counters.launches;
  d["nodes"] = e.executor.counters.nodes;
  d["operand_bytes"] = e.executor.counters.operand_bytes;
  d["gathered_bytes"] = e.executor.counters.gathered_bytes;
  d["value_arena_bytes"] = e.graph.values_arena.top() * 4;
  return d;
}

// The launches planned so far in this graph, in running order.
pybind11::list plan_table() {
  Engine& e = engine();
  pybind11::list rows;
  for (const Launch& l : e.planner.plan.launches) {
    pybind11::dict d;
    d["op"] = op_row(l.op).meta->name;
    d["class"] = l.cls;
    d["members"] = l.count;
    d["floats"] = l.total;
    pybind11::list nodes;
    for (uint32_t i = 0; i < l.count; ++i) nodes.append(e.planner.plan.members[l.members + i]);
    d["nodes"] = nodes;
    const Node& n = e.graph.node(e.planner.plan.members[l.members]);
    d["site"] = n.site;
    d["round"] = n.round;
    d["phase"] = e.graph.sites()[n.site].phase;
    rows.append(d);
  }
  return rows;
}

void reset_timing() {
  engine().timing = {};
  engine().executor.counters = {};
}

void add_graph_functions(pybind11::module_& m) {
  using namespace pybind11::literals;
  m.def("renew_cg", &renew, "immediate_compute"_a = false, "check_validity"_a = false, "autobatching"_a = pybind11::none());
  m.def("cg_version", [] { return engine().version(); });
  m.def("cg_size", [] { return engine().graph.size(); });
  m.def("_expression", [](NodeId id) {
    if (id >= engine().graph.size()) throw IndexError(text("expected a node below ", engine().graph.size(), ", got ", id));
    return pybind11::reinterpret_steal<pybind11::object>(make_expression(id));
  });
  m.def("set_default_weight_decay", [](float lambda) { Collection::set_default_weight_decay(lambda); });
  m.def("cg_checkpoint", [] { engine().checkpoint(); });
  m.def("cg_revert", [] { engine().revert(); });
  m.def("reset_random_seed", [](uint32_t seed) { random_engine().seed(seed); }, "seed"_a);
  m.def("_forward", [](const pybind11::list& exprs, bool recalculate) { compute_forward(last_of(exprs, "forward"), recalculate); });
  m.def("launch_counts", &launch_counts, "expression"_a,
        "Launches that computing the expression would take under each scheduler, and the lower bound.");
  m.def("timing", &timing, "Seconds and counts of planning, forward and backward since reset_timing().");
  m.def("reset_timing", &reset_timing);
  m.def("plan_table", &plan_table, "The launches planned so far in this graph, in running order.");
  m.def("set_scheduler", [](const std::string& name) {
    default_options.scheduler = scheduler_from_name(name);
    engine().options.scheduler = default_options.scheduler;
  });
  m.def("set_batching", [](bool on) {
    default_options.batching = on;
    engine().options.batching = on;
  });
  m.def("set_threads", [](int n) { set_threads(n); });
  m.def("threads", [] { return thread_pool().threads(); });
  m.def("isa", [] { return kernels().isa; });
}

void register_exceptions() {
  pybind11::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const pybind11::error_already_set&) {
      throw;
    } catch (const pybind11::builtin_exception&) {
      throw;
    } catch (...) {
      set_error();
    }
  });
}

}  // namespace
}  // namespace dyc::py

PYBIND11_MODULE(_core, m) {
  m.doc() = "Recorder, planner and kernels of dynet_compat.";
  dyc::py::register_exceptions();
  dyc::py::add_expression_types(m.ptr());
  dyc::py::add_op_functions(m.ptr());
  dyc::py::add_input_functions(m.ptr());
  dyc::py::add_parameter_types(m.ptr());
  dyc::py::add_graph_functions(m);
  dyc::py::add_model(m);
  dyc::py::add_builders(m);
}
