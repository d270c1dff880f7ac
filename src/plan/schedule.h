// Schedulers: in which order pending nodes or their buckets run, and which of them share a launch.
#pragma once
#include <cstdint>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace dyc {

// Selectable with DYNET_COMPAT_SCHEDULER; all but the first are there to compare with.
enum class Scheduler { bucket, depth, agenda, none };
Scheduler scheduler_from_name(const std::string& name);

// Groups of nodes or buckets, in running order: group g holds items[begin[g]] .. items[begin[g + 1] - 1].
struct Groups {
  std::vector<uint32_t> items, begin = {0};
  void clear() {
    items.clear();
    begin.assign(1, 0);
  }
  void close() { begin.push_back(static_cast<uint32_t>(items.size())); }
  void add(std::span<const uint32_t> group) {
    items.insert(items.end(), group.begin(), group.end());
    close();
  }
  uint32_t size() const { return static_cast<uint32_t>(begin.size()) - 1; }
  std::span<const uint32_t> operator[](uint32_t g) const {
    return {items.data() + begin[g], begin[g + 1] - begin[g]};
  }
  auto each() const {
    return std::views::iota(uint32_t{0}, size()) |
           std::views::transform([this](uint32_t g) { return (*this)[g]; });
  }
};

// The graph of buckets to be scheduled; also the key under which its order is cached.
struct BucketGraph {
  std::vector<uint32_t> batch_key;  // per bucket
  std::vector<uint32_t> phase, round;
  std::vector<uint32_t> pred_begin;  // per bucket + 1
  std::vector<uint32_t> preds;
  uint32_t size() const { return static_cast<uint32_t>(batch_key.size()); }
  bool operator==(const BucketGraph& o) const {
    return batch_key == o.batch_key && pred_begin == o.pred_begin && preds == o.preds && phase == o.phase &&
           round == o.round;
  }
};

// Buckets by launches.
using BucketOrder = Groups;

// For buckets numbered in key order (phase, round, site): key order with adjacent buckets of one batch key
// merged, or, where that can have fewer launches and has, list scheduling that prefers a batch key whose
// remaining frontier is ready.
BucketOrder schedule_buckets(const BucketGraph& g);

// The schedulers to compare with, on single nodes (ascending ids of pending nodes).
void schedule_by_depth(Graph& graph, const std::vector<NodeId>& nodes, Groups& out);
void schedule_by_agenda(Graph& graph, const std::vector<NodeId>& nodes, Groups& out);
void schedule_one_by_one(const std::vector<NodeId>& nodes, Groups& out);

// Sum over batch keys of the most nodes of that key on one path: no schedule has fewer launches.
uint32_t launch_lower_bound(Graph& graph, const std::vector<NodeId>& nodes);

}  // namespace dyc
