#include "exec/cpu/launches_by_offset.h"

namespace dyc {

bool LaunchesByOffset::find() {
  const std::vector<Launch>& launches = launches_.plan().launches;
  outs_.resize(launches.size());
  int64_t next = INT64_MAX;
  for (size_t i = launches.size(); i-- > 0;)
    outs_[i] = next = is_elsewhere(launches[i]) ? next : launches[i].out;
  return std::is_sorted(outs_.begin(), outs_.end());
}

// Least and greatest offset of an argument over the nodes; of all arguments, where their number differs.
Extremes LaunchesByOffset::first_and_last(const Launch& l, const Operand& o) const {
  if (o.kind == Operand::indexed) {
    const uint32_t n = l.fixed_arity ? l.count : launches_.plan().starts[l.arg_begin + l.count];
    return n ? extremes(launches_.plan().index.data() + o.index, n) : Extremes{-1, -1};
  }
  const bool run = o.kind == Operand::contiguous || o.kind == Operand::strided;
  const int64_t last = !run       ? o.base
                       : o.stride ? o.base + int64_t{l.count - 1} * o.stride
                                  : o.base + l.total - 1;
  return {std::min(o.base, last), std::max(o.base, last)};
}

}  // namespace dyc
