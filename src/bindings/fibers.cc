#include "bindings/fibers.h"

#include <pybind11/pybind11.h>

#include <utility>

#include "base/instance.h"
#include "bindings/compute.h"

namespace dyc::py {

// ---------------------------------------------------------------- pybind11's frames

using Frame = pybind11::detail::loader_life_support*;

// pybind11 keeps a list of the calls into this module that are under way in a thread, and ends the process
// when they do not end in reverse order. Calls of different instances do not, so each has a list of its own.
// The head of the list is private; naming it in an explicit instantiation is the way in that the language has.
Frame& current_frame();
template <Frame& (*head)()>
struct FrameAccess {
  friend Frame& current_frame() { return head(); }
};
template struct FrameAccess<&pybind11::detail::loader_life_support::tls_current_frame>;

namespace {

// ---------------------------------------------------------------- handing over

// Of the batch_map under way in this thread.
constinit thread_local PyObject* scheduler_wait = nullptr;  // its method; owned while under way
constinit thread_local bool helper = false;  // this thread was made for one instance, has the engine of another
thread_local Frame outer_frame = nullptr;

constexpr const char* kCapsule = "dynet_compat.engine";

// Calls `others`, which returns when it is this instance's turn again.
template <class F>
PyObject* suspended(F&& others) {
  Graph& g = engine().graph;
  const uint32_t mine = g.instances.current();
  const Frame frame = std::exchange(current_frame(), helper ? nullptr : outer_frame);
  g.instances.enter(Instances::kOutside, g.size());
  PyObject* result = others();
  g.instances.enter(mine, g.size());
  current_frame() = frame;
  return result;
}

// Takes the reference.
void wait_for(PyObject* target) {
  if (!target) throw PythonError();
  PyObject* result = suspended([&] { return PyObject_CallOneArg(scheduler_wait, target); });
  Py_DECREF(target);
  if (!result) throw PythonError();
  Py_DECREF(result);
}

}  // namespace

void wait_for_value(NodeId id) {
  const Graph& g = engine().graph;
  if (!g.is_parameter(g.owner(id))) wait_for(PyLong_FromUnsignedLong(id));
}

std::vector<NodeId> wait_for_all(NodeId id) {
  Engine& e = engine();
  std::vector<NodeId> ids;
  e.graph.instances.for_each_range(e.graph.instances.current(), id + 1, [&](NodeId begin, NodeId end) {
    for (NodeId n = begin; n < end; ++n)
      if (!e.graph.is_parameter(e.graph.owner(n)) && !e.has_value(n)) ids.push_back(n);
  });
  if (ids.empty()) return ids;
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(ids.size()));
  for (size_t i = 0; list && i < ids.size(); ++i)
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), PyLong_FromUnsignedLong(ids[i]));
  wait_for(list);
  return ids;
}

void check_change(const char* call, NodeId id) {
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

// _batch_begin(wait): the engine, for _batch_run(); wait(target) suspends the instance that calls it.
PyObject* begin(PyObject*, PyObject* wait) {
  return guarded([&] {
    Engine& e = engine();
    outer_frame = current_frame();
    Py_INCREF(wait);
    Py_XDECREF(std::exchange(scheduler_wait, wait));
    return PyCapsule_New(&e, kCapsule, nullptr);
  });
}

// _batch_end()
PyObject* end(PyObject*, PyObject*) {
  engine().graph.instances.finish();
  Py_XDECREF(std::exchange(scheduler_wait, nullptr));
  Py_RETURN_NONE;
}

// _batch_add(n): the numbers of n new instances inside the current one.
PyObject* add(PyObject*, PyObject* count) {
  const Py_ssize_t n = PyNumber_AsSsize_t(count, PyExc_OverflowError);
  if (n == -1 && PyErr_Occurred()) return nullptr;
  return guarded([&]() -> PyObject* {
    Instances& instances = engine().graph.instances;
    PyObject* numbers = PyList_New(n);
    if (!numbers) return nullptr;
    const uint32_t seed = instances.next_seed();
    for (Py_ssize_t i = 0; i < n; ++i)
      PyList_SET_ITEM(numbers, i, PyLong_FromUnsignedLong(instances.add(seed, static_cast<uint32_t>(i))));
    return numbers;
  });
}

// _batch_run(engine, wait, number, function, argument): what function(argument) returns in the instance. In a
// thread without an engine that of the caller of batch_map is lent to it.
PyObject* run(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (n != 5) {
    PyErr_SetString(PyExc_TypeError, "_batch_run(): expected 5 arguments");
    return nullptr;
  }
  auto* e = static_cast<Engine*>(PyCapsule_GetPointer(args[0], kCapsule));
  const uint32_t number = e ? static_cast<uint32_t>(PyLong_AsUnsignedLong(args[2])) : 0;
  if (PyErr_Occurred()) return nullptr;
  const bool lent = !this_thread;
  if (lent) {
    this_thread = e;
    helper = true;
    scheduler_wait = args[1];
  }
  e->graph.instances.enter(number, e->graph.size());
  PyObject* result = PyObject_CallOneArg(args[3], args[4]);
  e->graph.instances.enter(Instances::kOutside, e->graph.size());
  if (lent) {
    this_thread = nullptr;
    helper = false;
    scheduler_wait = nullptr;
  }
  return result;
}

// _batch_suspend(others): others(), outside of the instance that calls.
PyObject* suspend(PyObject*, PyObject* others) {
  return suspended([&] { return PyObject_CallNoArgs(others); });
}

void append_node(std::vector<NodeId>* ids, PyObject* item) {
  ids->push_back(static_cast<NodeId>(PyLong_AsUnsignedLong(item)));
  if (PyErr_Occurred()) throw PythonError();
}

// _batch_compute(targets): computes what instances wait for: nodes, and lists of nodes.
PyObject* compute(PyObject*, PyObject* targets) {
  if (!PyList_Check(targets)) {
    PyErr_SetString(PyExc_TypeError, "_batch_compute(): expected a list");
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    std::vector<NodeId> ids;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(targets); ++i) {
      PyObject* target = PyList_GET_ITEM(targets, i);
      if (!PyList_Check(target)) append_node(&ids, target);
      else
        for (Py_ssize_t j = 0; j < PyList_GET_SIZE(target); ++j)
          append_node(&ids, PyList_GET_ITEM(target, j));
    }
    Computing c;
    c.engine().compute(std::move(ids));
    Py_RETURN_NONE;
  });
}

// _batch_wait(): the method that _batch_begin() was given in this thread, or None outside of instances.
PyObject* current_wait(PyObject*, PyObject*) {
  PyObject* wait = inside_instance ? scheduler_wait : Py_None;
  Py_INCREF(wait);
  return wait;
}

// _draw_seed(): 32 random bits of the instance, or of the process outside.
PyObject* draw_seed(PyObject*, PyObject*) { return PyLong_FromUnsignedLong(random_engine().draw()); }

PyMethodDef functions[] = {
    {"_batch_begin", begin, METH_O, nullptr},
    {"_batch_end", end, METH_NOARGS, nullptr},
    {"_batch_add", add, METH_O, nullptr},
    {"_batch_run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)), METH_FASTCALL, nullptr},
    {"_batch_suspend", suspend, METH_O, nullptr},
    {"_batch_compute", compute, METH_O, nullptr},
    {"_batch_wait", current_wait, METH_NOARGS, nullptr},
    {"_draw_seed", draw_seed, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_fibers(PyObject* module) {
  if (PyModule_AddFunctions(module, functions) < 0) throw PythonError();
}

}  // namespace dyc::py
