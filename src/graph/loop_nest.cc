#include "graph/loop_nest.h"

#include <algorithm>

#include "graph/components.h"
#include "graph/tuning.h"

namespace dyc {

namespace {

bool owns_weight(const Sites& sites, uint32_t site) { return sites[site].ancestor_keys.empty(); }

// The edges inside of a component, whose sites ascend; numbers are indices into it.
std::vector<std::vector<uint32_t>> inner_edges(const Sites& sites, const std::vector<uint32_t>& component) {
  std::vector<std::vector<uint32_t>> edges(component.size());
  for (size_t i = 0; i < component.size(); ++i)
    for (const uint32_t p : sites[component[i]].producers) {
      const auto at = std::lower_bound(component.begin(), component.end(), p);
      if (at != component.end() && *at == p)
        edges[i].push_back(static_cast<uint32_t>(at - component.begin()));
    }
  return edges;
}

}  // namespace

void LoopNest::derive(const Sites& sites, const std::vector<uint32_t>& counts) {
  loop_.assign(sites.size(), kNoLoop);
  loops_ = 0;
  std::vector<std::vector<uint32_t>> phases;
  for (uint32_t s = 0; s < sites.size(); ++s) {
    const uint32_t phase = sites.phase(s);
    if (phase >= phases.size()) phases.resize(phase + 1);
    if (counts[s]) phases[phase].push_back(s);
  }
  for (auto& component : phases) {
    if (component.size() < tuning::kNestSites) continue;
    const uint32_t before = loops_;
    split(sites, counts, component);
    if (loops_ - before > 1) continue;  // else there is one loop only, or none
    for (const uint32_t s : component) loop_[s] = kNoLoop;
    loops_ = before;
  }
}

// Numbers the loops of a component, the outer one first.
void LoopNest::split(const Sites& sites, const std::vector<uint32_t>& counts,
                     std::vector<uint32_t> component) {
  uint32_t least = ~0u;
  for (const uint32_t s : component)
    if (owns_weight(sites, s)) least = std::min(least, counts[s]);
  if (least == ~0u) return;
  const uint32_t outer = loops_++;
  std::vector<uint32_t> rest;  // of the component without the sites of the outer loop alone
  for (const uint32_t s : component) {
    const bool weight = owns_weight(sites, s);
    const bool often = counts[s] > least + least / tuning::kInnerExcess;
    loop_[s] = weight ? outer : kFollowsArgs;
    if (!weight || often) rest.push_back(s);
  }
  const auto edges = inner_edges(sites, rest);
  std::vector<std::vector<uint32_t>> inside;
  for_each_component(
      static_cast<uint32_t>(rest.size()),
      [&](uint32_t i) -> const std::vector<uint32_t>& { return edges[i]; },
      [&](const std::vector<uint32_t>& found) {
        const bool weights =
            std::any_of(found.begin(), found.end(), [&](uint32_t i) { return owns_weight(sites, rest[i]); });
        const bool cycle = found.size() > 1;
        if (!weights || !cycle) return;
        inside.emplace_back();
        for (const uint32_t i : found) inside.back().push_back(rest[i]);
        std::sort(inside.back().begin(), inside.back().end());
      });
  for (auto& loop : inside) split(sites, counts, loop);
}

}  // namespace dyc
