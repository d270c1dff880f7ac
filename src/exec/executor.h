// Runs launch records on a device, forward and backward. One executor per engine, and one for passes in the
// background; which kind is decided once per process (device.h).
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "exec/deferred_gradients.h"
#include "exec/profile_trace.h"

namespace dyc {

class DeviceMemory;

// What a benchmark or profiler wants to know of the launches run.
struct Counters {
  uint64_t launches = 0, nodes = 0;
  uint64_t operand_bytes = 0;   // read by launches
  uint64_t gathered_bytes = 0;  // copied only to make operands contiguous
  void operator+=(const Counters& other) {
    launches += other.launches;
    nodes += other.nodes;
    operand_bytes += other.operand_bytes;
    gathered_bytes += other.gathered_bytes;
  }
};

// Time that the launches of one op have taken.
struct OpTime {
  double forward = 0, backward = 0;  // seconds
  uint64_t forward_launches = 0, backward_launches = 0;
};

// 29 methods, as it is the whole interface between the engine and a device: half of them are virtual.
class Executor : protected LaunchReader {
 public:
  Executor(Graph& graph, Plan& plan) : LaunchReader(graph, plan) {}
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs the launches [next, end) and those that are fused with them. Afterwards, also after an exception,
  // `next` is the first launch that has not run.
  virtual void forward(uint32_t& next, uint32_t end) = 0;

  // ---- backward
  // `direct`: gradients of parameters go into their storages at once. Otherwise nothing outside the graph is
  // written, and accumulate() adds them.
  void begin_backward(bool full, bool direct);
  // If the node is a lookup that does not lead to the loss: marks its rows as used, with gradient zero.
  void mark_rows_used(NodeId id);
  // Launches in reverse order: with `live_nodes` of them, those with live[node] != 0. `root` has the gradient
  // root_gradient.
  virtual void backward(NodeId root, const std::vector<uint8_t>& live,
                        const std::vector<uint32_t>& live_nodes) = 0;
  virtual void accumulate();
  float root_gradient = 1.f;
  // The graph was computed piece by piece, as values were read: its launches are smaller than they need be.
  bool in_pieces = false;
  // With keep_products, a direct backward leaves the products that alone make up the gradient of a parameter,
  // and run_kept() computes those of `storages`, or all that are left: a job sends each gradient while the
  // next one is computed. Until then the gradient is undefined, and nothing may change the arenas.
  bool keep_products = false;
  bool keeps() const { return keeps_; }
  void run_kept(std::span<const std::shared_ptr<Storage>> storages = {}) {
    if (keeps_) [[unlikely]]
      compute_kept(storages);
  }
  // The gradient of a parameter node: in the gradient arena, or in its storage; null if nothing was added.
  virtual const float* parameter_gradient(NodeId id) = 0;

  // ---- the host's arenas
  // The values of a parameter that the graph sees.
  virtual const float* parameter_values(ParameterUse& use) { return graph_.parameters.values(use); }
  // After this the host's value arena has the result of a launch at `offset` (gradient arena: the gradient).
  virtual void fetch_values(uint32_t /*launch*/, int64_t /*offset*/, size_t /*floats*/) {}
  // The value of this node is read next, with those of others: the first of these reads may fetch all.
  virtual void expect_read(NodeId /*id*/) {}
  // Index of the first NaN, or else of the first of the largest elements, of the vector at `offset`. kNone:
  // the executor cannot tell, so the host has to look at the values.
  virtual uint32_t argmax(uint32_t /*launch*/, int64_t /*offset*/) { return kNone; }
  virtual void fetch_gradients(int64_t /*offset*/, size_t /*floats*/) {}
  // After this the host's value arena has the input that `offset` is part of.
  virtual void fetch_input(int64_t /*offset*/) {}

  // ---- values that the host need not have
  // The values of an input are those in this memory; null: those in the host's arena.
  virtual void set_input(NodeId /*id*/, std::shared_ptr<DeviceMemory> /*memory*/) {}
  // A copy of the values of a node that is computed; null: there is no device.
  virtual std::shared_ptr<DeviceMemory> copy_on_device(NodeId /*id*/) { return nullptr; }
  // Exchanges what forward leaves for backward with an executor of the same kind, as their graphs exchange
  // their nodes.
  virtual void exchange(Executor& other);
  // Does it compute a loss together with the product that only this loss reads?
  virtual bool pairs_losses() const { return false; }
  // To be called before values change: computes the gradients of the last backward that were left until
  // somebody asks for them.
  virtual void complete_gradients() {}
  // The plan was cut back to its first `launches` launches; 0: the graph was renewed.
  virtual void cut_back(uint32_t /*launches*/) {}
  // Throws RuntimeError in code of the script that this thread runs in the middle of a computation.
  virtual void refuse_reentry() {}

  // Called between launches as long as nothing outside the graph has been written; may throw to end the
  // computation. May be null.
  std::function<void()> poll;

  Counters counters;

  // ---- profiling: 0 off, 1 time per op, 2 also each launch on stdout
  int profiling = 0;
  std::vector<OpTime> op_times;  // by OpId

  // Records every span of time (profile_trace.h); null: off. Set by the thread that computes.
  ProfileTrace* trace = nullptr;

  // Measures its own lifetime as the time of the launches [first, end), which run together. `nodes`: how many
  // of a launch run, if not all.
  class LaunchTimer {
   public:
    LaunchTimer(Executor& e, uint32_t first, uint32_t end, bool backward, uint32_t nodes = kNone)
        : executor_(e.profiling || e.trace ? &e : nullptr),
          first_(first),
          end_(end),
          nodes_(nodes),
          backward_(backward) {
      if (executor_) [[unlikely]]
        start();
    }
    ~LaunchTimer() {
      if (executor_) [[unlikely]]
        stop();
    }
    LaunchTimer(const LaunchTimer&) = delete;
    LaunchTimer& operator=(const LaunchTimer&) = delete;

   private:
    void start();
    void stop();

    Executor* executor_;
    uint32_t first_, end_, nodes_;
    bool backward_;
    int64_t start_ = 0;
  };

 protected:
  // Counts the time of deferred gradients as that of matrix products.
  void charge_weights(double seconds);

  // Adds what was collected to the gradient, and forgets it.
  virtual void run_deferred(DeferredGradient& d) = 0;
  // Before a launch that computed a weight runs backward, that weight's gradient must be complete.
  void run_deferred_of(const Launch& l);

  // Must a parameter's gradient be collected in the gradient arena in any case?
  virtual bool always_separate() const = 0;
  virtual void zero_gradients(int64_t offset, size_t floats) = 0;

  // Calls the script's functions for the nodes of a launch; `gradients`: backward.
  void call_functions(const Launch& l, float* values, float* gradients,
                      const std::shared_ptr<const void>& values_memory = {},
                      const std::shared_ptr<const void>& gradients_memory = {});

  virtual void compute_kept(std::span<const std::shared_ptr<Storage>>) {}

  bool direct_ = true;
  bool keeps_ = false;
  DeferredGradients deferred_;
  std::vector<RowGradient> rows_;  // for accumulate()

 private:
  void trace_launches(uint32_t first, uint32_t end, bool backward, uint32_t nodes, int64_t from, int64_t to);
};

// The executor of the device that was chosen for the process (device.h).
std::unique_ptr<Executor> make_executor(Graph& graph, Plan& plan);

}  // namespace dyc
