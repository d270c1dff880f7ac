#include "exec/cpu/backward_order.h"

#include <algorithm>

#include "exec/cpu/tuning.h"

namespace dyc {

bool BackwardOrder::find(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes) {
  live_ = &live;
  live_nodes_ = &live_nodes;
  const Plan& plan = launches_.plan();
  const auto n = static_cast<uint32_t>(plan.launches.size());
  levels_.assign(n, 0);
  units_.clear();
  std::vector<uint32_t> heads;  // of groups, which are found from their heads on
  for (uint32_t i = 0; i < n; i += 1 + plan.launches[i].elementwise + plan.launches[i].fused) {
    if (plan.launches[i].loss != kNone || plan.launches[i].product != kNone) return false;
    heads.push_back(i);
  }
  for (uint32_t end = n; !heads.empty(); heads.pop_back()) {
    const uint32_t head = heads.back();
    if (is_small(head, end))
      for (uint32_t i = end; i-- > head;) add(i, i + 1);
    else add(head, end);
    end = head;
  }
  join();
  return firsts_.size() * kJoinedShare < units_.size() * (kJoinedShare - 1);
}

// Adds what is live. All that read these launches were added before.
void BackwardOrder::add(uint32_t begin, uint32_t end) {
  uint32_t level = 0;
  bool any = false;
  for (uint32_t i = begin; i < end; ++i) {
    any = any || (*live_nodes_)[i];
    level = std::max(level, levels_[i]);
  }
  if (!any) return;
  units_.push_back({begin, end, level, 0});
  for (uint32_t i = begin; i < end; ++i)
    if ((*live_nodes_)[i]) raise_arguments(i, level + 1);
}

void BackwardOrder::raise_arguments(uint32_t launch, uint32_t level) {
  const Graph& graph = launches_.graph();
  const Plan& plan = launches_.plan();
  const Launch& l = plan.launches[launch];
  for (uint32_t i = 0; i < l.count; ++i) {
    const NodeId id = plan.nodes[l.nodes + i];
    if (!(*live_)[id]) continue;
    const NodeId* args = graph.args(id);
    for (uint32_t k = 0; k < graph.node(id).n_args; ++k) {
      const NodeId base = graph.base_of(args[k]);
      const uint32_t maker = base < plan.launch_of.size() ? plan.launch_of[base] : kNone;
      if (maker != kNone) levels_[maker] = std::max(levels_[maker], level);
    }
  }
}

// Groups of larger launches run faster as groups.
bool BackwardOrder::is_small(uint32_t begin, uint32_t end) const {
  for (uint32_t i = begin; i < end; ++i)
    if (launches_.plan().launches[i].count > kJoinedNodes) return false;
  return true;
}

// Launches of one batch key. Weights of products are in the key where one weight serves all columns.
bool BackwardOrder::may_join(const Launch& a, const Launch& b) const {
  const auto is_usual = [this](const Launch& l) {
    const bool columns = l.kind != OpKind::matmul || launches_.graph().sig_number(l.sig).columns;
    return columns && l.kind != OpKind::custom && l.kind != OpKind::user && l.kind != OpKind::parameter;
  };
  if (!is_usual(a) || a.n_operands != b.n_operands) return false;
  for (uint32_t k = 0; k < a.n_operands; ++k) {
    const Operand &x = launches_.operand(a, k), &y = launches_.operand(b, k);
    const bool weight = x.kind == Operand::weight;
    if (weight != (y.kind == Operand::weight) || (weight && (x.node != y.node || x.base != y.base)))
      return false;
  }
  return true;
}

// Sorts by level. Launches of one level are joined in the order of their numbers, the last one first.
void BackwardOrder::join() {
  const std::vector<Launch>& launches = launches_.plan().launches;
  std::stable_sort(units_.begin(), units_.end(),
                   [](const Unit& a, const Unit& b) { return a.level < b.level; });
  firsts_.clear();
  for (uint32_t u = 0; u < units_.size(); ++u) {
    units_[u].group = group_of(u);
    if (units_[u].group == firsts_.size()) firsts_.push_back(u);
  }
  for (const Unit& unit : units_) {
    const uint32_t key = launches[unit.begin].batch_key;
    if (key < group_of_key_.size()) group_of_key_[key] = kNone;
  }
  std::stable_sort(units_.begin(), units_.end(),
                   [](const Unit& a, const Unit& b) { return a.group < b.group; });
  numbers_.clear();
  for (const Unit& unit : units_) numbers_.push_back(unit.begin);
}

// The last group of its batch key that it may join, or a new one.
uint32_t BackwardOrder::group_of(uint32_t unit) {
  const std::vector<Launch>& launches = launches_.plan().launches;
  const Unit& u = units_[unit];
  const Launch& l = launches[u.begin];
  const auto fresh = static_cast<uint32_t>(firsts_.size());
  if (u.end - u.begin > 1 || l.count > kJoinedNodes) return fresh;
  if (l.batch_key >= group_of_key_.size()) group_of_key_.resize(l.batch_key + 64, kNone);
  uint32_t& known = group_of_key_[l.batch_key];
  if (known != kNone) {
    const Unit& first = units_[firsts_[known]];
    if (first.level == u.level && may_join(launches[first.begin], l)) return known;
  }
  return known = fresh;
}

}  // namespace dyc
