// A computation graph with everything needed to evaluate it: values on demand, gradients, recomputation.
//
// 39 methods and 26 fields, as every request of a script (read a value, record with a check, differentiate,
// revert, set an input) asks and changes the same few facts: which launches are valid, which random nodes are
// drawn, which nodes are live. Graph, planner and executor hold what can be said without them.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "exec/executor.h"
#include "exec/read_ahead.h"

namespace dyc {

struct BackwardTask;

class Engine {
 public:
  Engine();

  Graph graph;
  Planner planner{graph};

 private:
  const std::unique_ptr<Executor> executor_;

 public:
  Executor& executor;

  struct Options {
    Scheduler scheduler = Scheduler::bucket;  // when batching
    bool batching = true;
    bool immediate = false;       // every node is computed when recorded
    bool check_validity = false;  // with immediate: NaN and infinity are errors
  };
  Options options;

  void renew(const Options& o);
  uint32_t version() const { return graph.version(); }  // see Graph

  // Value of a node, computed if needed; the pointer is good until the next renew.
  const float* value(NodeId id);
  // Index of a vector's largest value, as NumPy's argmax finds it; does not need the values on the host.
  uint32_t argmax(NodeId id);
  bool has_value(NodeId id) {
    const uint32_t launch = planner.launch_of(graph.base_of(id));
    return !stale_ && graph.offset_of(id) >= 0 && (launch == kNone || launch < valid_);
  }
  // A copy of the value, computed if needed, in memory of the device; null: the CPU computes.
  std::shared_ptr<DeviceMemory> copy_on_device(NodeId id) {
    need(id);
    return executor.copy_on_device(id);
  }
  // Fast path of value() for a node that a launch has computed; null: call value().
  const float* computed_value(NodeId id) {
    const int64_t offset = graph.offset_of(id);
    if (stale_ || offset < 0 || graph.node(id).flags & Node::leaf) return nullptr;
    const uint32_t launch = planner.launch_of(graph.base_of(id));
    if (launch >= valid_) return nullptr;
    executor.fetch_values(launch, offset, graph.sig(id).size);
    return graph.values_arena.base() + offset;
  }
  // DyNet's forward(): everything up to `id` is available afterwards.
  void forward(NodeId id);
  // Computes these together, and what they need.
  void compute(std::vector<NodeId> ids);
  // Marks all values as out of date: an input changed, or recalculate=True.
  void invalidate();
  // How often computed values went out of date.
  uint32_t invalidations() const { return invalidations_; }

  // Only with `direct` are gradients added to the parameters; otherwise accumulate_gradients() does it, once.
  void backward(NodeId root, bool full, bool direct = true);
  void accumulate_gradients() { executor.accumulate(); }
  // The same in another thread, which then calls task.run(): the task gets nodes, values and plan, and this
  // engine may be renewed. The root's value is computed. Gradients are added to the parameters.
  void begin_backward(NodeId root, bool full, BackwardTask& task);
  // Afterwards: with `back`, the graph is here again, as after backward(); else it was renewed.
  void end_backward(BackwardTask& task, bool back);
  // Gradient of the last backward; throws RuntimeError where there is none. null: zeros.
  const float* gradient(NodeId id);
  bool has_gradient(NodeId id) const { return backward_root_ != kNone && id <= backward_root_; }

  void checkpoint();
  void revert();

  // True while no other thread has a graph: backward may then add to parameters directly. Guarded by the
  // interpreter lock.
  bool alone = true;

  // Functions of the script are ops of this graph; `op` is kept as long as the graph.
  void keep(uint32_t number, std::shared_ptr<void> op) { functions_.try_emplace(number, std::move(op)); }
  bool calls_functions() const { return !functions_.empty(); }

  // Called after every recorded node.
  void recorded(NodeId id) {
    if (attentive_) [[unlikely]]
      attend(id);
  }

  // False: recorded() has nothing to do.
  bool attentive() const { return attentive_; }
  // Is called then, too, by all engines; null: nothing is.
  inline static void (*on_recorded)(const Engine&) = nullptr;
  void update_attention() { attentive_ = options.immediate || trace_ || on_recorded; }

  // Launches that one demand has added, and the script's line that asked (ProfileTrace; kNone: not known).
  struct Flush {
    uint32_t first, site;
  };
  std::vector<Flush> flushes;
  uint32_t site = kNone;  // of the current call

  // Plans what `id` needs (with `everything`: all nodes up to it), calls f(), and removes the plan again.
  // Computes nothing and draws no random numbers.
  void preview(NodeId id, bool everything, const std::function<void()>& f);

  // Where spans of time are recorded; null: nowhere. To be set by the thread that uses the engine.
  void set_trace(std::shared_ptr<ProfileTrace> trace, uint32_t session);
  uint32_t session() const { return session_; }  // of the profile that set_trace() was called for

  struct Timing {
    double plan = 0, forward = 0, backward = 0;  // seconds
    uint64_t planned_nodes = 0, flushes = 0;     // how often there was something to plan
    uint64_t recorded_nodes = 0;                 // of graphs before this one
    // Of all graphs: recorded by regions of the script, and by steps of builders outside these.
    uint64_t region_nodes = 0, builder_nodes = 0;
  };
  Timing timing;

 private:
  NodeId need(NodeId id);
  void demand(std::span<const NodeId> ids, bool everything);
  void compute_read(NodeId id);
  void redo(uint32_t launches, double start);  // `start`: the time by now()
  void undo(const PlanMark& mark);
  void draw_until(NodeId id);
  void forget_values() {
    ++invalidations_;
    valid_ = 0;
  }
  void attend(NodeId id);
  void compute_now(NodeId id);
  void check_value(NodeId id);
  template <class F>
  void find_live(F visit);
  void count_live();
  bool count_all_live();
  bool is_live(NodeId id);
  const float* exact_gradient(NodeId id);
  bool behind_a_stop(NodeId id) const;

  uint32_t valid_ = 0;      // launches with current values
  NodeId drawn_ = 0;        // random nodes below are drawn (index into graph.draws())
  size_t redraws_ = 0;      // of graph.draws(): these are drawn again, later ones for the first time
  NodeId checked_ = 0;      // nodes below have finite values (check_validity)
  bool attentive_ = false;  // recorded() has something to do
  uint32_t session_ = 0;
  std::shared_ptr<ProfileTrace> trace_;
  bool stale_ = false;  // draw random nodes and read parameters again
  uint32_t invalidations_ = 0;
  NodeId backward_root_ = kNone;
  bool backward_full_ = false;
  void start_backward(NodeId root, bool full, bool direct);
  std::unique_ptr<Engine> unshared_;  // the last graph differentiated without sharing
  std::vector<uint8_t> live_;         // empty: not asked for yet
  std::vector<uint32_t> live_nodes_;  // of each launch
  struct Checkpoint {
    GraphMark graph;
    PlanMark plan;
    size_t draws;
  };
  std::vector<Checkpoint> checkpoints_;
  ReadAhead ahead_;
  std::unordered_map<uint32_t, std::shared_ptr<void>> functions_;  // ops, by number
};

}  // namespace dyc
