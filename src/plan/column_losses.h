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

  // Are these nodes products whose columns a loss may read one by one?
  bool may_pair(const BucketStats& all) const;
  // Are the nodes of `loss` the losses of these products?
  bool may_pair(const BucketStats& all, const BucketStats& loss) const;
  // From launch `first` on, pairs each product whose memory is at the far end with its loss.
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
