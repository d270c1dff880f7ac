// Products that only a loss reads: their results, one column per loss, are turned into losses while they are
// in the cache, and are not stored. Between the two there may be launches that each read only the one before,
// column by column: a bias that is added, and a softmax of which one element is picked (ColumnRole). Until it
// is known that nothing else reads these results they get memory at the far end of the arena, which costs
// nothing while it is not written.
#pragma once
#include <vector>

#include "graph/buckets.h"
#include "plan/launch.h"

namespace dyc {

class ColumnLossPairs {
 public:
  ColumnLossPairs(Graph& graph, Plan& plan) : graph_(graph), plan_(plan) {}

  // Are these nodes of which the columns may be read one by one, by a loss among `groups`, or on the way to
  // it? stats_of(group): its BucketStats.
  template <class Groups, class Stats>
  bool may_pair(const BucketStats& all, const Groups& groups, Stats&& stats_of) const;
  // From launch `first` on, pairs each product whose memory is at the far end with its loss.
  void pair(uint32_t first) const;

 private:
  bool is_large(const BucketStats& all) const;
  ColumnRole role_of(const BucketStats& reader, const BucketStats& all) const;
  uint32_t loss_of(uint32_t product) const;
  uint32_t only_reader(uint32_t launch) const;
  bool reads_all(const Launch& reader, const Launch& l) const;
  bool adds_vector(const Launch& l, uint32_t product) const;

  Graph& graph_;
  Plan& plan_;
};

template <class Groups, class Stats>
bool ColumnLossPairs::may_pair(const BucketStats& all, const Groups& groups, Stats&& stats_of) const {
  if (!is_large(all)) return false;
  bool maps = op_info(graph_.sig_number(all.sig).op).column_role == ColumnRole::maps, picks = false;
  for (const auto& group : groups) {
    const ColumnRole role = role_of(stats_of(group), all);
    if (role == ColumnRole::loss) return true;
    maps = maps || role == ColumnRole::maps;
    picks = picks || role == ColumnRole::picks;
  }
  return maps && picks;
}

// Which operand of `adds` is added to the product, its other one.
uint32_t added_operand(const Plan& plan, const Launch& adds, const Launch& product);
// Does a launch read any of the floats [begin, end) of the value arena?
bool reads(const Graph& graph, const Plan& plan, const Launch& l, int64_t begin, int64_t end);

}  // namespace dyc
