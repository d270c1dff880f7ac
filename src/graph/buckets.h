// Buckets of pending nodes. A bucket holds the nodes of one site and one round; the bucket graph has an edge
// wherever a node reads a node of another bucket. Both are kept up to date while nodes are recorded, so that
// a planner need not visit the nodes.
#pragma once
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "graph/sites.h"
#include "graph/tuning.h"

namespace dyc {

// The pending nodes of a bucket.
struct BucketStats {
  uint32_t count = 0;
  uint32_t sig = 0;    // of the first
  bool mixed = false;  // others have another
  int64_t floats = 0;  // of their results
  void add(uint32_t node_sig, uint32_t size) {
    if (count++ == 0) sig = node_sig;
    mixed = mixed || sig != node_sig;
    floats += size;
  }
  void add(const BucketStats& t) {
    if (count == 0) sig = t.sig;
    mixed = mixed || t.mixed || sig != t.sig;
    count += t.count;
    floats += t.floats;
  }
};

struct Bucket {
  uint32_t site, round;
  uint32_t preds = 0xffffffffu;   // first of its edges, a linked list
  uint32_t reader = 0xffffffffu;  // bucket that last recorded an edge from this one
  BucketStats stats;
};

// From a bucket that some node of another bucket reads.
struct BucketEdge {
  uint32_t pred, next;
};

class BucketTable {
 public:
  static constexpr uint32_t kNoEdge = 0xffffffffu;

  // Number of the bucket; made if there is none. `epoch`: buckets of earlier ones are not valid. Compiled
  // into the recorder, as a chain makes a bucket for each node: a call would cost a third of such a node.
  [[gnu::always_inline]] uint32_t find(Sites& sites, uint32_t site, uint32_t round, uint32_t epoch) {
    Site& s = sites[site];
    if (s.epoch != epoch) {
      s.epoch = epoch;
      s.first_bucket = kNoEdge;
    }
    uint32_t& b = round == 0 ? s.first_bucket : later_bucket(s, round, epoch);
    if (b == kNoEdge) {
      b = size();
      buckets_.push_back({site, round, kNoEdge, kNoEdge, {}});
    }
    return b;
  }
  Bucket& operator[](uint32_t b) { return buckets_[b]; }
  const Bucket& operator[](uint32_t b) const { return buckets_[b]; }
  const BucketEdge& edge(uint32_t e) const { return edges_[e]; }
  uint32_t size() const { return static_cast<uint32_t>(buckets_.size()); }
  // A node of `bucket` reads one of `pred`.
  void connect(uint32_t pred, uint32_t bucket) {
    if (buckets_[pred].reader == bucket) return;
    buckets_[pred].reader = bucket;
    if (buckets_[bucket].preds != kNoEdge) return add_edge(pred, bucket);
    buckets_[bucket].preds = static_cast<uint32_t>(edges_.size());  // the first
    edges_.push_back({pred, kNoEdge});
  }
  // No node is pending any more.
  void clear_stats() {
    for (Bucket& b : buckets_) b.stats = {};
  }
  void clear();

 private:
  static uint32_t& later_bucket(Site& s, uint32_t round, uint32_t epoch) {
    if (s.later_epoch != epoch) {
      s.later_epoch = epoch;
      s.later_buckets.clear();
    }
    if (round > s.later_buckets.size()) s.later_buckets.resize(round, kNoEdge);
    return s.later_buckets[round - 1];
  }
  void add_edge(uint32_t pred, uint32_t bucket);  // where it has edges already
  std::vector<Bucket> buckets_;
  std::vector<BucketEdge> edges_;
  std::unordered_set<uint64_t> listed_edges_;  // of buckets with many predecessors: predecessor, bucket
};

}  // namespace dyc
