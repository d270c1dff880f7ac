// Recording nodes of which everything but the arguments is known.
#include "graph/graph.h"

namespace dyc {

// Flat: with calls of append_cached() and BucketTable::find() a step of a small LSTM took 5 % longer.
[[gnu::flatten]] NodeId Graph::record_cached(const CachedSignature& cached, const NodeId* nodes,
                                             const uint32_t* indices, uint32_t n, const Ids& ids) {
  const size_t first = arg_pool_.size();
  arg_pool_.resize(first + n);
  uint32_t* args = arg_pool_.data() + first;
  for (uint32_t i = 0; i < n; ++i) args[i] = nodes[indices[i]];
  return append_cached(cached, n, ids);
}

// Its arguments are the last ones of the pool.
NodeId Graph::append_cached(const CachedSignature& cached, uint32_t n_args, const Ids& ids) {
  Node node{};
  node.sig = cached.sig;
  node.site = cached.site;
  node.flags = cached.requires_grad;
  node.args = static_cast<uint32_t>(arg_pool_.size()) - n_args;
  node.n_args = n_args;
  set_ids(&node, ids);
  join_bucket(node, cached.size, arg_pool_.data() + node.args, n_args);
  recorded_floats_ += cached.size;
  ++pending_;
  ++unread_;
  no_grad_ += !cached.requires_grad;
  nodes_.push_back(node);
  offsets_.push_back(kPending);
  return size() - 1;
}

void Graph::append_nodes(const NodeRange& range, NodeId* nodes) {
  const uint32_t first = size();
  const auto first_arg = static_cast<uint32_t>(arg_pool_.size());
  for (uint32_t i = 0; i < range.n; ++i) nodes[range.to[i]] = first + i;
  nodes_.insert(nodes_.end(), range.nodes, range.nodes + range.n);
  for (uint32_t i = 0; i < range.n; ++i) nodes_[first + i].args += first_arg;
  offsets_.resize(nodes_.size(), kPending);
  arg_pool_.resize(first_arg + range.n_args);
  uint32_t* args = arg_pool_.data() + first_arg;
  for (uint32_t i = 0; i < range.n_args; ++i) args[i] = nodes[range.args[i]];
}

void Graph::count_appended(const BucketCount* counts, uint32_t n, const AppendStats& stats) {
  for (uint32_t i = 0; i < n; ++i) buckets_[counts[i].bucket].stats.add(counts[i].stats);
  recorded_floats_ += stats.floats;
  pending_ += stats.nodes;
  unread_ += stats.unread;
  no_grad_ += stats.no_grad;
}

}  // namespace dyc
