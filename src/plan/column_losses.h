// Products that only a loss reads: their results, one column per loss, are turned into losses while they are
// in the cache, and are not stored. Until it is known that nothing else reads them they get memory at the far
// end of the arena, which costs nothing while it is not written.
#pragma once
#include <vector>

#include "graph/buckets.h"
#include "plan/launch.h"

namespace dyc {

class ColumnLossPairs {
 public:
  ColumnLossPairs(Graph& graph, Plan& plan) : graph_(graph), plan_(plan) {}

  // Are the nodes of `all` products that a loss may read column by column?
  bool may_pair(const BucketStats& all) const;
  // And those of `loss` their losses?
  bool may_pair(const BucketStats& all, const BucketStats& loss) const;
  // Pairs the products from launch `first` on that are at the far end with their losses.
  void pair(uint32_t first) const;

 private:
  uint32_t loss_of(uint32_t product) const;
  bool reads_all(const Launch& loss, const Launch& product) const;

  Graph& graph_;
  Plan& plan_;
};

// Does a launch read any of the floats [begin, end) of the value arena?
bool reads(const Graph& graph, const Plan& plan, const Launch& l, int64_t begin, int64_t end);

}  // namespace dyc
