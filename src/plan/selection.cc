#include "plan/selection.h"

#include <algorithm>

#include "plan/tuning.h"

namespace dyc {

bool Selection::select(std::span<const NodeId> roots, bool everything) {
  begin_ = first_pending_;
  end_ = roots.back() + 1;
  count_ = 0;
  listed_ = false;
  if (roots.back() < first_pending_) return false;
  marked_ = !all_lead_to(roots);
  if (marked_) {
    if (everything || !list_needed(roots)) mark_needed(roots, everything);
  } else {
    count_ = graph_.pending();
    first_pending_ = end_;
  }
  return count_ != 0;
}

void Selection::discard() {
  std::fill(wanted_.begin(), wanted_.end(), 0);
  limit(begin_);
}

bool Selection::all_lead_to(std::span<const NodeId> roots) {
  bases_.clear();
  for (const NodeId root : roots) bases_.push_back(graph_.base_of(root));
  if (bases_.size() > 1) {  // views of one node
    std::sort(bases_.begin(), bases_.end());
    bases_.erase(std::unique(bases_.begin(), bases_.end()), bases_.end());
  }
  return graph_.all_lead_to(bases_);
}

void Selection::want_up_to(NodeId last) {
  if (wanted_.size() <= last) wanted_.resize(std::max<size_t>(last + 1, wanted_.size() * 2), 0);
}

// For few pending ancestors of the roots among many other pending nodes (a loop that reads values and keeps
// others for later): finds them by following arguments. False if there are too many of them for that.
bool Selection::list_needed(std::span<const NodeId> roots) {
  const size_t most = (roots.back() - first_pending_) / tuning::kListShare;
  if (most < std::max(tuning::kListFewest, roots.size())) return false;
  want_up_to(roots.back());
  const int64_t* offsets = graph_.offsets();
  list_.clear();  // visited nodes; those behind `next` are still to be followed
  for (const NodeId root : roots) {
    if (root < first_pending_) continue;
    list_.push_back(root);
    wanted_[root] = 1;
  }
  for (size_t next = 0; next < list_.size() && list_.size() <= most; ++next) {
    const Node& n = graph_.node(list_[next]);
    const NodeId* args = graph_.args(list_[next]);
    for (uint32_t i = 0; i < n.n_args; ++i) {
      if (args[i] < first_pending_ || wanted_[args[i]] || offsets[args[i]] != kPending) continue;
      wanted_[args[i]] = 1;
      list_.push_back(args[i]);
    }
  }
  for (const NodeId id : list_) wanted_[id] = 0;
  if (list_.size() > most) return false;
  const auto no_work = [&](NodeId id) {
    return offsets[id] != kPending || (graph_.node(id).flags & (Node::leaf | Node::view)) != 0;
  };
  list_.erase(std::remove_if(list_.begin(), list_.end(), no_work), list_.end());
  std::sort(list_.begin(), list_.end());
  count_ = static_cast<uint32_t>(list_.size());
  listed_ = true;
  return true;
}

// Finds the pending ancestors of the roots by one pass backwards.
void Selection::mark_needed(std::span<const NodeId> roots, bool everything) {
  count_ = 0;
  want_up_to(roots.back());
  for (const NodeId root : roots)
    if (root >= first_pending_) wanted_[root] = 1;
  NodeId skipped = end_;  // lowest pending node that is not wanted
  const int64_t* offsets = graph_.offsets();
  for (NodeId id = end_; id-- > first_pending_;) {
    const bool wanted = wanted_[id] || everything;
    wanted_[id] = 0;
    if (offsets[id] != kPending) continue;
    const Node& n = graph_.node(id);
    if (!wanted) {
      if (!(n.flags & (Node::leaf | Node::view))) skipped = id;
      continue;
    }
    const NodeId* args = graph_.args(id);
    if (n.flags & Node::view) {
      if (args[0] >= first_pending_) wanted_[args[0]] = 1;
      continue;
    }
    if (n.flags & Node::leaf) continue;
    for (uint32_t i = 0; i < n.n_args; ++i)
      if (args[i] >= first_pending_) wanted_[args[i]] = 1;
    wanted_[id] = 1;
    ++count_;
  }
  first_pending_ = skipped;
}

std::vector<NodeId> Selection::nodes() const {
  std::vector<NodeId> nodes;
  nodes.reserve(count_);
  for_each([&](NodeId id, const Node&) { nodes.push_back(id); });
  return nodes;
}

}  // namespace dyc
