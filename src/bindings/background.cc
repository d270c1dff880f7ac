#include "bindings/background.h"

#include <utility>
#include <vector>

#include "base/background_thread.h"
#include "base/thread_pool.h"
#include "bindings/compute.h"
#include "bindings/model.h"
#include "bindings/owned.h"
#include "bindings/python_compat.h"
#include "bindings/tuning.h"
#include "exec/backward_task.h"
#include "exec/device.h"

namespace dyc::py {

namespace {

// The one pass in the background, guarded by the interpreter lock. There is one only, as it is begun only by
// a thread that has the only graph.
struct Pass {
  Engine* engine = nullptr;  // null: there is none
  bool renewed = false;      // the engine has begun another graph
  PyExpression loss = {};    // as handles of it are
  LentLoss value = {};
  std::vector<Owned> trainers;  // whose updates follow
  uint32_t version = kNone;     // of the last graph that was lent
  std::exception_ptr error;     // of a pass that has ended; to be thrown
};
Pass pass;
// Tests lend small graphs, too, and where errors could be caught: they catch errors themselves.
uint64_t least_values = tuning::kBackgroundGraph;
bool always = false;
// This thread's graph, as long as it is lent and not renewed; this_thread is null then.
constinit thread_local Engine* lent = nullptr;

BackwardTask& task() {
  static BackwardTask& made = *new BackwardTask;
  return made;
}

void wait_until_idle() {
  if (background_thread().idle()) return;
  thread_pool().set_script_busy(false);
  Py_BEGIN_ALLOW_THREADS background_thread().wait();
  Py_END_ALLOW_THREADS
}

// The thread is idle, and the pass is that of the calling thread.
void end_pass() {
  thread_pool().set_script_busy(false);
  pass.engine->end_backward(task(), !pass.renewed);
  pass.engine = nullptr;
  pass.error = background_thread().take_error();
  const std::vector<Owned> trainers = std::exchange(pass.trainers, {});  // may run code of the script
}

void throw_error() {
  if (pass.error) std::rethrow_exception(std::exchange(pass.error, nullptr));
}

bool worth_it(Engine& e) {
  const uint64_t floats = e.graph.recorded_floats();
  return floats >= least_values && floats < tuning::kLongGraph;
}

bool is_watched(const Engine& e) { return e.attentive() || e.executor.trace || e.executor.profiling; }

}  // namespace

bool backward_in_background(Engine& e, NodeId root, bool full) {
  if (full || thread_pool().threads() == 1 || cuda_device() || !worth_it(e) || is_watched(e)) return false;
  static const bool no_room = address_space_is_limited();
  if (no_room) return false;
  if (e.version() == pass.version || e.calls_functions() || e.graph.sig(root).size != 1 ||
      e.graph.is_parameter(e.graph.base_of(root)))
    return false;
  if (!always && errors_may_be_caught()) return false;
  pass.value = {*compute_value(root, false, "backward"), e.graph.dim(root)};
  wait_for_update();
  pass.loss.id = root;
  pass.loss.generation = e.graph.generation();
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
  if (!lent || (!always && errors_may_be_caught())) return false;
  if (!background_thread().start([&t, scale] { t.update(scale); })) return false;
  pass.trainers.emplace_back(trainer);
  return true;
}

Engine& engine_to_renew() {
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
  if (pass.engine && pass.engine == this_thread) end_pass();
  if (lent && throws) pass.error = background_thread().take_error();
  if (throws) throw_error();
}

void forget_background(Engine* e) {
  if (pass.engine != e) return;
  background_thread().wait();
  end_pass();
  if (lent == e) lent = nullptr;
}

bool is_lent() { return lent; }

void lend_always(uint64_t least) {
  always = least < tuning::kBackgroundGraph;
  least_values = least;
}

const LentLoss* lent_loss(PyObject* expression) {
  if (!lent) return nullptr;
  const auto* e = reinterpret_cast<const PyExpression*>(expression);
  return e->id == pass.loss.id && e->generation == pass.loss.generation ? &pass.value : nullptr;
}

}  // namespace dyc::py
