// From a demanded node to launch records: select what is unplaced, order it into launches, give every
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

  // Appends launches for every unplaced node that `roots`, which ascend, need. With `everything`: all
  // unplaced nodes up to the last root (what DyNet's forward() promises).
  void demand(std::span<const NodeId> roots, Scheduler scheduler, bool everything);
  // The graph was renewed or cut back.
  void forget();
  // Class numbers mean something else from now on.
  void forget_orders() {
    memory_.clear();
    class_seen_.clear();
  }
  // The nodes of the last demand could not be computed.
  void take_back();
  void limit(uint32_t nodes) { low_ = low_ < nodes ? low_ : nodes; }

  // Launch count per scheduler for what `root` needs, without planning it; and the lower bound.
  struct Counts {
    uint32_t nodes, bucket, depth, agenda, lower_bound;
  };
  Counts count(NodeId root);

  // Number of the launches that compute `root` where they compute nothing else and all nodes up to it lead to
  // it; else 0.
  uint32_t whole(NodeId root) const { return root == whole_ ? whole_launches_ : 0; }

  NodeId first_pending() const { return low_; }  // every node below has been placed

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
  const BucketOrder& order_rounds();
  const BucketOrder& order_steps();
  bool has_nests();
  void tally_buckets();
  void connect_buckets();
  const BucketOrder& remembered_order();
  void open_buckets(const BucketOrder& order);
  void open_groups(Scheduler scheduler);
  uint32_t open(uint32_t sig, uint32_t count, int64_t floats, bool mixed);

  template <class Slot>
  void fill(Slot&& slot);

  // ---- describe.cc: where everything lies
  void describe(uint32_t launch);
  void inspect_members(Launch& l);
  Operand describe_weight(const Launch& l, uint32_t k);
  Operand describe_run(const Launch& l, uint32_t k, uint32_t begin) const;
  Operand describe_mixed(const Launch& l, uint32_t k);
  void describe_lists(Launch& l);
  int64_t located(NodeId id);
  int64_t copy_parameter(NodeId id);
  void insert_copies();

  // ---- fuse.cc: launches that run together
  struct Span {
    int64_t begin, end;
  };
  void fuse(uint32_t first);
  uint32_t chain_end(uint32_t head) const;
  bool joins_chain(const Launch& head, uint32_t first, uint32_t last) const;
  uint32_t block_end(uint32_t head, uint32_t begin);
  bool joins_block(uint32_t head, uint32_t at, uint32_t begin);
  void cut_piece(const Launch& l, uint32_t n, uint32_t j);
  Span span(const Launch& l, uint32_t k) const;
  bool reads_own_instance(const Launch& piece, int64_t low, uint32_t begin) const;
  bool outside(const Launch& piece, uint32_t k, int64_t low) const;
  bool made_by(const Span& s, const Operand& o, uint32_t begin, uint32_t n) const;
  void close_block(Launch& head, uint32_t more, uint32_t begin);
  bool gradients_apart(const Launch& head);
  bool targets_apart();
  struct Target {  // of gradients of a block
    Operand o;
    Span span;
    int64_t size;
    uint32_t count;
  };
  struct Place {
    int64_t begin, end;
    uint32_t instance;
  };
  std::vector<Target> targets_;
  std::vector<Place> places_;

  Graph& graph_;
  NodeId low_ = 0;               // every node below is placed
  NodeId whole_ = kNone;         // root of the first demand, where all nodes up to it led to it
  uint32_t whole_launches_ = 0;  // and its launches

  // ---- of the demand in hand: all unplaced nodes of from_ .. to_ - 1, or those in wanted_, or in list_
  NodeId from_ = 0, to_ = 0;
  uint32_t pending_ = 0;  // how many
  bool marked_ = false;   // not all unplaced ones
  bool listed_ = false;   // with marked_: list_ has them, ascending
  std::vector<uint8_t> wanted_;
  std::vector<NodeId> list_;
  std::vector<NodeId> owners_;
  uint32_t first_ = 0;                // its first launch
  uint32_t members_end_ = 0;          // what its launches take of plan.members and plan.index
  size_t index_end_ = 0;              //
  std::vector<uint32_t> args_begin_;  // per launch: where in plan.index its arguments' runs start, or kNone
  std::vector<NodeId> copies_;        // parameters read like ordinary values: copied before all else
  uint32_t copies_expected_ = 0;      // launches kept free for them: as many as the last demand had
  Groups groups_;

  // Where the next node of a bucket (or group) goes.
  struct Share {
    int64_t out;       // its result
    uint32_t size;     // floats of that; 0: members differ
    uint32_t member;   // in plan.members
    uint32_t index;    // its first argument's place in plan.index; kNone: described afterwards
    uint32_t stride;   // from one argument's run to the next
    uint32_t step;     // from one member to the next
    uint32_t launch;   // its launch
    uint32_t next;     // launches from one member to the next: 0 or, for solo ops, 1
    uint32_t weights;  // bit k: argument k is a weight
  };
  std::vector<Share> shares_;
  Share share(uint32_t launch) const;

  std::vector<uint32_t> class_seen_;
  uint32_t class_epoch_ = 0;

  // ---- bucket scheduling
  BucketGraph buckets_;
  struct Keyed {
    uint64_t key;
    uint32_t site, bucket;
  };
  std::vector<Keyed> used_;      // in key order: local number -> bucket
  std::vector<uint32_t> local_;  // bucket -> local number
  std::vector<Tally> tallies_;   // per bucket, when the graph's own do not fit the selection
  const Tally& tally(uint32_t bucket) const {
    return marked_ ? tallies_[bucket] : graph_.bucket(bucket).tally;
  }
  struct Remembered {
    BucketGraph graph;
    BucketOrder order;
  };
  std::unordered_map<uint64_t, Remembered> memory_;

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
  const int64_t* places = graph_.places();
  for (NodeId id = from_; id < to_; ++id) {
    const Node& n = graph_.node(id);
    if (!(n.flags & (Node::leaf | Node::alias)) && places[id] == kPending) f(id, n);
  }
}

}  // namespace dyc
