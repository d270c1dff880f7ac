#include "bindings/background.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/background_thread.h"
#include "base/thread_pool.h"
#include "bindings/background_payoff.h"
#include "bindings/compute.h"
#include "bindings/model.h"
#include "bindings/owned.h"
#include "bindings/python_compat.h"
#include "bindings/tuning.h"
#include "exec/backward_task.h"
#include "exec/device.h"
#include "exec/profile_trace.h"

namespace dyc::py {

namespace {

// A line of the script.
struct ScriptLine {
  Owned file, function;
  int line = 0;

  void take() {
    PyFrameObject* const frame = PyEval_GetFrame();
    if (!frame) return;
    PyCodeObject* const code = PyFrame_GetCode(frame);
    file = Owned(code->co_filename);
    function = Owned(code->co_name);
    line = PyFrame_GetLineNumber(frame);
    Py_DECREF(code);
  }
};

// The one pass in the background, guarded by the interpreter lock. There is one only, as it is begun only by
// the main thread, and only while that has the only graph.
struct Pass {
  Engine* engine = nullptr;  // null: there is none
  bool renewed = false;      // the engine has begun another graph
  NodeId root = kNone;       // the loss, and its generation
  uint32_t generation = 0;
  LentLoss loss = {};
  uint32_t version = kNone;     // of the last graph that was lent
  std::vector<Owned> trainers;  // whose updates follow
  std::vector<Owned> ended;     // of passes before: run code of the script, perhaps, when they die
  ScriptLine place;             // of the last call
  std::exception_ptr error;     // of a pass that has ended
  bool failed = false;          // the error was shown
};
Pass& pass = *new Pass;  // outlives the interpreter
BackgroundPayoff& payoff = *new BackgroundPayoff;
// This thread's graph, as long as it is lent and not renewed; this_thread is null then.
constinit thread_local Engine* lent = nullptr;
// Tests lend small graphs, too, and where errors could be caught: they catch errors themselves.
uint64_t least_values = tuning::kBackgroundGraph;
bool always = false;

BackwardTask& task() {
  static BackwardTask& made = *new BackwardTask;
  return made;
}

// A loop: the main thread may start a task before the calling thread has the lock of Python again.
void wait_until_idle() {
  while (!background_thread().idle()) {
    thread_pool().set_script_busy(false);
    Py_BEGIN_ALLOW_THREADS background_thread().wait();
    Py_END_ALLOW_THREADS
  }
}

void take_error() {
  if (std::exception_ptr error = background_thread().take_error()) pass.error = std::move(error);
}

// The thread is idle, and the pass is that of the calling thread.
void end_pass() {
  thread_pool().set_script_busy(false);
  pass.engine->end_backward(task(), !pass.renewed);
  pass.engine = nullptr;
  for (Owned& trainer : pass.trainers) pass.ended.push_back(std::move(trainer));
  pass.trainers.clear();
  take_error();
}

// Shows the error as Python shows one that nothing catches, and lets the process end with status 1.
void show_error() {
  pass.failed = true;
  if (pass.place.line)
    PySys_FormatStderr("Traceback (most recent call last):\n  File \"%U\", line %d, in %U\n",
                       pass.place.file.get(), pass.place.line, pass.place.function.get());
  try {
    std::rethrow_exception(pass.error);
  } catch (...) {
    set_error();
  }
  PyErr_PrintEx(0);
  std::atexit([] {
    std::fflush(nullptr);
    _exit(1);
  });
}

// Nothing could have caught the error where it belongs, so nothing may catch it here.
void throw_error() {
  if (!pass.error) [[likely]]
    return;
  if (always) std::rethrow_exception(std::exchange(pass.error, nullptr));
  if (!pass.failed) show_error();
  PyErr_SetObject(PyExc_SystemExit, Owned::steal(PyLong_FromLong(1)).get());
  throw PythonError();
}

bool is_usual(const Engine& e, NodeId root) {
  const uint64_t floats = e.graph.recorded_floats();
  const bool watched = e.attentive() || e.executor.trace || e.executor.profiling;
  return floats >= least_values && floats < tuning::kLongGraph && !watched && !e.calls_functions() &&
         e.graph.sig(root).size == 1;
}

bool may_be_in_background() {
  static const bool no_room = address_space_is_limited();
  if (thread_pool().threads() == 1 || cuda_device() || no_room || !is_main_thread()) return false;
  return always || (!errors_may_be_caught() && !PySys_GetObject("ps1"));  // nor at Python's prompt
}

// Tests lend whatever it costs.
bool is_worth_it(const Engine& e) {
  return always || payoff.lends(e.graph.recorded_floats(), profile_clock());
}

}  // namespace

bool backward_in_background(Engine& e, NodeId root, bool full) {
  if (full || !is_usual(e, root) || e.version() == pass.version ||
      e.graph.is_parameter(e.graph.base_of(root)) || !may_be_in_background() || !is_worth_it(e))
    return false;
  pass.loss = {*compute_value(root, false, "backward"), e.graph.dim(root)};
  wait_for_update();
  pass.root = root;
  pass.generation = e.graph.generation();
  pass.place.take();
  e.begin_backward(root, full, task());
  pass.engine = &e;
  pass.renewed = false;
  pass.version = e.version();
  thread_pool().set_script_busy(true);
  if (!background_thread().start([] { task().run(); })) {
    end_pass();
    return false;
  }
  lent = std::exchange(this_thread, nullptr);
  return true;
}

bool update_in_background(PyObject* trainer, Trainer& t, float scale) {
  if (!lent || !is_only_graph() || !may_be_in_background()) return false;
  pass.trainers.emplace_back(trainer);
  pass.place.take();
  return background_thread().start([&t, scale] { t.update(scale); });
}

Engine& engine_to_renew() {
  if (!pass.ended.empty()) std::exchange(pass.ended, {}).clear();
  if (!lent || background_thread().idle()) return engine();
  pass.renewed = true;
  return *(this_thread = std::exchange(lent, nullptr));
}

Engine* take_back_graph() {
  if (!lent) return nullptr;
  wait_until_idle();
  this_thread = std::exchange(lent, nullptr);
  end_pass();
  throw_error();
  return this_thread;
}

void wait_for_background(bool throws) {
  if (!pass.engine && !pass.error) [[likely]]
    return;
  wait_until_idle();
  const bool mine = lent || (pass.engine && pass.engine == this_thread);
  if (mine && !lent) end_pass();
  if (mine) take_error();
  if (throws && is_main_thread()) throw_error();
}

void forget_background(Engine* e) {
  if (pass.engine != e) return;
  background_thread().wait();
  end_pass();
  if (lent == e) lent = nullptr;
}

void end_background() {
  background_thread().wait();
  take_error();
  if (pass.error && !pass.failed) show_error();
}

const LentLoss* lent_loss(PyObject* expression) {
  if (!lent) return nullptr;
  const auto* e = reinterpret_cast<const PyExpression*>(expression);
  return e->id == pass.root && e->generation == pass.generation ? &pass.loss : nullptr;
}

bool is_lent() { return lent; }

void lend_always(uint64_t least) {
  always = least < tuning::kBackgroundGraph;
  least_values = least;
}

}  // namespace dyc::py
