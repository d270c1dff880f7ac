#include "graph/buckets.h"

namespace dyc {

uint32_t BucketTable::find(Sites& sites, uint32_t site, uint32_t round, uint32_t epoch) {
  Site& s = sites[site];
  if (s.epoch != epoch) {
    s.epoch = epoch;
    s.buckets.clear();
  }
  if (round >= s.buckets.size()) s.buckets.resize(round + 1, kNoEdge);
  uint32_t& b = s.buckets[round];
  if (b == kNoEdge) {
    b = size();
    buckets_.push_back({site, round, kNoEdge, kNoEdge, {}});
  }
  return b;
}

void BucketTable::add_edge(uint32_t pred, uint32_t bucket) {
  buckets_[pred].reader = bucket;
  Bucket& b = buckets_[bucket];
  uint32_t e = b.preds, searched = 0;
  for (; e != kNoEdge && searched < tuning::kEdgesSearched; e = edges_[e].next, ++searched)
    if (edges_[e].pred == pred) return;
  if (searched == tuning::kEdgesSearched) {
    const auto key = [bucket](uint32_t from) { return uint64_t{from} << 32 | bucket; };
    if (e == kNoEdge)  // the first time
      for (e = b.preds; e != kNoEdge; e = edges_[e].next) listed_edges_.insert(key(edges_[e].pred));
    if (!listed_edges_.insert(key(pred)).second) return;
  }
  edges_.push_back({pred, b.preds});
  b.preds = static_cast<uint32_t>(edges_.size() - 1);
}

void BucketTable::clear() {
  buckets_.clear();
  edges_.clear();
  if (!listed_edges_.empty()) listed_edges_.clear();  // its time is that of the table's capacity
}

}  // namespace dyc
