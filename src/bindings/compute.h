// Running the engine of this thread from Python: other threads go on while kernels run.
#pragma once
#include "base/error.h"
#include "bindings/expression.h"

namespace dyc::py {

// What graphs start with; renew_cg() overrides some of it.
Engine::Options& default_options();

// While one exists, the engine computes. From tuning::kReleaseLock values on the interpreter lock is
// released: the graph then reads parameters as they are now, and writes nothing that other threads can reach,
// except the gradients of parameters in a backward pass of a process with one graph (`to_parameters`). In the
// main thread, signal handlers run every tuning::kPollEvery milliseconds; what they raise ends the
// computation.
class Computing {
 public:
  explicit Computing(bool to_parameters = false);
  ~Computing() noexcept(false);  // at exit Python ends threads that ask for the lock, by unwinding
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;
  Engine& engine() const { return engine_; }

 private:
  void poll();

  Engine& engine_;
  const bool to_parameters_;
  int64_t polled_ = 0;
  PyThreadState* state_ = nullptr;
};

// While a function of the script runs that the engine calls, this thread has no graph: one that it recorded
// into, or whose values it computed, would be the one that is in the midst of a computation.
class InsideFunction {
 public:
  InsideFunction();
  ~InsideFunction();
  InsideFunction(const InsideFunction&) = delete;
  InsideFunction& operator=(const InsideFunction&) = delete;

 private:
  Engine* const graph_;
  const bool outer_;
};

// Before parameters are read or changed: waits for backward passes and updates of other threads, the one in
// the background (background.h) among them, throws their error, and computes products that were kept.
void wait_for_gradients();
void wait_for_backward();

// ---- jobs (dynet_compat/distributed/), whose updates may go on in another thread
// Backward passes keep products of weights for finish_products(), which an update calls.
extern bool keep_products;
// What a loss starts from: this process's share of the minibatch, where losses are means.
extern float loss_share;
// While a resumed job catches up, backward() computes nothing; gradient() then does it, if it is called.
extern bool skips_backward;
// Computes the loss of the last backward() of this graph, if that was skipped: it draws its random numbers
// now.
void forward_skipped();
void finish_products();
void finish_products(std::span<const std::shared_ptr<Storage>> storages);  // without the interpreter lock
// To be called before a trainer, or what it reads, is used: waits for an update in flight. Throws its error,
// or (not `throws`) leaves it to the next caller.
void wait_for_update(bool throws = true);
// An update has begun: wait(raises) waits for its end and, if `raises` is True, raises its error. Null: it is
// done.
void set_update_in_flight(PyObject* wait);
// The calling thread makes updates, so it does not wait for them.
void make_updates_here();

// `method`: what the script has called, for profiles.
const float* compute_value(NodeId id, bool recalculate, const char* method = "value");
std::shared_ptr<DeviceMemory> compute_on_device(NodeId id);  // a copy; null: on the CPU
uint32_t compute_argmax(NodeId id, const char* method);      // of a vector: see Engine
void compute_forward(NodeId id, bool recalculate);
void compute_backward(NodeId id, bool full);
const float* compute_gradient(NodeId id);  // null: zeros
// Expression for a node recorded just now; computes it in immediate mode.
inline PyObject* recorded(NodeId id, PyTypeObject* type = &ExpressionType) {
  engine().recorded(id);
  return make_expression(id, type);
}

// The op that this function of the API records; kOps: it records none.
OpId op_of_function(PyObject* function);
// A call by position: of expressions, or a list of them, then perhaps an index. Other arguments are the
// defaults.
struct PlainCall {
  static constexpr size_t kMostAttrs = 4;
  bool possible = false, list = false, index = false;
  uint8_t n_attrs = 0;
  uint32_t attrs[kMostAttrs] = {};  // of the op: the defaults of arguments that the call does not name
};
// Whether a call of the op's function with n positional arguments can be recorded as such.
PlainCall plain_call(OpId op, size_t n);
// List of result(i), i < n, for nodes recorded just now. ValueError where making one has run code that
// renewed the graph.
template <class F>
PyObject* list_of_recorded(size_t n, const char* call, F&& result) {
  const uint32_t version = engine().version();
  PyObject* const list = PyList_New(static_cast<Py_ssize_t>(n));
  for (size_t i = 0; list && i < n; ++i) {
    const bool renewed = engine().version() != version;
    PyObject* const item = renewed ? nullptr : result(i);
    if (!item) {
      Py_DECREF(list);
      if (renewed) throw ValueError(text(call, "(): expected no renew_cg() while it runs"));
      return nullptr;
    }
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), item);
  }
  return list;
}

// What a message says of a graph that is not the one of this thread.
const char* whose_graph(uint32_t number);
// Has no other thread a graph?
bool is_only_graph();

}  // namespace dyc::py
