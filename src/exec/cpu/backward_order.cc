#include "exec/cpu/backward_order.h"

#include <algorithm>

#include "exec/cpu/tuning.h"

namespace dyc {

bool BackwardOrder::find(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes) {
  if (!repeats(live_nodes)) return false;
  find_levels(live, live_nodes);
  const std::vector<Launch>& all = launches_.plan().launches;
  std::sort(numbers_.begin(), numbers_.end(), [&](uint32_t a, uint32_t b) {
    if (levels_[a] != levels_[b]) return levels_[a] < levels_[b];
    return all[a].batch_key != all[b].batch_key ? all[a].batch_key < all[b].batch_key : a > b;
  });
  groups_.clear();
  for (uint32_t i = 0; i < numbers_.size(); ++i) {
    const uint32_t a = numbers_[i ? i - 1 : 0], b = numbers_[i];
    if (i > 0 && levels_[a] == levels_[b] && may_join(all[a], all[b])) groups_.back().end = i + 1;
    else groups_.push_back({i, i + 1});
  }
  if (groups_.size() > numbers_.size() * kJoinedShare / 100) return false;
  // Numbers of batch keys depend on what the script recorded before, and the order decides the last bits of
  // sums.
  std::sort(groups_.begin(), groups_.end(), [&](const LaunchGroup& x, const LaunchGroup& y) {
    const uint32_t a = numbers_[x.begin], b = numbers_[y.begin];
    return levels_[a] != levels_[b] ? levels_[a] < levels_[b] : a > b;
  });
  return true;
}

// Lists the launches that take part. Are there so many of few kinds that some may run together?
bool BackwardOrder::repeats(const std::vector<uint32_t>& live_nodes) {
  const std::vector<Launch>& all = launches_.plan().launches;
  numbers_.clear();
  seen_.clear();
  size_t kinds = 0;
  for (uint32_t i = 0; i < all.size(); ++i) {
    if (!live_nodes[i]) continue;
    numbers_.push_back(i);
    if (all[i].batch_key >= seen_.size()) seen_.resize(all[i].batch_key + 1);
    if (!seen_[all[i].batch_key]) ++kinds;
    seen_[all[i].batch_key] = 1;
  }
  return kinds <= numbers_.size() * kJoinedShare / 100;
}

// Launches are in an order that respects all dependencies, so each one's level is known before those of what
// it reads.
void BackwardOrder::find_levels(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes) {
  const Graph& graph = launches_.graph();
  const Plan& plan = launches_.plan();
  levels_.assign(plan.launches.size(), 0);
  for (uint32_t i = static_cast<uint32_t>(plan.launches.size()); i-- > 0;) {
    const Launch& l = plan.launches[i];
    if (!live_nodes[i]) continue;
    const bool all = live_nodes[i] == l.count;
    for (uint32_t n = l.nodes; n < l.nodes + l.count; ++n) {
      const NodeId id = plan.nodes[n];
      if (!all && !live[id]) continue;
      const NodeId* args = graph.args(id);
      for (uint32_t k = 0; k < graph.node(id).n_args; ++k) {
        const NodeId base = graph.base_of(args[k]);
        const uint32_t from = base < plan.launch_of.size() ? plan.launch_of[base] : kNone;
        if (from != kNone) levels_[from] = std::max(levels_[from], levels_[i] + 1);
      }
    }
  }
}

// Large launches are as fast alone, and threads can share them.
bool BackwardOrder::is_small(const Launch& l) const {
  switch (l.kind) {
    case OpKind::matmul:
      return launches_.graph().sig_number(l.sig).columns && l.loss == kNone;
    case OpKind::unary:
    case OpKind::binary:
    case OpKind::per_node:
    case OpKind::lookup:
      return l.total <= kJoinedFloats && l.loss == kNone && l.product == kNone;
    default:
      return false;
  }
}

bool BackwardOrder::may_join(const Launch& a, const Launch& b) const {
  if (a.batch_key != b.batch_key || a.flat != b.flat || a.fixed_arity != b.fixed_arity) return false;
  if (a.n_operands != b.n_operands || a.requires_grad_args != b.requires_grad_args) return false;
  if (!is_small(a) || !is_small(b)) return false;
  for (uint32_t k = 0; k < a.n_operands; ++k) {
    const Operand &x = launches_.operand(a, k), &y = launches_.operand(b, k);
    const auto is_fixed = [](const Operand& o) {
      return o.kind == Operand::weight || o.kind == Operand::unused;
    };
    if (!is_fixed(x) && !is_fixed(y)) continue;
    if (x.kind != y.kind || x.node != y.node || x.base != y.base) return false;
  }
  return true;
}

}  // namespace dyc
