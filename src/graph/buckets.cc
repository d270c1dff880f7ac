#include "graph/buckets.h"

namespace dyc {

void BucketTable::add_edge(uint32_t pred, uint32_t bucket) {
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
