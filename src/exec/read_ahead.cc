#include "exec/read_ahead.h"

#include <algorithm>

#include "exec/tuning.h"

namespace dyc {

using tuning::kFirstWindow, tuning::kWindowGrowth, tuning::kMostAhead, tuning::kMostMisses;

std::span<const NodeId> ReadAhead::nodes(Graph& graph, NodeId id, NodeId first_pending, NodeId end) {
  nodes_.assign(1, id);
  const uint32_t site = graph.node(graph.base_of(id)).site;
  if (site >= windows_.size()) windows_.resize(site + 64);
  Window& window = windows_[site];
  if (window.version != graph.version()) {
    window = {.version = graph.version()};
    return nodes_;
  }
  if (window.skip) {
    --window.skip;
    return nodes_;
  }
  const uint32_t size = window.size ? std::min(window.size * kWindowGrowth, kMostAhead) : kFirstWindow;
  find_site(graph, id, end, size);
  if (nodes_.size() > 1) drop_unsettled(graph, first_pending);
  if (nodes_.size() == 1) {
    window.skip = (1u << window.misses) - 1;
    window.misses = std::min(window.misses + 1, kMostMisses);
    return nodes_;
  }
  window.size = size;
  return nodes_;
}

void ReadAhead::find_site(Graph& graph, NodeId id, NodeId end, size_t most) {
  const uint32_t site = graph.node(graph.base_of(id)).site;
  const int64_t* offsets = graph.offsets();
  for (NodeId next = id + 1; next < end && nodes_.size() < most; ++next) {
    const Node& n = graph.node(next);
    if (n.site == site && offsets[next] == kPending && !(n.flags & (Node::leaf | Node::view)))
      nodes_.push_back(next);
  }
}

// A value is settled when nothing that the script can do, short of an input's set(), changes it before it is
// computed. Rows that were looked up before the node that is read count as those of now: DyNet computes what
// was recorded before it.
bool ReadAhead::unsettled(Graph& graph, NodeId id) const {
  const Node& n = graph.node(id);
  const bool computed = graph.offsets()[id] >= 0;
  if (n.flags & Node::leaf) return graph.is_parameter(id) ? !graph.parameter_use(id).pinned : !computed;
  if (computed) return false;
  if (n.n_args == 0) return id > nodes_.front() && op_info(graph.sig(id).op).meta->kind == OpKind::lookup;
  const auto is_unsettled = [&](NodeId arg) {
    if (arg >= first_) return unsettled_[arg - first_] != 0;
    return graph.is_parameter(arg) && !graph.parameter_use(arg).pinned;
  };
  const NodeId* args = graph.args(id);
  return std::any_of(args, args + n.n_args, is_unsettled);
}

// Flat, as a chart has a thousand nodes for each read that looks ahead.
[[gnu::flatten]] void ReadAhead::drop_unsettled(Graph& graph, NodeId first_pending) {
  first_ = first_pending;
  unsettled_.resize(nodes_.back() + 1 - first_);
  for (NodeId id = first_; id <= nodes_.back(); ++id) unsettled_[id - first_] = unsettled(graph, id);
  const auto drop = [this](NodeId id) { return unsettled_[id - first_] != 0; };
  nodes_.erase(std::remove_if(nodes_.begin() + 1, nodes_.end(), drop), nodes_.end());
}

}  // namespace dyc
