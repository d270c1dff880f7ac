// In which order the buckets of a selection are launched. Nested loops have two candidates: by rounds, as
// recorded, and by the time steps of a SegmentSchedule; the one with fewer launches is used and compared
// again now and then.
#pragma once
#include <unordered_map>
#include <vector>

#include "graph/loop_nest.h"
#include "graph/segment_schedule.h"
#include "plan/schedule.h"
#include "plan/selection.h"
#include "plan/tuning.h"

namespace dyc {

class BucketScheduler {
 public:
  BucketScheduler(Graph& graph, const Selection& selection) : graph_(graph), selection_(selection) {}

  // True for a few selected nodes of which no two have the same batch key: they run in record order.
  bool nothing_to_batch();
  // The launches in order, each as a list of active buckets.
  const BucketOrder& order();
  // The number of launches that order() would return. Remembers nothing for later plans.
  uint32_t count_launches();

  // Of an active bucket: its number in the graph, and its selected nodes.
  uint32_t bucket(uint32_t active) const { return active_[active].bucket; }
  const BucketStats& stats(uint32_t active) const { return stats_of(active_[active].bucket); }
  // The tables of signatures were given up, so batch keys have new meanings.
  void forget_orders() {
    cache_ = {};
    key_seen_.clear();
  }

 private:
  const BucketOrder& order_by_rounds();
  const BucketOrder& order_by_segments();
  bool has_nested_loops();
  void count_buckets();
  void add_active(uint32_t bucket);
  void connect_buckets();
  const BucketOrder& cached_order();
  const BucketStats& stats_of(uint32_t bucket) const {
    return selection_.all_pending() ? graph_.buckets()[bucket].stats : stats_[bucket];
  }

  Graph& graph_;
  const Selection& selection_;
  std::vector<uint32_t> key_seen_;  // batch key -> the last nothing_to_batch() that saw it
  uint32_t key_epoch_ = 0;

  struct ActiveBucket {
    uint64_t key;
    uint32_t site, bucket;
  };
  std::vector<ActiveBucket> active_;  // those with selected nodes, in key order
  std::vector<uint32_t> number_;      // bucket of the graph -> index in active_, or kNone
  std::vector<BucketStats> stats_;    // per bucket of the graph: counts of the selected nodes alone
  std::vector<uint32_t> counted_;     // buckets of which stats_ has a count that is not 0
  BucketGraph buckets_;               // the active ones
  struct CachedOrder {
    BucketGraph graph;
    BucketOrder order;
  };
  struct OrderCache {
    std::unordered_map<uint64_t, CachedOrder> orders;
    size_t buckets = 0;  // of all of these, and one for each
  };
  OrderCache cache_;

  struct Nested {
    LoopNest nest;
    SegmentSchedule schedule;
    uint32_t tables = 0, derived = 0;  // of the sites that the nest was found in
    std::vector<uint32_t> counts;      // nodes of each site
  };
  Nested nested_;
  struct OrderChoice {
    bool by_segments = false;            // took fewer launches
    uint32_t keep = 0;                   // for so many plans
    uint32_t next = tuning::kOrderKept;  // and for so many after the next comparison
  };
  std::unordered_map<uint32_t, OrderChoice> choices_;  // by the site of the last root
};

}  // namespace dyc
