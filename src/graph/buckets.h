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

  // Number of the bucket; made if there is none. `epoch`: buckets of earlier ones are not valid.
  uint32_t find(Sites& sites, uint32_t site, uint32_t round, uint32_t epoch);
  Bucket& operator[](uint32_t b) { return buckets_[b]; }
  const Bucket& operator[](uint32_t b) const { return buckets_[b]; }
  const BucketEdge& edge(uint32_t e) const { return edges_[e]; }
  uint32_t size() const { return static_cast<uint32_t>(buckets_.size()); }
  // A node of `bucket` reads one of `pred`.
  void connect(uint32_t pred, uint32_t bucket) {
    if (buckets_[pred].reader != bucket) add_edge(pred, bucket);
  }
  // No node is pending any more.
  void clear_stats() {
    for (Bucket& b : buckets_) b.stats = {};
  }
  void clear();

 private:
  void add_edge(uint32_t pred, uint32_t bucket);
  std::vector<Bucket> buckets_;
  std::vector<BucketEdge> edges_;
  std::unordered_set<uint64_t> listed_edges_;  // of buckets with many predecessors: predecessor, bucket
};

}  // namespace dyc
