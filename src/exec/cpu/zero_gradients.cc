// When gradients are zeroed: before the first launch that adds to them runs backward, the last one that
// reads the values, so that the zeros are still in the cache.
#include <algorithm>
#include <cstring>

#include "exec/cpu/cpu_executor.h"

namespace dyc {

namespace {

constexpr int64_t kInCache = 64 * 1024;  // floats that stay in the cache for all of backward

}  // namespace

void CpuExecutor::clear_gradient(const Launch& l) {
  std::memset(grads() + l.out, 0, static_cast<size_t>(l.total) * 4);
}

void CpuExecutor::clear_gradients(const std::vector<uint32_t>& live_nodes, uint32_t root) {
  const uint32_t n = static_cast<uint32_t>(plan_.launches.size());
  first_clear_.assign(n, kNone);
  if (full_) return;  // all is zero
  if (graph_.values_arena.top() <= kInCache) {
    for (uint32_t i = 0; i < n; ++i)
      if (live_nodes[i]) clear_gradient(plan_.launches[i]);
    return;
  }
  next_clear_.resize(n);
  outs_.resize(n);
  // Copies of parameters lie elsewhere: no place is in them.
  for (uint32_t i = n; i-- > 0;) {
    const Launch& l = plan_.launches[i];
    outs_[i] = l.kind != OpKind::parameter ? l.out : i + 1 < n ? outs_[i + 1] : INT64_MAX;
  }
  const bool sorted = std::is_sorted(outs_.begin(), outs_.end());
  last_reader_.assign(n, kNone);
  for (uint32_t i = 0; sorted && i < n; ++i)
    if (live_nodes[i]) note_reader(i);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t reader = last_reader_[i];
    if (!live_nodes[i]) continue;
    if (reader == kNone || i == root || plan_.launches[i].kind == OpKind::parameter) {
      clear_gradient(plan_.launches[i]);
    } else {
      next_clear_[i] = first_clear_[reader];
      first_clear_[reader] = i;
    }
  }
}

void CpuExecutor::clear_read_by(uint32_t begin, uint32_t end) {
  for (uint32_t reader = begin; reader < end; ++reader)
    for (uint32_t i = first_clear_[reader]; i != kNone; i = next_clear_[i]) clear_gradient(plan_.launches[i]);
}

// Launches whose results `reader` may read: for each argument all those from the first place that it has to
// the last one. One too many is only zeroed earlier.
void CpuExecutor::note_reader(uint32_t reader) {
  const Launch& l = plan_.launches[reader];
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    const Operand& o = plan_.operands[l.operands + k];
    if (o.kind == Operand::unused || (o.kind == Operand::weight && o.base < 0)) continue;
    const auto [first, last] = first_and_last(l, k);
    auto i = std::upper_bound(outs_.begin(), outs_.begin() + reader, first);
    const auto end = std::upper_bound(i, outs_.begin() + reader, last);
    if (i != outs_.begin()) --i;
    for (; i != end; ++i) last_reader_[i - outs_.begin()] = reader;
  }
}

// Places of argument k of the members, least and greatest; or of all arguments, where their number differs.
std::pair<int64_t, int64_t> CpuExecutor::first_and_last(const Launch& l, uint32_t k) const {
  const Operand& o = plan_.operands[l.operands + k];
  if (o.kind == Operand::indexed) {
    const auto begin = plan_.index.begin() + o.index;
    const auto end = begin + (l.fixed_arity ? l.count : plan_.starts[l.arg_begin + l.count]);
    if (begin == end) return {-1, -1};
    const auto [least, greatest] = std::minmax_element(begin, end);
    return {*least, *greatest};
  }
  const bool run = o.kind == Operand::contiguous || o.kind == Operand::strided;
  const int64_t last = !run       ? o.base
                       : o.stride ? o.base + int64_t{l.count - 1} * o.stride
                                  : o.base + l.total - 1;
  return {std::min(o.base, last), std::max(o.base, last)};
}

}  // namespace dyc
