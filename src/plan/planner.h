// From roots to launches: select the pending nodes that the roots need (Selection), order them into launches
// (BucketScheduler), give every result its offset (LaunchWriter), resolve every operand (OperandResolver),
// and group launches that run together (Fuser). Small graphs may have the plan of one before (PlanCache).
#pragma once
#include <span>
#include <vector>

#include "plan/bucket_scheduler.h"
#include "plan/column_losses.h"
#include "plan/fuse.h"
#include "plan/launch_writer.h"
#include "plan/operands.h"
#include "plan/plan_cache.h"

namespace dyc {

class Planner {
 public:
  explicit Planner(Graph& graph);

  Plan plan;
  bool pair_losses = false;  // where the executor computes pairs of a product and its loss

  // Appends launches for every pending node that `roots`, which ascend, need. With `everything`: all pending
  // nodes up to the last root (what DyNet's forward() promises).
  void plan_roots(std::span<const NodeId> roots, Scheduler scheduler, bool everything);
  // The nodes of the last call could not be computed.
  void discard_last();
  // The graph was renewed or cut back.
  void forget();
  void limit(uint32_t nodes) { selection_.limit(nodes); }
  // The tables of signatures were given up, so batch keys have new meanings.
  void forget_orders() {
    scheduler_.forget_orders();
    cache_.clear();
  }
  // Plans that were copied from those of graphs of the same structure.
  uint64_t copied_plans() const { return cache_.hits(); }

  // Launch count per scheduler for what `root` needs, without planning it; and the lower bound.
  struct Counts {
    uint32_t nodes, bucket, depth, agenda, lower_bound;
  };
  Counts count(NodeId root);

  // The number of launches of the first plan if `root` was its only root and every node recorded before
  // `root` was an ancestor of it; otherwise 0.
  uint32_t launches_of_single_root(NodeId root) const {
    return root == single_root_.node ? single_root_.launches : 0;
  }
  NodeId first_pending() const { return selection_.first_pending(); }
  uint32_t launch_of(NodeId id) const { return id < plan.launch_of.size() ? plan.launch_of[id] : kNone; }

 private:
  void make_plan(Scheduler scheduler, uint32_t first);
  void open_buckets(const BucketOrder& order);
  void open_groups(Scheduler scheduler);

  Graph& graph_;
  Selection selection_;
  BucketScheduler scheduler_;
  OperandResolver operands_;
  ColumnLossPairs pairs_;
  LaunchWriter writer_;
  Fuser fuser_;
  PlanCache cache_;
  struct SingleRoot {  // of the first plan, see launches_of_single_root()
    NodeId node = kNone;
    uint32_t launches = 0;
  };
  SingleRoot single_root_;

  struct Grouping {
    Groups groups;
    std::vector<uint32_t> of;  // selected node -> group
  };
  Grouping grouping_;  // of the schedulers to compare with
};

}  // namespace dyc
