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
// computed.
bool ReadAhead::unsettled(Graph& graph, NodeId id) const {
  const Node& n = graph.node(id);
  if (graph.is_parameter(id)) return !graph.parameter_use(id).pinned;
  if (graph.offsets()[id] >= 0) return false;
  if (n.flags & Node::leaf || op_info(graph.sig(id).op).meta->kind == OpKind::lookup) return true;
  const NodeId* args = graph.args(id);
  for (uint32_t i = 0; i < n.n_args; ++i) {
    const NodeId arg = args[i];
    if (arg >= first_ ? unsettled_[arg - first_] != 0 : graph.is_parameter(arg) && unsettled(graph, arg))
      return true;
  }
  return false;
}

void ReadAhead::drop_unsettled(Graph& graph, NodeId first_pending) {
  first_ = first_pending;
  unsettled_.resize(nodes_.back() + 1 - first_);
  for (NodeId id = first_; id <= nodes_.back(); ++id) unsettled_[id - first_] = unsettled(graph, id);
  const auto drop = [this](NodeId id) { return unsettled_[id - first_] != 0; };
  nodes_.erase(std::remove_if(nodes_.begin() + 1, nodes_.end(), drop), nodes_.end());
}

}  // namespace dyc
