#include "plan/plan_cache.h"

#include <algorithm>
#include <utility>

#include "base/vectors.h"
#include "graph/intern.h"

namespace dyc {

namespace {

uint64_t both(uint64_t low, uint64_t high) { return low | high << 32; }

// Four independent chains of multiplications, as each multiplication waits for the one before it.
uint64_t hash_of(const std::vector<uint64_t>& words) {
  uint64_t h[4] = {1, 2, 3, words.size()};
  size_t i = 0;
  for (; i + 4 <= words.size(); i += 4)
    for (size_t k = 0; k < 4; ++k) h[k] = mix(h[k], words[i + k]);
  for (; i < words.size(); ++i) h[0] = mix(h[0], words[i]);
  return mix(mix(h[0], h[1]), mix(h[2], h[3]));
}

}  // namespace

size_t PlanCache::CachedPlan::bytes() const {
  return sizeof *this + bytes_in(structure) + bytes_in(offsets) + plan.bytes();
}

void PlanCache::clear() {
  entries_.clear();
  seen_.clear();
  bytes_ = 0;
  keeps_ = false;
}

void PlanCache::describe(Graph& graph, std::span<const NodeId> roots) {
  std::vector<uint64_t>& s = structure_;
  s.clear();
  const uint32_t n = graph.size();
  const BucketTable& buckets = graph.buckets();
  s.push_back(both(n, buckets.size()));
  s.push_back(both(graph.n_arguments(), roots.size()));
  s.push_back(static_cast<uint64_t>(graph.values_arena.top()));
  s.push_back(static_cast<uint64_t>(graph.values_arena.far()));
  for (const NodeId root : roots) s.push_back(root);
  for (uint32_t b = 0; b < buckets.size(); ++b) {  // phases are derived again, and buckets ordered by them
    s.push_back(both(buckets[b].site, buckets[b].round));
    s.push_back(graph.sites().phase(buckets[b].site));
  }
  const size_t first = s.size();
  s.resize(first + 3 * size_t{n});
  uint64_t* to = s.data() + first;
  const Node* const nodes = graph.nodes();
  const int64_t* const offsets = graph.offsets();
  for (uint32_t i = 0; i < n; ++i) {
    const Node& node = nodes[i];
    const bool leaf = node.flags & Node::leaf;
    const uint32_t at = leaf ? static_cast<uint32_t>(offsets[i]) : node.flags & Node::view ? node.aux : 0;
    *to++ = both(node.sig, leaf ? 0 : node.bucket);
    *to++ = both(node.flags | uint32_t{node.value_number != 0} << 8, at);
    *to++ = both(node.args, node.n_args);
  }
  const NodeId* const pool = graph.arg_pool();  // all of it: nodes that are merged have more than n_args
  const uint32_t args = graph.n_arguments();
  for (uint32_t i = 0; i < args; i += 2) s.push_back(both(pool[i], i + 1 < args ? pool[i + 1] : 0));
}

// Is the graph not looked at? Where few plans were of use, or there is no room for more, others may be of
// more use than those of another time.
bool PlanCache::rests() {
  if (rest_ > 0) return --rest_ > 0;
  if (++looks_ < tuning::kPlanLooks) return false;
  const bool few = found_ < looks_ / tuning::kPlanShare;
  looks_ = found_ = 0;
  if (few || bytes_ > tuning::kPlanBytes) clear();
  if (!few) next_rest_ = tuning::kPlanLooks;
  if (!std::exchange(few_, few) || !few) return false;
  rest_ = next_rest_;
  next_rest_ = std::min(2 * next_rest_, tuning::kMostPlanRest);
  return true;
}

bool PlanCache::restore(Graph& graph, std::span<const NodeId> roots, uint32_t count, Plan* plan) {
  keeps_ = false;
  const bool small = graph.size() <= tuning::kMostCached && graph.n_arguments() <= 4 * tuning::kMostCached;
  if (count < tuning::kFewestCached || !small || rests()) return false;
  describe(graph, roots);
  hash_ = hash_of(structure_);
  const auto at = entries_.find(hash_);
  if (at == entries_.end()) {
    if (seen_.empty()) seen_.resize(tuning::kSeenStructures);
    keeps_ = std::exchange(seen_[hash_ % tuning::kSeenStructures], hash_) == hash_;
    epoch_ = graph.epoch();
    return false;
  }
  const CachedPlan& e = at->second;
  if (e.structure != structure_) return false;
  ++hits_;
  ++found_;
  *plan = e.plan;
  std::copy(e.offsets.begin(), e.offsets.end(), graph.offsets());
  graph.values_arena.reset(e.top, e.far);
  return true;
}

void PlanCache::keep(Graph& graph, const Plan& plan) {
  if (!keeps_ || graph.epoch() != epoch_ || bytes_ > tuning::kPlanBytes) return;
  const int64_t* const offsets = graph.offsets();
  CachedPlan entry{structure_,
                   {offsets, offsets + graph.size()},
                   plan,
                   graph.values_arena.top(),
                   graph.values_arena.far()};
  bytes_ += entry.bytes();
  entries_.emplace(hash_, std::move(entry));
}

}  // namespace dyc
