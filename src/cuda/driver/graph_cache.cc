#include "cuda/driver/graph_cache.h"

#include <algorithm>

#include "cuda/driver/tuning.h"

namespace dyc::cuda {

using namespace tuning;

namespace {

uint64_t hash_of(GraphCache::List list) {
  uint64_t h = list.size();
  const auto add = [&h](uint64_t word) {
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
  };
  for (const Backend::Operation& o : list) {
    add(reinterpret_cast<uint64_t>(o.kernel) + o.kind);
    add(uint64_t{o.grid.blocks} << 32 | o.grid.threads);
    add(uint64_t{o.grid.shared_bytes} << 1 | o.grid.cooperative);
    add(o.to);
    add(o.from);
    add(o.bytes);
  }
  return h;
}

}  // namespace

GraphCache::Known* GraphCache::known(uint64_t hash, List list) {
  for (Known& k : known_)
    if (k.hash == hash && std::equal(list.begin(), list.end(), k.list.begin(), k.list.end())) {
      k.used = ++turn_;
      return &k;
    }
  ++turn_;
  return nullptr;
}

bool GraphCache::is_worth(List list) {
  const uint64_t hash = hash_of(list);
  return known(hash, list) || seen_often(hash);
}

GraphCache::Graph GraphCache::find(List list) {
  const uint64_t hash = hash_of(list);
  if (const Known* k = known(hash, list)) return k->graph;
  if (!seen_often(hash)) return nullptr;
  evict();
  const Graph graph = make_(list);
  if (graph) known_.push_back({hash, {list.begin(), list.end()}, graph, turn_});
  return graph;
}

// Two lists of one hash make a graph come too early, and nothing worse.
bool GraphCache::seen_often(uint64_t hash) {
  for (Seen& s : seen_)
    if (s.hash == hash) return s.times++ >= kSeenBefore;
  if (seen_.size() < kSeenLists) seen_.push_back({hash, 1});
  else seen_[turn_ % kSeenLists] = {hash, 1};
  return false;
}

void GraphCache::evict() {
  if (known_.size() < kMostGraphs) return;
  const auto oldest = std::min_element(known_.begin(), known_.end(),
                                       [](const Known& a, const Known& b) { return a.used < b.used; });
  drop_(oldest->graph);
  known_.erase(oldest);
}

void GraphCache::clear() {
  for (const Known& k : known_) drop_(k.graph);
  known_.clear();
}

}  // namespace dyc::cuda
