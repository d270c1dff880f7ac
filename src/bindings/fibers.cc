#include "bindings/fibers.h"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/instance.h"
#include "bindings/call_site.h"
#include "bindings/compute.h"

namespace dyc::py {

using Object = pybind11::object;

// ---------------------------------------------------------------- pybind11's frames

using Frame = pybind11::detail::loader_life_support*;

// pybind11 keeps a list of the active calls into this module for each thread, and ends the process if they do
// not end in reverse order. Those of different instances do not, so each instance has a list of its own. The
// head of the list is private, but explicit instantiations may name private members.
Frame& current_frame();
template <Frame& (*head)()>
struct FrameAccess {
  friend Frame& current_frame() { return head(); }
};
template struct FrameAccess<&pybind11::detail::loader_life_support::tls_current_frame>;

namespace {

// ---------------------------------------------------------------- handing over

// An instance that waits for nodes.
struct Waiting {
  Object task, fiber;
  std::vector<NodeId> nodes;
  bool reads = false;  // their values, on the host
  Object thrown = {};  // what to raise in it when it continues
};

// How instances take turns. pause(task) leaves a fiber that is a thread, resume(task) returns to it. For
// greenlets: the scheduler's.
struct FiberSwitch {
  Object pause, resume, hub, current_greenlet;
};

// A batch_map that is under way, with those inside it.
struct Batch {
  explicit Batch(Engine& e) : engine(e), frame(current_frame()) {}

  Engine& engine;
  const Frame frame;  // of its caller
  FiberSwitch fibers;
  Object task;           // whose turn it is
  bool closing = false;  // it is being unwound: must not be suspended
  bool waits = false;    // suspended by waiting, and not because it ended or for a batch_map inside
  Object thrown;         // to be raised in it
  std::vector<Waiting> waiting, resumed;
  size_t next = 0;  // of `resumed`: those before have continued
};

constinit thread_local Batch* batch = nullptr;  // under way in this thread
constinit thread_local bool helper = false;  // this thread was made for an instance, the engine is lent to it

constexpr const char* kCapsule = "dynet_compat.batch";

PyObject* checked(PyObject* result) {
  if (!result) throw PythonError();
  return result;
}

PyObject* switch_name() {
  static PyObject* const name = PyUnicode_InternFromString("switch");
  return name;
}

Object owned(PyObject* result) { return pybind11::reinterpret_steal<Object>(checked(result)); }

// Calls `others`, which returns when it is this instance's turn again.
template <class F>
PyObject* suspended(F&& others) {
  Graph& g = engine().graph;
  const uint32_t mine = g.instances.current();
  const Frame frame = std::exchange(current_frame(), helper ? nullptr : batch->frame);
  g.instances.enter(Instances::kOutside, g.size());
  PyObject* result = others();
  g.instances.enter(mine, g.size());
  current_frame() = frame;
  return result;
}

// The instance waits for these. Returns when they are computed.
void wait_for(std::vector<NodeId> nodes, bool reads = false) {
  Batch& b = *batch;
  if (b.closing) return;
  Waiting w{b.task, {}, std::move(nodes), reads};
  if (b.fibers.hub) w.fiber = owned(PyObject_CallNoArgs(b.fibers.current_greenlet.ptr()));
  const Object task = b.task;
  b.waiting.push_back(std::move(w));
  b.waits = true;
  PyObject* result = suspended([&] {
    return b.fibers.hub ? PyObject_CallNoArgs(b.fibers.hub.ptr())
                        : PyObject_CallOneArg(b.fibers.pause.ptr(), task.ptr());
  });
  if (!result) {  // a signal handler's exception; it may have come too early
    b.waits = false;
    std::erase_if(b.waiting, [&](const Waiting& each) { return each.task.is(task); });
    throw PythonError();
  }
  Py_DECREF(result);
  if (!b.thrown) [[likely]]
    return;
  const Object error = std::exchange(b.thrown, {});
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw PythonError();
}

// Lets an instance continue, until it waits or ends.
void let_continue(Waiting w, bool closing = false) {
  Batch& b = *batch;
  b.closing = closing;
  b.task = w.task;
  b.thrown = std::move(w.thrown);
  b.waits = false;
  if (b.fibers.hub) owned(PyObject_CallMethodNoArgs(w.fiber.ptr(), switch_name()));
  else owned(PyObject_CallOneArg(b.fibers.resume.ptr(), w.task.ptr()));
}

void compute_nodes(std::vector<NodeId> nodes) {
  const ScriptCall call("batch_map");
  Computing c;
  c.engine().compute(std::move(nodes));
}

// Computes the nodes of each instance by themselves, so that an error is raised only in the instances that
// wait for what cannot be computed.
void compute_each(std::vector<Waiting>& all) {
  for (Waiting& w : all) try {
      compute_nodes(w.nodes);
    } catch (...) {
      set_error();
      w.thrown = pybind11::error_already_set().value();
    }
}

void compute_all(std::vector<Waiting>& all) {
  std::vector<NodeId> nodes;
  for (const Waiting& w : all) nodes.insert(nodes.end(), w.nodes.begin(), w.nodes.end());
  try {
    compute_nodes(std::move(nodes));
  } catch (...) {
    return compute_each(all);
  }
  for (const Waiting& w : all)
    for (const NodeId id : w.nodes)
      if (w.reads) batch->engine.executor.expect_read(id);
}

}  // namespace

void wait_for_value(NodeId id, bool reads) {
  const Graph& g = engine().graph;
  if (!g.is_parameter(g.base_of(id))) wait_for({id}, reads);
}

std::vector<NodeId> wait_for_all(NodeId id) {
  Engine& e = engine();
  std::vector<NodeId> ids;
  e.graph.instances.for_each_range(e.graph.instances.current(), id + 1, [&](NodeId begin, NodeId end) {
    for (NodeId n = begin; n < end; ++n)
      if (!e.graph.is_parameter(e.graph.base_of(n)) && !e.has_value(n)) ids.push_back(n);
  });
  if (!ids.empty()) wait_for(ids);
  return ids;
}

void check_change(const char* call, NodeId id) {
  engine().executor.refuse_reentry();
  engine().executor.complete_gradients();
  if (!inside_instance) [[likely]]
    return;
  Graph& g = engine().graph;
  if (id != kNone && g.instances.recorder(id) != g.instances.current())
    refuse_inside_instance(call, "other instances may read this expression; make it inside the function");
  if (!g.draws().empty())
    refuse_inside_instance(call, "it would draw all random numbers again; record the expressions again");
}

namespace {

// ---------------------------------------------------------------- for fibers.py

// _batch_begin(pause, resume, hub, getcurrent): a batch_map begins; `hub` is the method `switch` of the
// greenlet that calls, or None where fibers are threads. For _batch_run().
PyObject* begin(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&]() -> PyObject* {
    if (n != 4 || batch)
      throw RuntimeError("_batch_begin(): expected 4 arguments, and no batch_map under way");
    auto b = std::make_unique<Batch>(engine());
    const auto given = [&](int i) { return pybind11::reinterpret_borrow<Object>(args[i]); };
    b->fibers.pause = given(0);
    b->fibers.resume = given(1);
    if (args[2] != Py_None) b->fibers.hub = given(2);
    b->fibers.current_greenlet = given(3);
    PyObject* capsule = checked(PyCapsule_New(b.get(), kCapsule, nullptr));
    batch = b.release();
    return capsule;
  });
}

bool finish(bool go_on) {
  const bool drawn = batch && engine().graph.instances.finish(go_on);
  const std::unique_ptr<Batch> last(std::exchange(batch, nullptr));
  return drawn;
}

// _batch_end(): it is over, if one has begun.
PyObject* end(PyObject*, PyObject*) {
  finish(true);
  Py_RETURN_NONE;
}

// _batch_end_undrawn(): the same for one whose results are kept only if it drew no random numbers. Those of
// the process stay as they are. Returns whether it drew any.
PyObject* end_undrawn(PyObject*, PyObject*) { return PyBool_FromLong(finish(false)); }

// _batch_add(n, unseen): the numbers of n new instances inside the current one. `unseen`: later ones of the
// current one have the same random numbers as without these.
PyObject* add(PyObject*, PyObject* const* args, Py_ssize_t count) {
  const Py_ssize_t n = count == 2 ? PyNumber_AsSsize_t(args[0], PyExc_OverflowError) : 0;
  const int unseen = count == 2 ? PyObject_IsTrue(args[1]) : 0;
  if (PyErr_Occurred()) return nullptr;
  return guarded([&]() -> PyObject* {
    Instances& instances = engine().graph.instances;
    PyObject* numbers = PyList_New(n);
    if (!numbers) return nullptr;
    const uint32_t seed = unseen ? 0 : instances.next_seed();
    for (Py_ssize_t i = 0; i < n; ++i)
      PyList_SET_ITEM(numbers, i, PyLong_FromUnsignedLong(instances.add(seed, static_cast<uint32_t>(i))));
    return numbers;
  });
}

// _batch_mark(): how many instances have drawn random numbers, and a place in the graph for _batch_join().
PyObject* mark(PyObject*, PyObject*) {
  return Py_BuildValue("Kn", static_cast<unsigned long long>(Stream::begun()),
                       static_cast<Py_ssize_t>(engine().graph.instances.turns()));
}

// _batch_join(first, n, place): what n instances inside the current one have recorded since is its own.
PyObject* join(PyObject*, PyObject* args) {
  unsigned first = 0, n = 0;
  Py_ssize_t since = 0;
  if (!PyArg_ParseTuple(args, "IIn", &first, &n, &since)) return nullptr;
  engine().graph.instances.join(first, n, static_cast<size_t>(since));
  Py_RETURN_NONE;
}

// _batch_run(batch, number, function, argument): what function(argument) returns in the instance. In a thread
// without an engine that of the caller of batch_map is lent to it.
PyObject* run(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (n != 4) {
    PyErr_SetString(PyExc_TypeError, "_batch_run(): expected 4 arguments");
    return nullptr;
  }
  auto* b = static_cast<Batch*>(PyCapsule_GetPointer(args[0], kCapsule));
  const uint32_t number = b ? static_cast<uint32_t>(PyLong_AsUnsignedLong(args[1])) : 0;
  if (PyErr_Occurred()) return nullptr;
  const bool lent = !this_thread;
  if (lent) {
    this_thread = &b->engine;
    batch = b;
    helper = true;
  }
  Graph& g = b->engine.graph;
  g.instances.enter(number, g.size());
  PyObject* result = PyObject_CallOneArg(args[2], args[3]);
  g.instances.enter(Instances::kOutside, g.size());
  if (lent) {
    this_thread = nullptr;
    batch = nullptr;
    helper = false;
  }
  return result;
}

// _batch_suspend(others): others(), outside of the instance that calls.
PyObject* suspend(PyObject*, PyObject* others) {
  return suspended([&] { return PyObject_CallNoArgs(others); });
}

// _batch_turn(task, closing): it is this instance's turn, and whether it may be suspended.
PyObject* turn(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (n != 2 || !batch) {
    PyErr_SetString(PyExc_RuntimeError, "_batch_turn(): expected 2 arguments, and a batch_map under way");
    return nullptr;
  }
  batch->task = pybind11::reinterpret_borrow<Object>(args[0]);
  batch->closing = PyObject_IsTrue(args[1]) == 1;
  Py_RETURN_NONE;
}

// _batch_next(): lets the instances that wait continue, in their order, and computes for them whenever all
// wait. Returns the first that ended, or that has begun a batch_map inside; None: no instance waits.
PyObject* next(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    Batch& b = *batch;
    while (true) {
      if (b.next == b.resumed.size()) {
        b.resumed.clear();
        b.next = 0;
        if (b.waiting.empty()) Py_RETURN_NONE;
        compute_all(b.waiting);
        std::swap(b.resumed, b.waiting);
      }
      let_continue(std::move(b.resumed[b.next++]));
      if (!b.waits) return Object(b.task).release().ptr();
    }
  });
}

// _batch_waiting(): how many wait.
PyObject* waiting(PyObject*, PyObject*) {
  return PyLong_FromSize_t(batch->waiting.size() + batch->resumed.size() - batch->next);
}

// _batch_throw(task, error): raises the error where this instance waits, which then is not suspended again.
// False if it does not wait. (A thread that is not in the list does: a signal handler's exception kept the
// scheduler from letting it continue.)
PyObject* throw_error(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&]() -> PyObject* {
    if (n != 2) throw RuntimeError("_batch_throw(): expected 2 arguments");
    Batch& b = *batch;
    const auto task = pybind11::reinterpret_borrow<Object>(args[0]);
    const auto error = pybind11::reinterpret_borrow<Object>(args[1]);
    const auto is_it = [&](const Waiting& w) { return w.task.is(task); };
    for (std::vector<Waiting>* list : {&b.waiting, &b.resumed}) {
      const auto first = list->begin() + static_cast<ptrdiff_t>(list == &b.resumed ? b.next : 0);
      const auto found = std::find_if(first, list->end(), is_it);
      if (found == list->end()) continue;
      Waiting w = std::move(*found);
      list->erase(found);
      w.thrown = error;
      let_continue(std::move(w), true);
      Py_RETURN_TRUE;
    }
    if (b.fibers.hub) Py_RETURN_FALSE;
    let_continue({task, {}, {}, false, error}, true);
    Py_RETURN_TRUE;
  });
}

// _batch_task(): the instance that runs in this thread, or None outside.
PyObject* current_task(PyObject*, PyObject*) {
  PyObject* task = inside_instance && batch->task ? batch->task.ptr() : Py_None;
  Py_INCREF(task);
  return task;
}

// _draw_seed(): 32 random bits of the instance, or of the process outside.
PyObject* draw_seed(PyObject*, PyObject*) { return PyLong_FromUnsignedLong(random_engine().draw()); }

#define FAST(f) reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(f)), METH_FASTCALL
PyMethodDef functions[] = {{"_batch_begin", FAST(begin), nullptr},
                           {"_batch_end", end, METH_NOARGS, nullptr},
                           {"_batch_end_undrawn", end_undrawn, METH_NOARGS, nullptr},
                           {"_batch_add", FAST(add), nullptr},
                           {"_batch_mark", mark, METH_NOARGS, nullptr},
                           {"_batch_join", join, METH_VARARGS, nullptr},
                           {"_batch_run", FAST(run), nullptr},
                           {"_batch_suspend", suspend, METH_O, nullptr},
                           {"_batch_turn", FAST(turn), nullptr},
                           {"_batch_next", next, METH_NOARGS, nullptr},
                           {"_batch_waiting", waiting, METH_NOARGS, nullptr},
                           {"_batch_throw", FAST(throw_error), nullptr},
                           {"_batch_task", current_task, METH_NOARGS, nullptr},
                           {"_draw_seed", draw_seed, METH_NOARGS, nullptr},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_fibers(PyObject* module) {
  if (PyModule_AddFunctions(module, functions) < 0) throw PythonError();
}

}  // namespace dyc::py
