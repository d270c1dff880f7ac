// Nodes of which all but their arguments is known before they are recorded: recording them again.
#include "graph/graph.h"

namespace dyc {

NodeId Graph::record_known(const Known& known, const NodeId* nodes, const uint32_t* places, uint32_t n,
                           const Ids& ids) {
  Node node{};
  node.sig = known.sig;
  node.site = known.site;
  node.flags = known.needs;
  const size_t first = arg_pool_.size();
  node.args = static_cast<uint32_t>(first);
  node.n_args = n;
  arg_pool_.resize(first + n);
  uint32_t* args = arg_pool_.data() + first;
  for (uint32_t i = 0; i < n; ++i) args[i] = nodes[places[i]];
  set_ids(&node, ids);
  join_bucket(node, known.size, args, n);
  recorded_floats_ += known.size;
  ++unplaced_;
  ++unread_;
  idle_ += !known.needs;
  nodes_.push_back(node);
  places_.push_back(kPending);
  return size() - 1;
}

void Graph::record_run(const Run& run, NodeId* nodes) {
  const uint32_t first = size();
  const auto first_arg = static_cast<uint32_t>(arg_pool_.size());
  for (uint32_t i = 0; i < run.n; ++i) nodes[run.to[i]] = first + i;
  nodes_.insert(nodes_.end(), run.nodes, run.nodes + run.n);
  for (uint32_t i = 0; i < run.n; ++i) nodes_[first + i].args += first_arg;
  places_.resize(nodes_.size(), kPending);
  arg_pool_.resize(first_arg + run.n_args);
  uint32_t* args = arg_pool_.data() + first_arg;
  for (uint32_t i = 0; i < run.n_args; ++i) args[i] = nodes[run.args[i]];
}

void Graph::count_run(const BucketTally* tallies, uint32_t n, const RunSums& sums) {
  for (uint32_t i = 0; i < n; ++i) buckets_[tallies[i].bucket].tally.add(tallies[i].tally);
  recorded_floats_ += sums.floats;
  unplaced_ += sums.nodes;
  unread_ += sums.unread;
  idle_ += sums.idle;
}

}  // namespace dyc
