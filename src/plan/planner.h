// From a demanded node to launch records: collect what is unplaced, group it, give every result its
// place and every operand its description.
#pragma once
#include <unordered_map>
#include <vector>

#include "plan/launch.h"
#include "plan/schedule.h"

namespace dyc {

class Planner {
 public:
  explicit Planner(Graph& graph) : graph_(graph) {}

  Plan plan;

  // Appends launches for every unplaced node that `root` needs. With `everything`: all unplaced
  // nodes up to root (what DyNet's forward() promises).
  void demand(NodeId root, Scheduler scheduler, bool everything);
  // The graph was renewed or cut back.
  void forget();
  void limit(uint32_t nodes) { low_ = low_ < nodes ? low_ : nodes; }

  // Launch count per scheduler for what `root` needs, without planning it; and the lower bound.
  struct Counts {
    uint32_t nodes, bucket, depth, agenda, lower_bound;
  };
  Counts count(NodeId root);

  uint32_t launch_of(NodeId id) const {
    return id < plan.launch_of.size() ? plan.launch_of[id] : kNone;
  }

 private:
  void collect(NodeId root, bool everything);
  void group(Scheduler scheduler);
  void group_by_buckets();
  void sort_into_buckets();
  void connect_buckets();
  const BucketOrder& remembered_order();
  void emit(const NodeId* members, uint32_t count);
  void place_members(Launch& l, const NodeId* members);
  void describe_arguments(Launch& l, const NodeId* members);
  Operand describe(const Launch& l, const NodeId* members, uint32_t k);
  void describe_lists(Launch& l, const NodeId* members);
  int64_t located(NodeId id);
  int64_t materialise(NodeId id);

  Graph& graph_;
  Groups groups_;
  std::vector<uint8_t> wanted_;
  std::vector<NodeId> pending_;  // ascending
  NodeId low_ = 0;               // every node below is placed

  // ---- bucket scheduling
  BucketGraph buckets_;
  std::vector<uint32_t> used_;      // local number -> bucket, in key order
  std::vector<uint32_t> local_;     // bucket -> local number
  std::vector<uint32_t> counts_, begin_, seen_;
  std::vector<NodeId> sorted_;
  struct Remembered {
    BucketGraph graph;
    BucketOrder order;
  };
  std::unordered_map<uint64_t, Remembered> memory_;
};

}  // namespace dyc
