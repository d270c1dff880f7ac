#include "plan/levels.h"

#include <algorithm>
#include <unordered_map>

namespace dyc {

std::vector<Levels> launch_levels(const Graph& graph, const Plan& plan) {
  std::vector<Levels> levels(plan.launches.size());
  std::unordered_map<uint32_t, std::vector<uint32_t>> by_class;
  for (uint32_t i = 0; i < plan.launches.size(); ++i)
    if (plan.launches[i].kind != OpKind::parameter) by_class[plan.launches[i].cls].push_back(i);
  std::vector<uint32_t> level(graph.size());  // of the class in hand, among a node and its ancestors
  for (const auto& [cls, launches] : by_class) {
    if (launches.size() == 1) {
      levels[launches[0]] = {1, 1};
      continue;
    }
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& n = graph.node(id);
      const NodeId* args = graph.args(id);
      const uint32_t n_args = n.flags & Node::alias ? 1 : n.n_args;
      level[id] = 0;
      for (uint32_t k = 0; k < n_args; ++k) level[id] = std::max(level[id], level[args[k]]);
      const uint32_t launch = id < plan.launch_of.size() ? plan.launch_of[id] : kNone;
      if (launch == kNone || plan.launches[launch].kind == OpKind::parameter) continue;
      level[id] += plan.launches[launch].cls == cls;
    }
    for (const uint32_t i : launches) {
      const NodeId* members = plan.members.data() + plan.launches[i].members;
      levels[i] = {level[members[0]], level[members[0]]};
      for (uint32_t k = 1; k < plan.launches[i].count; ++k) {
        levels[i].least = std::min(levels[i].least, level[members[k]]);
        levels[i].most = std::max(levels[i].most, level[members[k]]);
      }
    }
  }
  return levels;
}

}  // namespace dyc
