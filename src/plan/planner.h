// From a demanded node to launch records: select what is pending, order it into launches, give every
// result its place and every operand its description.
#pragma once
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "plan/launch.h"
#include "plan/schedule.h"

namespace dyc {

class Planner {
 public:
  explicit Planner(Graph& graph);
  ~Planner();

  Plan plan;

  // Appends launches for every pending node that `roots`, which ascend, need. With `everything`: all
  // pending nodes up to the last root (what DyNet's forward() promises).
  void plan_roots(std::span<const NodeId> roots, Scheduler scheduler, bool everything);
  // The graph was renewed or cut back.
  void forget();
  // Class numbers mean something else from now on.
  void forget_orders() {
    order_cache_.clear();
    key_seen_.clear();
  }
  // The nodes of the last demand could not be computed.
  void discard_last();
  void limit(uint32_t nodes) { first_pending_ = first_pending_ < nodes ? first_pending_ : nodes; }

  // Launch count per scheduler for what `root` needs, without planning it; and the lower bound.
  struct Counts {
    uint32_t nodes, bucket, depth, agenda, lower_bound;
  };
  Counts count(NodeId root);

  // Number of the launches that compute `root` where they compute nothing else and all nodes up to it lead to
  // it; else 0.
  uint32_t launches_of_single_root(NodeId root) const {
    return root == single_root_ ? single_root_launches_ : 0;
  }

  NodeId first_pending() const { return first_pending_; }  // every node below has been placed

  uint32_t launch_of(NodeId id) const { return id < plan.launch_of.size() ? plan.launch_of[id] : kNone; }

 private:
  // ---- planner.cc: what to compute, in which launches
  bool select(std::span<const NodeId> roots, bool everything);
  bool all_lead_to(std::span<const NodeId> roots);
  void mark_needed(std::span<const NodeId> roots, bool everything);
  bool list_needed(std::span<const NodeId> roots);
  void want_up_to(NodeId last);
  template <class F>
  void for_each_selected(F&& f);
  std::vector<NodeId> selected();
  bool nothing_to_batch();
  const BucketOrder& order_buckets();
  const BucketOrder& order_by_rounds();
  const BucketOrder& order_by_segments();
  bool has_nested_loops();
  void count_buckets();
  void connect_buckets();
  const BucketOrder& cached_order();
  void open_buckets(const BucketOrder& order);
  void open_groups(Scheduler scheduler);
  uint32_t open(uint32_t sig, uint32_t count, int64_t floats, bool mixed);

  template <class Slot>
  void fill(Slot&& slot);

  // ---- operands.cc: where everything lies
  void resolve_operands(uint32_t launch);
  void inspect_nodes(Launch& l);
  Operand weight_operand(const Launch& l, uint32_t k);
  Operand operand_of_offsets(const Launch& l, uint32_t k, uint32_t begin) const;
  Operand mixed_operand(const Launch& l, uint32_t k);
  void resolve_lists(Launch& l);
  int64_t readable_offset(NodeId id);
  int64_t copy_parameter(NodeId id);
  void insert_copies();

  // ---- fuse.cc: launches that run together
  struct MemoryRange {
    int64_t begin, end;
  };
  void fuse(uint32_t first);
  uint32_t elementwise_end(uint32_t head) const;
  bool joins_elementwise(const Launch& head, uint32_t first, uint32_t last) const;
  uint32_t fused_end(uint32_t head, uint32_t begin);
  bool joins_group(uint32_t head, uint32_t at, uint32_t begin);
  void cut_stage(const Launch& l, uint32_t n, uint32_t j);
  MemoryRange range_of(const Launch& l, uint32_t k) const;
  bool reads_own_instance(const Launch& stage, int64_t low, uint32_t begin) const;
  bool outside(const Launch& stage, uint32_t k, int64_t low) const;
  bool made_by(const MemoryRange& s, const Operand& o, uint32_t begin, uint32_t n) const;
  void close_group(Launch& head, uint32_t more, uint32_t begin);
  bool gradients_disjoint(const Launch& head);
  bool targets_disjoint();
  struct GradientTarget {  // of gradients of a block
    Operand o;
    MemoryRange span;
    int64_t size;
    uint32_t count;
  };
  struct GradientRange {
    int64_t begin, end;
    uint32_t instance;
  };
  std::vector<GradientTarget> targets_;
  std::vector<GradientRange> ranges_;

  Graph& graph_;
  NodeId first_pending_ = 0;           // every node below is placed
  NodeId single_root_ = kNone;         // root of the first demand, where all nodes up to it led to it
  uint32_t single_root_launches_ = 0;  // and its launches

  // ---- of the demand in hand: all pending nodes of from_ .. to_ - 1, or those in wanted_, or in list_
  NodeId from_ = 0, to_ = 0;
  uint32_t pending_ = 0;  // how many
  bool marked_ = false;   // not all pending ones
  bool listed_ = false;   // with marked_: list_ has them, ascending
  std::vector<uint8_t> wanted_;
  std::vector<NodeId> list_;
  std::vector<NodeId> bases_;
  uint32_t first_ = 0;                // its first launch
  uint32_t nodes_end_ = 0;            // what its launches take of plan.nodes and plan.index
  size_t index_end_ = 0;              //
  std::vector<uint32_t> args_begin_;  // per launch: where in plan.index its arguments' runs start, or kNone
  std::vector<NodeId> copies_;        // parameters read like ordinary values: copied before all else
  uint32_t copies_expected_ = 0;      // launches kept free for them: as many as the last demand had
  Groups groups_;

  // Where the next node of a bucket (or group) goes.
  struct BucketCursor {
    int64_t out;       // its result
    uint32_t size;     // floats of that; 0: nodes differ
    uint32_t node;     // in plan.nodes
    uint32_t index;    // its first argument's place in plan.index; kNone: described afterwards
    uint32_t stride;   // from one argument's run to the next
    uint32_t step;     // from one member to the next
    uint32_t launch;   // its launch
    uint32_t next;     // launches from one member to the next: 0 or, for solo ops, 1
    uint32_t weights;  // bit k: argument k is a weight
  };
  std::vector<BucketCursor> cursors_;
  BucketCursor cursor_at(uint32_t launch) const;

  std::vector<uint32_t> key_seen_;
  uint32_t key_epoch_ = 0;

  // ---- bucket scheduling
  BucketGraph buckets_;
  struct Keyed {
    uint64_t key;
    uint32_t site, bucket;
  };
  std::vector<Keyed> active_;       // in key order: local number -> bucket
  std::vector<uint32_t> local_;     // bucket -> local number
  std::vector<BucketStats> stats_;  // per bucket, when the graph's own do not fit the selection
  const BucketStats& stats(uint32_t bucket) const {
    return marked_ ? stats_[bucket] : graph_.bucket(bucket).stats;
  }
  struct CachedOrder {
    BucketGraph graph;
    BucketOrder order;
  };
  std::unordered_map<uint64_t, CachedOrder> order_cache_;

  struct Nested;  // loops in loops
  std::unique_ptr<Nested> nested_;
};

template <class F>
void Planner::for_each_selected(F&& f) {
  if (listed_) {
    for (size_t i = 0; i < list_.size(); ++i) f(list_[i], graph_.node(list_[i]));
    return;
  }
  if (marked_) {
    for (NodeId id = from_; id < to_; ++id)
      if (wanted_[id]) f(id, graph_.node(id));
    return;
  }
  const int64_t* offsets = graph_.offsets();
  for (NodeId id = from_; id < to_; ++id) {
    const Node& n = graph_.node(id);
    if (!(n.flags & (Node::leaf | Node::view)) && offsets[id] == kPending) f(id, n);
  }
}

}  // namespace dyc
