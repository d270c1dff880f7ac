// Orders work: from the pending nodes of a graph to groups of nodes that run as one launch each.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace dyc {

// The fall-back ladder, selectable with DYNET_COMPAT_SCHEDULER.
enum class Scheduler { bucket, depth, agenda, none };
Scheduler scheduler_from_name(const std::string& name);

// Groups in running order: group g holds nodes[begin[g]] .. nodes[begin[g + 1] - 1].
struct Groups {
  std::vector<NodeId> nodes;
  std::vector<uint32_t> begin;
  void clear() {
    nodes.clear();
    begin.assign(1, 0);
  }
  void close() { begin.push_back(static_cast<uint32_t>(nodes.size())); }
  uint32_t size() const { return static_cast<uint32_t>(begin.size()) - 1; }
};

// A graph of buckets: what bucket scheduling looks at, and the key plans are remembered by.
struct BucketGraph {
  std::vector<uint32_t> batch_key;  // per bucket: launch class
  std::vector<uint32_t> phase, round, site;
  std::vector<uint32_t> pred_begin;  // per bucket + 1
  std::vector<uint32_t> preds;
  uint32_t size() const { return static_cast<uint32_t>(batch_key.size()); }
  bool operator==(const BucketGraph& o) const {
    return batch_key == o.batch_key && pred_begin == o.pred_begin && preds == o.preds && phase == o.phase &&
           round == o.round;
  }
};

// Launch order of buckets: order[i] lists the buckets of launch i.
using BucketOrder = std::vector<std::vector<uint32_t>>;

// Buckets are numbered in key order (phase, round, site). The better of merged key order and list
// scheduling: prefer a class whose ready buckets are its whole remaining frontier.
BucketOrder schedule_buckets(const BucketGraph& g);

// Yardsticks and fall-backs, on single nodes (ascending ids of pending nodes).
void schedule_by_depth(Graph& graph, const std::vector<NodeId>& nodes, Groups& out);
void schedule_by_agenda(Graph& graph, const std::vector<NodeId>& nodes, Groups& out);
void schedule_one_by_one(const std::vector<NodeId>& nodes, Groups& out);

// Sum over classes of the longest chain of that class: no schedule has fewer launches.
uint32_t launch_lower_bound(Graph& graph, const std::vector<NodeId>& nodes);

}  // namespace dyc
