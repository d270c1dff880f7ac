// Writes launches and their nodes to the end of the plan: first a launch is opened for each bucket, then one
// pass over the selected nodes gives each result its offset.
#pragma once
#include <vector>

#include "plan/operands.h"
#include "plan/selection.h"
#include "plan/tuning.h"

namespace dyc {

// Where the next node of a bucket (or group) goes.
struct BucketCursor {
  int64_t out;       // offset of its result
  uint32_t size;     // floats of that; 0: nodes differ
  uint32_t node;     // in plan.nodes
  uint32_t index;    // its first argument in plan.index; kNone: operands are resolved afterwards
  uint32_t stride;   // from one argument to the next
  uint32_t launch;   // its launch
  uint32_t weights;  // bit k: argument k is a weight
};

class LaunchWriter {
 public:
  LaunchWriter(Graph& graph, Plan& plan, OperandResolver& operands)
      : graph_(graph), plan_(plan), operands_(operands) {}

  // Launches are opened after the first `copies`, which copy operands.
  void begin(uint32_t first, uint32_t copies);
  // Appends a launch, and returns the cursor of its first node; fill() adds nodes and arguments.
  BucketCursor open(const BucketStats& all, bool far = false);
  // The nodes of the opened launches. slot(node, i): of the i-th selected one, the number of its cursor.
  template <class Slot>
  void fill(Selection& selection, Slot&& slot);
  // Where the arguments' offsets of a launch begin in plan.index, or kNone.
  uint32_t args_begin(uint32_t launch) const { return args_begin_[launch - first_launch_]; }

  std::vector<BucketCursor> cursors;

 private:
  BucketCursor cursor_at(uint32_t launch) const;

  Graph& graph_;
  Plan& plan_;
  OperandResolver& operands_;
  uint32_t first_launch_ = 0;
  uint32_t nodes_end_ = 0;  // of plan.nodes, as of the launches opened so far
  size_t index_end_ = 0;    // of plan.index
  std::vector<uint32_t> args_begin_;
};

// In record order: arguments were recorded, and have their offsets, before the nodes that read them. Compiled
// into the loops over the selection, with copies of all pointers: what is written could be anything else that
// is reached through a pointer, and would be read again for each node.
template <class Slot>
void LaunchWriter::fill(Selection& selection, Slot&& slot) {
  plan_.nodes.resize(nodes_end_);  // written twice, but the first time in order: scattered writes to memory
  plan_.index.resize(index_end_);  // that is not in the cache cost more
  int64_t *const offsets = graph_.offsets(), *const index = plan_.index.data();
  uint32_t *const launch_of = plan_.launch_of.data(), *const nodes = plan_.nodes.data();
  uint8_t* const wanted = selection.marks();
  const NodeId* const pool = graph_.arg_pool();
  BucketCursor* const at = cursors.data();
  uint32_t i = 0;
  auto write = [=, this](NodeId id, const Node& n) mutable __attribute__((always_inline)) {
    __builtin_prefetch(&n + tuning::kNodesAhead);
    __builtin_prefetch(offsets + id + tuning::kOffsetsAhead, 1);
    BucketCursor& s = at[slot(n, i++)];
    const int64_t out = s.out;
    const uint32_t place = s.node++, first_arg = s.index, stride = s.stride, weights = s.weights;
    s.out = out + (s.size ? s.size : graph_.sig_number(n.sig).size);
    launch_of[id] = s.launch;
    offsets[id] = out;
    nodes[place] = id;
    if (wanted) wanted[id] = 0;  // (not set where nodes are listed)
    if (first_arg == kNone) return;
    s.index = first_arg + 1;
    int64_t* to = index + first_arg;
    const NodeId* args = pool + n.args;
    for (uint32_t k = 0, n_args = n.n_args; k < n_args; ++k, to += stride) {
      if (weights >> k & 1) continue;
      const int64_t offset = offsets[args[k]];
      *to = offset >= 0 ? offset : operands_.readable_offset(args[k]);
    }
  };
  selection.for_each(write);
}

}  // namespace dyc
