#include "plan/critical_path.h"

#include <algorithm>
#include <unordered_map>

namespace dyc {

std::vector<DepthRange> critical_path_depths(const Graph& graph, const Plan& plan) {
  std::vector<DepthRange> depths(plan.launches.size());
  std::unordered_map<uint32_t, std::vector<uint32_t>> by_key;
  for (uint32_t i = 0; i < plan.launches.size(); ++i)
    if (plan.launches[i].kind != OpKind::parameter) by_key[plan.launches[i].batch_key].push_back(i);
  std::vector<uint32_t> depth(graph.size());  // for the current batch key
  for (const auto& [batch_key, launches] : by_key) {
    if (launches.size() == 1) {
      depths[launches[0]] = {1, 1};
      continue;
    }
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& n = graph.node(id);
      const NodeId* args = graph.args(id);
      depth[id] = 0;
      for (uint32_t k = 0; k < n.n_args; ++k) depth[id] = std::max(depth[id], depth[args[k]]);
      const uint32_t launch = id < plan.launch_of.size() ? plan.launch_of[id] : kNone;
      if (launch == kNone || plan.launches[launch].kind == OpKind::parameter) continue;
      depth[id] += plan.launches[launch].batch_key == batch_key;
    }
    for (const uint32_t i : launches) {
      const NodeId* nodes = plan.nodes.data() + plan.launches[i].nodes;
      depths[i] = {depth[nodes[0]], depth[nodes[0]]};
      for (uint32_t k = 1; k < plan.launches[i].count; ++k) {
        depths[i].least = std::min(depths[i].least, depth[nodes[k]]);
        depths[i].most = std::max(depths[i].most, depth[nodes[k]]);
      }
    }
  }
  return depths;
}

}  // namespace dyc
