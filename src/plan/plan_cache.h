// Plans of small graphs. A script that makes a graph for each instance makes graphs of few structures again
// and again: sentences of one length, say. For a graph that consists of the same nodes in the same buckets as
// one before, the plan of that one is copied, which takes a fifth of the time of planning.
//
// A structure is the contents of the graph that a plan depends on: signatures, buckets, flags and arguments
// of all nodes, offsets of leaves, and the roots. A plan is kept when its structure comes for the second
// time.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "plan/launch.h"
#include "plan/tuning.h"

namespace dyc {

class PlanCache {
 public:
  // The graph has no plan yet, and the roots need `count` nodes. True: the plan, the offsets of the nodes and
  // the ends of the arena are now as when a graph of this structure was planned.
  bool restore(Graph& graph, std::span<const NodeId> roots, uint32_t count, Plan* plan);
  // The graph that restore() was called for, and did not find, has this plan.
  void keep(Graph& graph, const Plan& plan);
  // What signatures and sites mean has changed.
  void clear();
  uint64_t hits() const { return hits_; }

 private:
  struct CachedPlan {
    std::vector<uint64_t> structure;
    std::vector<int64_t> offsets;
    Plan plan;
    int64_t top, far;  // of the arena, when it was planned
    size_t bytes() const;
  };
  void describe(Graph& graph, std::span<const NodeId> roots);
  bool rests();

  std::vector<uint64_t> structure_;  // of the last graph
  uint64_t hash_ = 0;                // of that
  bool keeps_ = false;               // should its plan be kept?
  uint32_t epoch_ = 0;               // of its buckets
  std::unordered_map<uint64_t, CachedPlan> entries_;
  std::vector<uint64_t> seen_;  // hashes of structures, some of those that came lately
  size_t bytes_ = 0;            // of all entries
  uint64_t hits_ = 0;
  // Where structures hardly ever come again, graphs are not looked at for a while, which doubles each time.
  bool few_ = false;  // came again in the last window
  uint32_t looks_ = 0, found_ = 0, rest_ = 0, next_rest_ = tuning::kPlanLooks;
};

}  // namespace dyc
