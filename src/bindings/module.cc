// The module _core.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/instance.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "bindings/arrays.h"
#include "bindings/background.h"
#include "bindings/background_payoff.h"
#include "bindings/call_site.h"
#include "bindings/collection_caster.h"
#include "bindings/compute.h"
#include "bindings/debug.h"
#include "bindings/documentation.h"
#include "bindings/fibers.h"
#include "bindings/op_lines.h"
#include "bindings/python_compat.h"
#include "bindings/region.h"
#include "bindings/signatures.h"
#include "bindings/tuning.h"
#include "cpu/kernel_table.h"
#include "exec/device.h"
#include "model/collection.h"

namespace py = pybind11;

namespace dyc::py {

namespace {

using Clock = std::chrono::steady_clock;

// The ComputationGraph that renew_cg() returns; made in Python.
PyObject* graph_object = nullptr;

// Called at the start of renew_cg(), from this time on; null: nothing.
PyObject* renew_hook = nullptr;
Clock::time_point renew_hook_rests{};

// The hook's own line is none of the script's.
void leave_hook_out_of_traceback() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (traceback && PyTraceBack_Check(traceback)) {
    PyObject* next = reinterpret_cast<PyObject*>(reinterpret_cast<PyTracebackObject*>(traceback)->tb_next);
    Py_XINCREF(next);
    Py_DECREF(traceback);
    traceback = next;
  }
  PyErr_Restore(type, value, traceback);
}

// A float that the hook returns is the seconds for which it rests. False: an error is set, one that a handler
// of a signal raised meanwhile.
bool call_renew_hook() {
  if (renew_hook_rests > Clock::now()) return true;
  // A tracer would see it, it needs levels of recursion, and modules that end cannot be rewritten.
  if (is_traced() || remaining_depth() < tuning::kHookDepth || is_finalizing()) return true;
  PyObject* hook = renew_hook;
  Py_INCREF(hook);
  PyObject* result = PyObject_CallNoArgs(hook);
  if (result && PyFloat_Check(result) && hook == renew_hook) {
    const std::chrono::duration<double> rest(PyFloat_AS_DOUBLE(result));
    renew_hook_rests = Clock::now() + std::chrono::duration_cast<Clock::duration>(rest);
  }
  Py_DECREF(hook);
  Py_XDECREF(result);
  if (!result) leave_hook_out_of_traceback();
  return result != nullptr;
}

PyObject* on_renew(PyObject*, PyObject* hook) {
  Py_INCREF(hook);
  PyObject* old = renew_hook;
  renew_hook = hook == Py_None ? nullptr : hook;
  renew_hook_rests = {};
  Py_XDECREF(old);
  Py_RETURN_NONE;
}

// renew_cg(immediate_compute=False, check_validity=False, autobatching=None), without pybind11: one
// call per example is a cost that small models feel.
PyObject* renew(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  static const char* const known[] = {"immediate_compute", "check_validity", "autobatching"};
  PyObject* value[3] = {};
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t i = 0; i < n + named; ++i) {
    Py_ssize_t at = i;
    if (i >= n) {
      at = 0;
      while (at < 3 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i - n), known[at]) != 0) ++at;
    }
    if (at >= 3) {
      PyErr_SetString(PyExc_TypeError,
                      "renew_cg(): expected immediate_compute, check_validity, autobatching and no more");
      return nullptr;
    }
    value[at] = args[i];
  }
  Engine::Options o = default_options();
  if (value[0]) o.immediate = PyObject_IsTrue(value[0]);
  if (value[1]) o.check_validity = PyObject_IsTrue(value[1]);
  if (value[2] && value[2] != Py_None) o.batching = PyObject_IsTrue(value[2]);
  if (n + named > 0 && PyErr_Occurred()) return nullptr;
  if (renew_hook && !call_renew_hook()) [[unlikely]]
    return nullptr;
  return guarded([&] {
    refuse_inside_instance("renew_cg()", "call it before batch_map()");
    const ScriptCall call("renew_cg");
    engine_to_renew().renew(o);
    PyObject* graph = graph_object ? graph_object : Py_None;
    Py_INCREF(graph);
    return graph;
  });
}

constexpr const char* renew_doc =
    R"doc(renew_cg(immediate_compute=False, check_validity=False, autobatching=None)
--

Start an empty graph; expressions of the one before cannot be used any more.

Args:
    immediate_compute: compute each expression when it is made, so that errors show where they arise.
    check_validity: with immediate_compute, stop at the first expression that contains NaN or infinity.
    autobatching: whether this graph is batched; by default as configured. Results are the same.
Returns:
    The graph.
Source: DyNet 2.1 `renew_cg`.
Example:
    >>> graph = dy.renew_cg()
    >>> (dy.scalarInput(2) * 3).value()
    6.0
)doc";

PyMethodDef graph_methods[] = {
    {"renew_cg", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(renew)),
     METH_FASTCALL | METH_KEYWORDS, renew_doc},
    {"_on_renew", on_renew, METH_O,
     "_on_renew(hook)\n--\n\nCalls hook() at the start of renew_cg(), but not for the seconds that it has "
     "returned; "
     "None: no more."},
    {nullptr, nullptr, 0, nullptr}};

NodeId last_of(const pybind11::list& exprs, const char* op) {
  NodeId last = 0;
  for (NodeId id : as_nodes(exprs.ptr(), op)) last = std::max(last, id);
  return last;
}

// For tests: which of so many steps would be lent, if they took so many nanoseconds at home and lent.
std::vector<bool> lending_of(int steps, const std::vector<int64_t>& home, const std::vector<int64_t>& lent) {
  BackgroundPayoff payoff;
  std::vector<bool> lends;
  int64_t now = 0;
  for (int i = 0; i < steps; ++i) {
    if (i > 0) now += (lends.back() ? lent : home)[static_cast<size_t>(i) % home.size()];
    lends.push_back(payoff.lends(1000, now));
  }
  return lends;
}

// For tests: which of these loops would wake the sleeping threads. Each has a pause before it in nanoseconds,
// chunks of 10 us, and whether threads that are woken for it come before it ends.
std::vector<bool> waking_of(const std::vector<std::tuple<int64_t, size_t, bool>>& loops) {
  SharingPayoff payoff;
  std::vector<bool> wakes;
  SharingPayoff::Clock::time_point now{};
  for (const auto& [pause, chunks, come] : loops) {
    now += std::chrono::nanoseconds(pause);
    const auto end = now + chunks * std::chrono::microseconds(10);
    wakes.push_back(payoff.pays(chunks, true, now));
    if (!wakes.back()) {
      payoff.count(chunks, now, end);
    } else {
      payoff.wake();
      payoff.judge(come, {}, {}, end);
    }
    now = end;
  }
  return wakes;
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
  wait_for_update(false);
  pybind11::dict d;
  d["plan"] = e.timing.plan;
  d["forward"] = e.timing.forward;
  d["backward"] = e.timing.backward;
  d["planned_nodes"] = e.timing.planned_nodes;
  d["copied_plans"] = e.planner.copied_plans();
  d["flushes"] = e.timing.flushes;
  d["recorded_nodes"] = e.timing.recorded_nodes + e.graph.size();
  d["region_nodes"] = e.timing.region_nodes;
  d["builder_nodes"] = e.timing.builder_nodes;
  d["launches"] = e.executor.counters.launches;
  d["nodes"] = e.executor.counters.nodes;
  d["operand_bytes"] = e.executor.counters.operand_bytes;
  d["gathered_bytes"] = e.executor.counters.gathered_bytes;
  d["value_arena_bytes"] = e.graph.values_arena.top() * 4;
  if (const cuda::Backend::Counters* c = device_counters()) {
    d["device_launches"] = c->launches;
    d["device_graph_launches"] = c->graph_launches;
    d["device_persistent_products"] = c->persistent_products;
    d["device_sliced_steps"] = c->sliced_steps;
    d["device_links"] = c->links;
    d["device_followers"] = c->followers;
    d["device_grid_syncs"] = c->grid_syncs;
    d["device_waits_for_all"] = c->waits_for_all;
    d["device_uploads"] = c->uploads;
    d["device_downloads"] = c->downloads;
    d["device_copies"] = c->copies;
    d["device_uploaded_bytes"] = c->uploaded_bytes;
    d["device_downloaded_bytes"] = c->downloaded_bytes;
    d["device_launch_seconds"] = c->launch_seconds;
    d["device_copy_seconds"] = c->copy_seconds;
    for (int i = 0; i < cuda::kMatmulVariants; ++i)
      d[(std::string(cuda::kMatmulVariantNames[i]) + "_products").c_str()] = c->products[i];
  }
  return d;
}

// The launches planned so far in this graph, in running order.
pybind11::list plan_table() {
  Engine& e = engine();
  pybind11::list rows;
  for (const Launch& l : e.planner.plan.launches) {
    pybind11::dict d;
    d["op"] = op_info(l.op).meta->name;
    d["class"] = l.batch_key;
    d["members"] = l.count;
    d["floats"] = l.total;
    pybind11::list nodes;
    for (uint32_t i = 0; i < l.count; ++i) nodes.append(e.planner.plan.nodes[l.nodes + i]);
    d["nodes"] = nodes;
    const Node& n = e.graph.node(e.planner.plan.nodes[l.nodes]);
    d["site"] = n.site;
    d["round"] = n.round;
    d["phase"] = e.graph.sites().phase(n.site);
    rows.append(d);
  }
  return rows;
}

// A forked process cannot ask the device for parameters.
void choose_device(const std::string& name) {
  use_device(name);
  static bool watched = false;
  if (watched || name == "cpu") return;
  const auto before = pybind11::cpp_function([] {
    wait_for_update(false);  // Python drops errors of hooks
    wait_for_backward();
    before_fork();
  });
  const auto in_parent = pybind11::cpp_function([] { after_fork(false); });
  const auto in_child = pybind11::cpp_function([] { after_fork(true); });
  pybind11::module_::import("os").attr("register_at_fork")(pybind11::arg("before") = before,
                                                           pybind11::arg("after_in_parent") = in_parent,
                                                           pybind11::arg("after_in_child") = in_child);
  watched = true;
}

void reset_timing() {
  wait_for_update(false);
  engine().timing = {};
  engine().executor.counters = {};
  reset_device_counters();
}

void add_graph_functions(pybind11::module_& m) {
  using namespace pybind11::literals;
  if (PyModule_AddFunctions(m.ptr(), graph_methods) < 0) throw pybind11::error_already_set();
  m.def("cg_version", [] { return engine().graph.renewals(); });
  m.def("cg_size", [] { return engine().graph.size(); });
  m.def("_set_graph",
        [](const pybind11::object& graph) { graph_object = pybind11::object(graph).release().ptr(); });
  m.def("_expression", [](NodeId id) {
    if (id >= engine().graph.size())
      throw IndexError(text("expected a node below ", engine().graph.size(), ", got ", id));
    return pybind11::reinterpret_steal<pybind11::object>(make_expression(id));
  });
  m.def("set_default_weight_decay", [](float lambda) { Collection::set_default_weight_decay(lambda); });
  m.def("cg_checkpoint", [] {
    refuse_inside_instance("cg_checkpoint()", "call it before batch_map(), and cg_revert() afterwards");
    const ScriptCall call("cg_checkpoint");
    engine().checkpoint();
  });
  m.def("cg_revert", [] {
    refuse_inside_instance("cg_revert()", "it would take back what other instances have recorded");
    engine().revert();
  });
  m.def("reset_random_seed", [](uint32_t seed) { random_engine().seed(seed); }, "seed"_a);
  m.def(
      "choose",
      [](const std::vector<float>& probabilities) {
        if (probabilities.empty()) throw ValueError("choose(): expected at least one probability, got none");
        return random_engine().choose(probabilities.data(), probabilities.size());
      },
      "probabilities"_a, "An index drawn from a distribution.");
  m.def("_forward", [](const pybind11::list& exprs, bool recalculate, bool reads) {
    compute_forward(last_of(exprs, "forward"), recalculate);
    if (!reads) return;
    for (const NodeId id : as_nodes(exprs.ptr(), "forward")) engine().executor.expect_read(id);
  });
  m.def("launch_counts", &launch_counts, "expression"_a,
        "Launches that computing the expression would take under each scheduler, and the lower bound.");
  m.def("timing", &timing, "Seconds and counts of planning, forward and backward since reset_timing().");
  m.def("reset_timing", &reset_timing);
  m.def("plan_table", &plan_table, "The launches planned so far in this graph, in running order.");
  m.def("set_scheduler", [](const std::string& name) {
    default_options().scheduler = scheduler_from_name(name);
    if (this_thread || take_back_graph()) this_thread->options.scheduler = default_options().scheduler;
  });
  m.def("set_batching", [](bool on) {
    default_options().batching = on;
    if (this_thread || take_back_graph()) this_thread->options.batching = on;
  });
  m.def("share_parameters", [](bool on) { share_new_storages(on); });
  m.def("set_threads", [](int n) { set_threads(n); });
  // Registered first, so called last: shows an error of the last update.
  pybind11::module_::import("atexit").attr("register")(pybind11::cpp_function(&end_background));
  m.def("_lend_always", &lend_always, "least"_a);
  m.def("_is_lent", &is_lent);
  m.def("_lending", &lending_of, "steps"_a, "home"_a, "lent"_a);
  m.def("_waking", &waking_of, "loops"_a);
  m.def("threads", [] { return thread_pool().threads(); });
  m.def("_use_device", &choose_device, "name"_a, "Computes on cpu, emulation or cuda:N from now on.");
  m.def("_set_loss_share", [](float share) { loss_share = share; }, "share"_a);
  m.def("_skip_backward", [](bool skip) { skips_backward = skip; }, "skip"_a);
  m.def("_forward_skipped", &forward_skipped);
  m.def("_measure_device", &measure_device, "on"_a, "Times launches and copies of the device; see timing().");
  m.def("isa", [] { return kernels().isa; });
}

// Pickle protocols 0 and 1, and object.__reduce__(), make an object of pybind11's common base, which would
// end the process. The base has its metaclass from pybind11, where other modules may use it.
ternaryfunc make_pybind_object;
PyObject* make_unless_base(PyObject* type, PyObject* args, PyObject* kwargs) {
  if (type != pybind11::detail::get_internals().instance_base) return make_pybind_object(type, args, kwargs);
  return PyErr_Format(PyExc_TypeError, "cannot pickle objects of classes derived from %s, nor make one of it",
                      reinterpret_cast<PyTypeObject*>(type)->tp_name);
}

// What protocols from 2 on would hold is an object without its state.
void refuse_pickles(const pybind11::module_& m) {
  PyTypeObject* meta = pybind11::detail::get_internals().default_metaclass;
  if (meta->tp_call != make_unless_base) make_pybind_object = std::exchange(meta->tp_call, make_unless_base);
  const auto refuse = [](const pybind11::object& self) {
    throw TypeError(text("cannot pickle '", Py_TYPE(self.ptr())->tp_name, "' object"));
  };
  for (const auto& [name, value] : pybind11::dict(m.attr("__dict__"))) {
    if (!PyType_IsSubtype(Py_TYPE(value.ptr()), meta)) continue;
    const auto type = pybind11::reinterpret_borrow<pybind11::object>(value);
    type.attr("__reduce__") =
        pybind11::cpp_function(refuse, pybind11::name("__reduce__"), pybind11::is_method(type));
  }
}

// The names of the API: all that begin with a letter, but for those that only the package calls, and two that
// it wraps.
void list_public_names(const pybind11::module_& m) {
  static constexpr std::string_view internal =
      " cg_size choose doc flip_gradient isa launch_counts op_table plan_table poisson_loss record "
      "reset_timing set_batching set_default_weight_decay set_scheduler set_threads share_parameters "
      "threads timing ";
  pybind11::list names;
  for (const auto& [name, value] : pybind11::dict(m.attr("__dict__")))
    if (const auto word = name.cast<std::string>();
        word[0] != '_' && internal.find(' ' + word + ' ') == internal.npos)
      names.append(name);
  m.attr("__all__") = names;
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
  dyc::py::find_arrays();
  dyc::py::register_exceptions();
  dyc::py::add_expression_types(m.ptr());
  dyc::py::add_op_functions(m.ptr());
  dyc::py::add_alias_functions(m.ptr());
  dyc::py::add_input_functions(m.ptr());
  dyc::py::add_parameter_types(m.ptr());
  dyc::py::add_regions(m.ptr());
  dyc::py::add_graph_functions(m);
  dyc::py::add_model(m);
  dyc::py::add_builders(m);
  dyc::py::add_debug(m);
  dyc::py::add_profile(m);
  dyc::py::add_plan_view(m);
  dyc::py::add_op_lines(m);
  dyc::py::add_files(m);
  dyc::py::add_copies(m);
  dyc::py::add_tensor_functions(m);
  dyc::py::add_devices(m);
  dyc::py::add_exchange(m);
  dyc::py::add_user_ops(m);
  dyc::py::add_fibers(m.ptr());
  dyc::py::add_argmax(m.ptr());
  dyc::py::refuse_pickles(m);
  dyc::py::sign_pybind_classes(m.ptr());
  dyc::py::guard_pybind_base();
  dyc::py::attach_documentation(m.ptr());
  dyc::py::list_public_names(m);
}
