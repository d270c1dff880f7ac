// Which pending nodes a plan has to compute: those that its roots need.
//
// A selection is kept in the cheapest of three ways: as a range whose pending nodes all belong to it (known
// from what the graph counts while recording), as a list (few nodes among many that wait for later), or as
// marks.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace dyc {

class Selection {
 public:
  explicit Selection(Graph& graph) : graph_(graph) {}

  // Selects the pending nodes that `roots`, which ascend, need; with `everything` all pending nodes up to the
  // last root. False if there are none.
  bool select(std::span<const NodeId> roots, bool everything);
  // Computing the selected nodes failed: they are pending again.
  void discard();
  void forget() { first_pending_ = 0; }
  void limit(NodeId nodes) { first_pending_ = first_pending_ < nodes ? first_pending_ : nodes; }

  // f(id, node) in record order, while the nodes have no offsets yet.
  template <class F>
  void for_each(F&& f) const;
  // f(id) for the selected nodes and perhaps others between them.
  template <class F>
  void for_each_id(F&& f) const {
    if (listed_)
      for (const NodeId id : list_) f(id);
    else
      for (NodeId id = begin_; id < end_; ++id) f(id);
  }
  std::vector<NodeId> nodes() const;
  uint32_t count() const { return count_; }
  bool all_pending() const { return !marked_; }  // is every pending node of the graph selected?
  NodeId begin() const { return begin_; }
  NodeId last() const { return end_ - 1; }
  // One mark per node, which the last loop over the nodes has to clear; null: the selection has no marks.
  uint8_t* marks() { return marked_ ? wanted_.data() : nullptr; }
  // In place of that loop.
  void clear_marks() {
    if (marked_ && !listed_) std::fill(wanted_.begin() + begin_, wanted_.begin() + end_, 0);
  }

  NodeId first_pending() const { return first_pending_; }  // every node below has its value or its launch

 private:
  bool all_lead_to(std::span<const NodeId> roots);
  void mark_needed(std::span<const NodeId> roots, bool everything);
  bool list_needed(std::span<const NodeId> roots);
  void want_up_to(NodeId last);

  Graph& graph_;
  NodeId first_pending_ = 0;
  NodeId begin_ = 0, end_ = 0;  // all selected nodes are in this range
  uint32_t count_ = 0;
  bool marked_ = false;  // not all pending nodes: wanted_ or list_ says which
  bool listed_ = false;  // with marked_: list_ has them, ascending
  std::vector<uint8_t> wanted_;
  std::vector<NodeId> list_, bases_;
};

template <class F>
void Selection::for_each(F&& f) const {
  const Node* const nodes = graph_.nodes();
  if (listed_) {
    for (const NodeId id : list_) f(id, nodes[id]);
    return;
  }
  const NodeId begin = begin_, end = end_;
  if (marked_) {
    const uint8_t* const wanted = wanted_.data();
    for (NodeId id = begin; id < end; ++id)
      if (wanted[id]) f(id, nodes[id]);
    return;
  }
  const int64_t* const offsets = graph_.offsets();
  for (NodeId id = begin; id < end; ++id)
    if (!(nodes[id].flags & (Node::leaf | Node::view)) && offsets[id] == kPending) f(id, nodes[id]);
}

}  // namespace dyc
