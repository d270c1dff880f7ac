// The engines of the threads, and computing without the interpreter lock.
//
// Each thread that records has an engine, made when it is first needed and destroyed with the thread's state,
// which Python clears when the thread ends. Everything here but Computing's body runs under the interpreter
// lock, which is what guards it; parameters, too, are only written under that lock, or in the background
// while everybody else waits who would touch them (background.h).
#include "bindings/compute.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/instance.h"
#include "base/platform.h"
#include "bindings/background.h"
#include "bindings/fibers.h"
#include "bindings/call_site.h"
#include "bindings/tuning.h"
#include "exec/device.h"

namespace dyc::py {

constinit thread_local Engine* this_thread DYC_STATIC_TLS = nullptr;
bool keep_products = false;
float loss_share = 1.f;
bool skips_backward = false;

namespace {

struct ThreadEngine : Engine {
  bool computing = false;
  struct {
    NodeId root = kNone;
    bool full = false;
    uint32_t version = 0;  // of the graph
  } skipped;               // the last backward() that was
};

std::vector<ThreadEngine*> engines;

// To be locked without the interpreter lock, which the thread that holds the mutex may be waiting for.
void lock_device(std::mutex& mutex) {
  if (mutex.try_lock()) return;
  if (!PyGILState_Check()) return mutex.lock();
  Py_BEGIN_ALLOW_THREADS mutex.lock();
  Py_END_ALLOW_THREADS
}

// 1 while a backward pass adds to the gradients of parameters without the interpreter lock. Atomic so that
// threads can wait for it; written under the lock.
std::atomic<uint32_t> to_parameters{0};
int waiting = 0;  // threads that wait for its end, and go before the next backward pass

// Has left products to be computed (Executor::run_kept); null: no engine.
Engine* keeper = nullptr;
PyObject* update_in_flight = nullptr;  // a function that waits for the update; null: none is in flight
thread_local bool makes_updates = false;

constexpr const char* kCapsule = "dynet_compat.graph";

// Called when the state of a thread is cleared: by that thread when it ends, or by the one that forks or
// finalises.
void end_of_thread(PyObject* capsule) {
  auto* e = static_cast<ThreadEngine*>(PyCapsule_GetPointer(capsule, kCapsule));
  forget_background(e);
  engines.erase(std::remove(engines.begin(), engines.end(), e), engines.end());
  if (this_thread == e) this_thread = nullptr;
  if (keeper == e) {
    wait_for_backward();
    finish_products();
  }
  if (!e->computing) delete e;  // otherwise its thread is computing, or was when the process forked
}

// Python's dict for this thread, or null if it has none any more (then the engine is never destroyed).
void end_with_thread(ThreadEngine* e) {
  PyObject* dict = PyThreadState_GetDict();
  if (!dict) return;
  PyObject* capsule = PyCapsule_New(e, kCapsule, nullptr);
  if (!capsule || PyDict_SetItemString(dict, kCapsule, capsule) < 0) {
    Py_XDECREF(capsule);
    delete e;
    throw PythonError();
  }
  PyCapsule_SetDestructor(capsule, end_of_thread);
  Py_DECREF(capsule);
}

// Asking the system takes as long as planning a small graph: 0.6 us.
constinit thread_local std::optional<bool> runs_handlers DYC_STATIC_TLS;

bool runs_handlers_of_signals() {
  if (!runs_handlers) runs_handlers = is_main_thread();
  return *runs_handlers;
}

// A forked child has no other thread, so no backward pass of one, and this may not have been the main one.
void after_fork_in_child() {
  runs_handlers.reset();
  to_parameters = 0;
  waiting = 0;
}

}  // namespace

static thread_local bool inside_function = false;

InsideFunction::InsideFunction()
    : graph_(std::exchange(this_thread, nullptr)), outer_(std::exchange(inside_function, true)) {}

InsideFunction::~InsideFunction() {
  inside_function = outer_;
  this_thread = graph_;
}

static void refuse_inside_function() {
  if (inside_function) [[unlikely]]
    throw RuntimeError(
        "the functions of a cupy_op(), and an allocator of memory, are called in the middle of a "
        "computation: "
        "they cannot use expressions, parameters or graphs");
}

Engine& make_engine() {
  refuse_inside_function();
  if (Engine* const mine = take_back_graph()) return *mine;
  static const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);
  set_device_lock(lock_device);
  static_cast<void>(registered);
  engines.reserve(engines.size() + 1);
  auto* e = new ThreadEngine;
  end_with_thread(e);
  wait_for_gradients();
  e->options = default_options();
  if (!engines.empty()) e->graph.take_version();
  engines.push_back(e);
  for (ThreadEngine* each : engines) each->alone = engines.size() == 1;
  this_thread = e;
  return *e;
}

Engine* make_engine_or_error() {
  try {
    return &make_engine();
  } catch (...) {
    set_error();
    return nullptr;
  }
}

Engine::Options& default_options() {
  static Engine::Options options;
  return options;
}

const char* whose_graph(uint32_t number) {
  if (number == engine().graph.number) return "an earlier graph";
  for (const ThreadEngine* e : engines)
    if (e->graph.number == number) return "another thread's graph";
  return "the graph of a thread that has ended";
}

bool is_only_graph() { return engines.size() == 1 && waiting == 0; }

void wait_for_update(bool throws) {
  wait_for_background(throws);
  if (!update_in_flight || makes_updates) [[likely]]
    return;
  PyObject* const wait = update_in_flight;
  Py_INCREF(wait);
  PyObject* const result = PyObject_CallOneArg(wait, throws ? Py_True : Py_False);
  Py_DECREF(wait);
  if (!result) throw PythonError();
  Py_DECREF(result);
}

void set_update_in_flight(PyObject* wait) {
  PyObject* const old = std::exchange(update_in_flight, wait);
  Py_XINCREF(wait);
  Py_XDECREF(old);
}

void make_updates_here() { makes_updates = true; }

void finish_products() {
  if (keeper) std::exchange(keeper, nullptr)->executor.run_kept();
}

void finish_products(std::span<const std::shared_ptr<Storage>> storages) {
  if (!keeper || storages.empty()) return;
  to_parameters = 1;
  Py_BEGIN_ALLOW_THREADS keeper->executor.run_kept(storages);
  Py_END_ALLOW_THREADS to_parameters = 0;
  to_parameters.notify_all();
}

void wait_for_gradients() {
  refuse_inside_function();
  if (makes_updates) return;  // finish_products() runs at the same time
  wait_for_update();
  wait_for_backward();
  finish_products();
}

void wait_for_backward() {
  wait_for_background(false);
  ++waiting;
  while (to_parameters.load()) [[unlikely]] {
    Py_BEGIN_ALLOW_THREADS to_parameters.wait(1);
    Py_END_ALLOW_THREADS
  }
  --waiting;
}

namespace {

int64_t milliseconds() {
  using namespace std::chrono;
  return duration_cast<std::chrono::milliseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// Runs handlers of signals, which may record, but not compute.
void Computing::poll() {
  const int64_t now = milliseconds();
  if (now - polled_ < tuning::kPollEvery) return;
  PyEval_RestoreThread(state_);
  const bool raised = PyErr_CheckSignals() < 0;
  state_ = PyEval_SaveThread();
  polled_ = milliseconds();
  if (raised) throw PythonError();
}

Computing::Computing(bool direct) : engine_(dyc::py::engine()), to_parameters_(direct) {
  engine_.executor.refuse_reentry();  // by a signal handler that interrupts this thread's computation
  wait_for_update();
  finish_products();
  if (engine_.graph.recorded_floats() < tuning::kReleaseLock && !engine_.calls_functions()) return;
  engine_.graph.parameters.hold();
  static_cast<ThreadEngine&>(engine_).computing = true;
  if (to_parameters_) to_parameters = 1;
  else if (runs_handlers_of_signals()) engine_.executor.poll = [this] { poll(); };
  polled_ = milliseconds();
  state_ = PyEval_SaveThread();
}

Computing::~Computing() noexcept(false) {
  if (!state_) return;
  engine_.executor.poll = nullptr;
  PyEval_RestoreThread(state_);
  static_cast<ThreadEngine&>(engine_).computing = false;
  engine_.graph.parameters.release();
  if (!to_parameters_) return;
  to_parameters = 0;
  to_parameters.notify_all();
}

// A function of its own, so that reading a computed value stays short.
template <auto read>
[[gnu::noinline]] static auto compute_missing(NodeId id, const char* method) {
  constexpr bool value = std::is_same_v<decltype(read), decltype(&Engine::value)>;
  if (inside_instance) [[unlikely]]
    wait_for_value(id, value);  // others run meanwhile: no part of this call
  const ScriptCall call(method);
  Computing c;
  return (c.engine().*read)(id);
}

[[gnu::noinline]] static const float* compute_again(NodeId id, const char* method) {
  check_change("value(recalculate=True)", kNone);
  engine().invalidate();
  return compute_missing<&Engine::value>(id, method);
}

const float* compute_value(NodeId id, bool recalculate, const char* method) {
  if (recalculate) [[unlikely]]
    return compute_again(id, method);
  Engine& e = engine();
  if (const float* value = e.computed_value(id)) return value;
  return e.has_value(id) ? e.value(id) : compute_missing<&Engine::value>(id, method);
}

std::shared_ptr<DeviceMemory> compute_on_device(NodeId id) {
  Engine& e = engine();
  return e.has_value(id) ? e.copy_on_device(id)
                         : compute_missing<&Engine::copy_on_device>(id, "tensor_value");
}

uint32_t compute_argmax(NodeId id, const char* method) {
  Engine& e = engine();
  return e.has_value(id) ? e.argmax(id) : compute_missing<&Engine::argmax>(id, method);
}

void compute_forward(NodeId id, bool recalculate) {
  Engine& e = engine();
  if (recalculate) {
    check_change("forward(recalculate=True)", kNone);
    e.invalidate();
  }
  if (inside_instance) [[unlikely]] {
    std::vector<NodeId> mine = wait_for_all(id);
    const ScriptCall call("forward");
    Computing c;
    return c.engine().compute(std::move(mine));
  }
  const ScriptCall call("forward");
  Computing c;
  c.engine().forward(id);
}

// Is the computation long enough to be interrupted by Ctrl-C? Then gradients of parameters are collected
// until its end, so that none is left half added. They take no more memory than the values of the graph.
static bool is_long(Graph& graph) {
  const uint64_t floats = graph.recorded_floats();
  if (floats < tuning::kLongGraph) return false;
  uint64_t parameters = 0;
  for (const ParameterUse& use : graph.parameters.all()) parameters += use.storage->size();
  return parameters < floats;
}

void compute_backward(NodeId id, bool full) {
  refuse_inside_instance("backward()",
                         "return the loss, and call backward() on the sum of what batch_map() returns");
  Engine& e = engine();
  if (skips_backward) {
    static_cast<ThreadEngine&>(e).skipped = {id, full, e.version()};
    return;
  }
  const ScriptCall call("backward");
  e.alone = is_only_graph();
  if (e.alone && !keep_products && loss_share == 1.f && backward_in_background(e, id, full)) return;
  const bool direct = e.alone && (keep_products || !is_long(e.graph));
  {
    Computing c(direct);
    e.executor.keep_products = keep_products;
    e.executor.root_gradient = loss_share;
    e.backward(id, full, direct);
    if (e.executor.keeps()) keeper = &e;
  }
  if (!direct) e.accumulate_gradients();
}

// Returns, once, the loss whose backward() was skipped last in this graph; kNone: there is none.
static NodeId take_skipped(Engine& e) {
  auto& skipped = static_cast<ThreadEngine&>(e).skipped;
  const NodeId root = std::exchange(skipped.root, kNone);
  return skipped.version == e.version() ? root : kNone;
}

const float* compute_gradient(NodeId id) {
  Engine& e = engine();
  const NodeId root = take_skipped(e);
  if (root != kNone) [[unlikely]] {
    const Computing c;
    e.executor.keep_products = false;
    e.executor.root_gradient = loss_share;
    e.backward(root, static_cast<ThreadEngine&>(e).skipped.full, false);  // reaches no parameter's gradient
  }
  return e.gradient(id);
}

void forward_skipped() {
  const NodeId root = take_skipped(engine());
  if (root != kNone) compute_forward(root, false);
}

}  // namespace dyc::py
