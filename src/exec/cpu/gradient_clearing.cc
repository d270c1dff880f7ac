#include "exec/cpu/gradient_clearing.h"

#include <algorithm>

#include "exec/cpu/tuning.h"

namespace dyc {

// The gradient of a product that runs with its loss is never stored.
void GradientClearing::clear(const Launch& l, const std::vector<uint8_t>& live, uint32_t live_nodes) const {
  if (l.loss != kNone) return;
  if (live_nodes == l.count) return clear_floats(launches_.grads() + l.out, static_cast<size_t>(l.total));
  for (uint32_t i = 0; i < l.count; ++i) {
    const LaunchReader::Item it = launches_.item(l, i);
    if (live[it.id]) clear_floats(launches_.grads() + it.out, it.sig->size);
  }
}

void GradientClearing::begin(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes,
                             uint32_t root, bool at_once) {
  const uint32_t n = static_cast<uint32_t>(launches_.plan().launches.size());
  first_clear_.assign(n, kNone);
  if (launches_.full()) return;  // all is zero
  if (at_once || launches_.graph().values_arena.top() <= kInCache) {
    for (uint32_t i = 0; i < n; ++i)
      if (live_nodes[i]) clear(launches_.plan().launches[i], live, live_nodes[i]);
    return;
  }
  next_clear_.resize(n);
  outs_.resize(n);
  const auto is_elsewhere = [](const Launch& l) { return l.kind == OpKind::parameter || l.far; };
  for (uint32_t i = n; i-- > 0;) {
    const Launch& l = launches_.plan().launches[i];
    outs_[i] = !is_elsewhere(l) ? l.out : i + 1 < n ? outs_[i + 1] : INT64_MAX;
  }
  const bool sorted = std::is_sorted(outs_.begin(), outs_.end());
  last_reader_.assign(n, kNone);
  for (uint32_t i = 0; sorted && i < n; ++i)
    if (live_nodes[i]) note_reader(i);
  // Results that are stored elsewhere are cleared at once: readers are found by offset, so none of theirs is.
  for (uint32_t i = 0; i < n; ++i) {
    const Launch& l = launches_.plan().launches[i];
    const uint32_t reader = last_reader_[i];
    if (!live_nodes[i]) continue;
    if (reader == kNone || i == root || is_elsewhere(l)) {
      clear(l, live, live_nodes[i]);
    } else {
      next_clear_[i] = first_clear_[reader];
      first_clear_[reader] = i;
    }
  }
}

void GradientClearing::before(uint32_t begin, uint32_t end, const std::vector<uint8_t>& live,
                              const std::vector<uint32_t>& live_nodes) {
  for (uint32_t reader = begin; reader < end; ++reader)
    for (uint32_t i = first_clear_[reader]; i != kNone; i = next_clear_[i])
      clear(launches_.plan().launches[i], live, live_nodes[i]);
}

// Launches whose results `reader` may read: for each argument all those from its first offset to its last.
// One too many is only zeroed earlier.
void GradientClearing::note_reader(uint32_t reader) {
  const Launch& l = launches_.plan().launches[reader];
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    const Operand& o = launches_.plan().operands[l.operands + k];
    if (o.kind == Operand::unused || (o.kind == Operand::weight && o.base < 0)) continue;
    const auto [first, last] = first_and_last(l, k);
    auto i = std::upper_bound(outs_.begin(), outs_.begin() + reader, first);
    const auto end = std::upper_bound(i, outs_.begin() + reader, last);
    if (i != outs_.begin()) --i;
    for (; i != end; ++i) last_reader_[i - outs_.begin()] = reader;
  }
}

// Least and greatest offset of argument k over the nodes; of all arguments, where their number differs.
Extremes GradientClearing::first_and_last(const Launch& l, uint32_t k) const {
  const Operand& o = launches_.plan().operands[l.operands + k];
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
