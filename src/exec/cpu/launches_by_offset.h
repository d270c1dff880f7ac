// Which launches made what a launch reads, found by the offsets of their results.
#pragma once
#include <algorithm>
#include <vector>

#include "exec/launch_reader.h"

namespace dyc {

class LaunchesByOffset {
 public:
  explicit LaunchesByOffset(const LaunchReader& launches) : launches_(launches) {}

  // False, and nothing is found, if results do not lie in the order of launches.
  bool find();
  // Are the results stored apart from those of other launches? They are not found.
  static bool is_elsewhere(const Launch& l) { return l.kind == OpKind::parameter || l.far; }
  // f(launch) for those whose results argument k of `reader` may read: all from its first offset to its last,
  // so there may be one too many.
  template <class F>
  void each_read(uint32_t reader, uint32_t k, F&& f) const;

 private:
  Extremes first_and_last(const Launch& l, const Operand& o) const;

  const LaunchReader& launches_;
  std::vector<int64_t> outs_;  // per launch: offset of its results
};

template <class F>
void LaunchesByOffset::each_read(uint32_t reader, uint32_t k, F&& f) const {
  const Launch& l = launches_.plan().launches[reader];
  const Operand& o = launches_.operand(l, k);
  if (o.kind == Operand::unused || (o.kind == Operand::weight && o.base < 0)) return;
  const auto [first, last] = first_and_last(l, o);
  auto i = std::upper_bound(outs_.begin(), outs_.begin() + reader, first);
  const auto end = std::upper_bound(i, outs_.begin() + reader, last);
  if (i != outs_.begin()) --i;
  for (; i != end; ++i) f(static_cast<uint32_t>(i - outs_.begin()));
}

}  // namespace dyc
