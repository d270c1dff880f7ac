// The short ways of recording: ops whose arguments are of the same kinds as before, and nodes of which
// everything but the arguments is known.
#include "graph/graph.h"

namespace dyc {

// Flat: every call it makes costs 2 to 5 % of a recorded op (benchmarks/record.py).
[[gnu::flatten]] NodeId Graph::record(OpId op, const NodeId* args, uint32_t n, const uint32_t* attrs,
                                      uint32_t n_attrs, const Ids& ids) {
  if (n == 0 || n > RecordCache::kMostArgs || n_attrs > RecordCache::kMostAttrs)
    return record_uncached(op, args, n, attrs, n_attrs, ids);
  const WeightPositions weights(op);
  bool numbered = may_be_shared(op);
  uint32_t words[RecordCache::kMostAttrs] = {};  // of a product, which has no attributes, its weights
  for (uint32_t i = 0; i < n_attrs; ++i) words[i] = attrs[i];
  RecordCache::Key key;
  for (uint32_t i = 0; i < n; ++i) {
    const Node& a = argument(args[i]);
    numbered = numbered && a.value_number;
    if (weights.has(i)) words[i] = a.value_number;
    key.set_argument(i, a.sig * 2 + (a.flags & Node::requires_grad), a.site);
  }
  if (numbered) return record_new(op, args, n, attrs, n_attrs, ids, true).id;
  key.set_head(op, n, n_attrs, words);
  RecordCache::Entry& entry = record_cache_.slot(key);
  if (entry.holds(key, n)) {
    const size_t first = arg_pool_.size();
    arg_pool_.resize(first + n);
    for (uint32_t i = 0; i < n; ++i) arg_pool_[first + i] = args[i];
    return append_cached(entry.value, n, ids);
  }
  const NewNode made = record_new(op, args, n, attrs, n_attrs, ids, false);
  if (made.cacheable) {
    const Node& node = nodes_[made.id];
    const uint32_t size = signatures_.brief(node.sig).size;
    entry.set(key, n, {node.sig, node.site, size, node.flags & Node::requires_grad});
  }
  return made.id;
}

[[gnu::flatten]] NodeId Graph::lookup(const std::shared_ptr<Storage>& storage, const Ids& ids, bool update) {
  parameters.use(storage);
  const ParameterTable::RowLookup& known = parameters.row_lookup(storage->uid, update);
  if (ids.list || known.tables != tables_) return lookup_new(*storage, ids, update);
  return append_cached(known.signature, 0, ids);
}

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

// All edges between the sites are known.
void Graph::join_bucket(Node& node, uint32_t size, const NodeId* args, uint32_t n, uint32_t first_round) {
  const uint32_t phase = sites_.phase(node.site);
  uint32_t round = first_round;
  for (uint32_t i = 0; i < n; ++i) {
    const Node& a = nodes_[args[i]];
    if (a.flags & Node::leaf || offset_of(args[i]) != kPending) continue;
    const uint32_t p = sites_.phase(a.site);
    if (p < phase) continue;
    if (p > phase) contradicted_ = true;
    round = std::max(round, a.round + (a.site >= node.site));
  }
  node.round = round;
  node.bucket = buckets_.find(sites_, node.site, round, epoch_);
  buckets_[node.bucket].stats.add(node.sig, size);
  for (uint32_t i = 0; i < n; ++i) {
    const Node& a = nodes_[args[i]];
    if (a.flags & Node::leaf || offsets_[args[i]] != kPending) continue;
    buckets_.connect(a.bucket, node.bucket);
    if (!(a.flags & Node::has_reader)) mark_read(args[i]);
  }
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
