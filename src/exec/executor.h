// Runs launch records on a device, forward and backward. One executor per engine; which kind is decided once
// per process (device.h).
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "exec/profile_trace.h"
#include "plan/planner.h"

namespace dyc {

// What a benchmark or profiler wants to know of the launches run.
struct Counters {
  uint64_t launches = 0, nodes = 0;
  uint64_t operand_bytes = 0;   // read by launches
  uint64_t gathered_bytes = 0;  // copied only to make operands contiguous
};

// Time that the launches of one op have taken.
struct OpTime {
  double forward = 0, backward = 0;  // seconds
  uint64_t forward_launches = 0, backward_launches = 0;
};

class Executor {
 public:
  Executor(Graph& graph, Plan& plan) : graph_(graph), plan_(plan) {}
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs the launches from `next` to `end`, where a launch that others are fused with counts with them;
  // `next` says afterwards, also if one throws, which are done.
  virtual void forward(uint32_t& next, uint32_t end) = 0;

  // ---- backward
  // `direct`: gradients of parameters go into their storages at once. Otherwise nothing outside the graph is
  // written, and accumulate() adds them.
  void begin_backward(bool full, bool direct);
  // Marks the rows of a lookup that takes no part as used, with gradient zero; other nodes: nothing.
  void mark_rows_used(NodeId id);
  // Launches in reverse order: with `live_nodes` of them, those with live[node] != 0. `root` has
  // gradient 1.
  virtual void backward(NodeId root, const std::vector<uint8_t>& live,
                        const std::vector<uint32_t>& live_nodes) = 0;
  virtual void accumulate();
  // The gradient of a parameter node: in the gradient arena, or in its storage; null if nothing was added.
  virtual const float* parameter_gradient(NodeId id) = 0;

  // ---- the host's arenas
  // The values of a parameter that the graph sees.
  virtual const float* parameter_values(ParameterUse& use) { return graph_.parameter_values(use); }
  // After this the host's value arena has the result of a launch at `place` (gradient arena: the gradient).
  virtual void fetch_values(uint32_t /*launch*/, int64_t /*place*/, size_t /*floats*/) {}
  // Index of the largest value of a member's result, a vector at `place`: the first NaN, else the first of
  // the largest. kNone: its values are wanted for that.
  virtual uint32_t argmax(uint32_t /*launch*/, int64_t /*place*/) { return kNone; }
  virtual void fetch_gradients(int64_t /*place*/, size_t /*floats*/) {}
  // The plan has no launches beyond so many any more; 0: the graph is a new one.
  virtual void cut_back(uint32_t /*launches*/) {}
  // Throws RuntimeError in code of the script that this thread runs in the middle of a computation.
  virtual void refuse_reentry() {}

  // Called between launches, while nothing outside the graph has been written; throws to end the computation.
  // Null: nobody asks.
  std::function<void()> poll;

  Counters counters;

  // ---- profiling: 0 off, 1 time per op, 2 also each launch on stdout
  int profiling = 0;
  std::vector<OpTime> op_times;  // by OpId

  // Who is told of every span of time (trace.h); null: nobody. Set by the thread that computes.
  ProfileTrace* trace = nullptr;

  // Gives the time of its life to the launches [first, end), which run together; `members`: of a launch that
  // runs in part.
  class LaunchTimer {
   public:
    LaunchTimer(Executor& e, uint32_t first, uint32_t end, bool backward, uint32_t members = kNone)
        : executor_(e.profiling || e.trace ? &e : nullptr),
          first_(first),
          end_(end),
          members_(members),
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
    uint32_t first_, end_, members_;
    bool backward_;
    int64_t start_ = 0;
  };

 protected:
  // Members of a launch that take part, with everything a kernel needs.
  struct Item {
    const Sig* sig;
    NodeId id;
    int64_t out;
  };
  Item item(const Launch& l, uint32_t i) const {
    const NodeId id = plan_.nodes[l.nodes + i];
    if (l.uniform) {
      const Sig& s = graph_.sig_number(l.sig);
      return {&s, id, l.out + int64_t{i} * s.size};
    }
    return {&graph_.sig(id), id, plan_.index[l.out_index + i]};
  }
  // Offset of the argument of member i.
  int64_t argument(const Launch& l, const Operand& o, uint32_t i) const {
    switch (o.kind) {
      case Operand::contiguous:
        if (o.stride) return o.base + i * o.stride;
        return o.base + (plan_.index[l.out_index + i] - l.out);
      case Operand::strided:
        return o.base + i * o.stride;
      case Operand::indexed:
        return plan_.index[o.index + i];
      default:
        return o.base;
    }
  }
  void check(const Launch& l);
  // Indices of a member, where the op has any.
  Graph::Ids ids(const OpInfo& info, NodeId id) const { return info.ids() ? graph_.ids(id) : Graph::Ids{}; }
  Launch live_part(const Launch& l, const std::vector<uint8_t>& live, uint32_t live_nodes);
  bool wanted(const Launch& l, uint32_t k) const {
    return full_ || l.requires_grad_args >> (k < 31 ? k : 31) & 1;
  }
  // No two members add to the same gradient.
  bool distinct(const Launch& l) const;
  void count_operands(const Launch& l);
  // Throws where a lookup asks for a row that the table does not have.
  static void check_rows(const Storage& storage, const Graph::Ids& ids);
  // Gradients of weights, which leave their launches (batching.md 7.5): time of the matrix products.
  void charge_weights(double seconds);

  // Columns of a matrix operand over all members, in member order.
  struct Columns {
    int64_t base = 0, stride = 0;
    const int64_t* index = nullptr;
    int64_t count = 0;
    int64_t at(int64_t j) const { return base + (index ? index[j] : j * stride); }
  };
  Columns columns(const Launch& l, const Operand& o, uint32_t k, std::vector<int64_t>& room) const;
  Columns result_columns(const Launch& l, std::vector<int64_t>& room) const;

  // ---- weight gradients leave the recurrence: collected per weight, one GEMM each (batching.md 7.5)
  struct Deferred {
    NodeId node = kNone;         // parameter node, or kNone when the weight was computed
    int64_t place = -1;          // computed weight: its place
    int64_t m = 0, k = 0;        // k == 0: a bias, dW = sum of dy
    std::vector<int64_t> dy, x;  // column offsets
    const char* name() const { return k ? "dy x'" : "sum of dy"; }
    int64_t inner() const { return k ? k : 1; }
    bool by_rows() const { return m >= k; }  // threads share rows
    int64_t work() const { return m * (k ? k : 1) * static_cast<int64_t>(dy.size()); }
  };
  // Notes dW += dy x' (k > 0) or db += dy (k == 0) for later.
  void defer(const Operand& o, int64_t m, int64_t k, const Columns& dy, const Columns& x);
  // Adds what was noted to the gradient, and forgets it.
  virtual void run_deferred(Deferred& d) = 0;
  // Before a launch that computed a weight runs backward, that weight's gradient must be complete.
  void run_deferred_of(const Launch& l);
  // Is it of a parameter, and nothing else that was noted of the same?
  bool is_only(const Deferred& d) const;

  // Must a parameter's gradient be collected in the gradient arena in any case?
  virtual bool always_separate() const = 0;
  virtual void zero_gradients(int64_t place, size_t floats) = 0;

  float* grads() const { return graph_.grads_arena.base(); }

  Graph& graph_;
  Plan& plan_;
  bool full_ = false, direct_ = true;
  std::vector<Deferred> deferred_;  // the first n_deferred_; others are kept for their memory
  uint32_t n_deferred_ = 0;
  struct RowGradient {
    Storage* storage;
    uint32_t row;
    int64_t from;  // place; < 0: the row is only marked
  };
  std::vector<RowGradient> rows_;  // for accumulate()
  // Of what accumulate() adds: one parameter's gradient, if there is any for it, and one row's.
  bool accumulates(const ParameterUse& use) const {
    return use.gradient >= 0 && graph_.node(use.node).flags & Node::requires_grad;
  }
  void add_to_storage(const ParameterUse& use) const;
  void add_to_storage(const RowGradient& row) const;

 private:
  Deferred& deferred_for(const Operand& o, int64_t m, int64_t k);
  void trace_launches(uint32_t first, uint32_t end, bool backward, uint32_t members, int64_t from,
                      int64_t to);
};

// The executor of the device that was chosen for the process (device.h).
std::unique_ptr<Executor> make_executor(Graph& graph, Plan& plan);

}  // namespace dyc
