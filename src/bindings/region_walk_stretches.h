// Joins steps of a memo (region_walk_memo.h) that record one after the other to traces, which are recorded in
// bulk.
//
// Calls of functions and random draws stay steps of their own: what they record may differ from one replay to
// the next. So do first steps of builders with dropout masks, which they may draw. Of other steps of builders
// the trace makes the nodes, and a step `recorded` makes the states. A trace is a function of the nodes that
// its steps read from elsewhere. Memos whose stretches differ only in indices share a trace, which lives as
// long as one of them.
#pragma once
#include "bindings/region_walk_memo.h"
#include "graph/trace.h"

namespace dyc::py {

// What the steps of a memo recorded when it was written down.
struct WalkedSteps {
  struct Step {
    NodeId end;      // size of the graph after it
    MemoNode first;  // of the nodes that it made
  };
  struct State {
    MemoNode nodes, masks;  // the first of them; kNone: at the start
    uint32_t n_nodes, n_masks;
    size_t step;  // that makes it
  };
  NodeId begin = 0;          // size of the graph before the first
  std::vector<Step> steps;   // beside WalkMemo::steps
  std::vector<NodeId> made;  // by MemoNode
  std::vector<State> states;
};

// `inputs`: nodes of the memo's inputs. The graph has what was recorded, and nothing of it is computed.
void join_stretches(Graph& g, const WalkedSteps& walked, const std::vector<NodeId>& inputs, WalkMemo* memo);

size_t n_shared_traces();

}  // namespace dyc::py
