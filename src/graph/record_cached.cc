// The short ways of recording: ops whose arguments are of the same kinds as before, and nodes of which
// everything but the arguments is known.
#include "graph/graph.h"

namespace dyc {

namespace {

constexpr Graph::Ids kNoIds;

}  // namespace

// Compiled for each number of arguments, without loops.
template <uint32_t n>
[[gnu::always_inline]] inline NodeId Graph::record_few(OpId op, const NodeId* args, const uint32_t* attrs,
                                                       uint32_t n_attrs, const Ids& ids) {
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
    std::copy_n(args, n, arg_pool_.extend(n));
    return append_cached(entry.value, args, n, ids);
  }
  const NewNode made = record_new(op, args, n, attrs, n_attrs, ids, false);
  if (made.cacheable) entry.set(key, n, known_of(made.id));
  return made.id;
}

[[gnu::noinline]] NodeId Graph::record_many(OpId op, const NodeId* args, uint32_t n, const uint32_t* attrs,
                                            uint32_t n_attrs, const Ids& ids) {
  const WeightPositions weights(op);
  bool numbered = n > 0 && may_be_shared(op);
  if (n > RecordCache::kMostListed || n_attrs > RecordCache::kMostListedAttrs) {
    for (uint32_t i = 0; i < n; ++i) numbered = argument(args[i]).value_number && numbered;
    return record_new(op, args, n, attrs, n_attrs, ids, numbered).id;
  }
  RecordCache::ListKey key;
  key.add(op);
  key.add(n << 8 | n_attrs);
  for (uint32_t i = 0; i < n_attrs; ++i) key.add(attrs[i]);
  for (uint32_t i = 0; i < n; ++i) {
    const Node& a = argument(args[i]);
    numbered = numbered && a.value_number;
    if (weights.has(i)) key.add(a.value_number);
    key.add(a.sig * 2 + (a.flags & Node::requires_grad));
    key.add(a.site);
  }
  if (numbered) return record_new(op, args, n, attrs, n_attrs, ids, true).id;
  if (const CachedSignature* known = record_cache_.find(key)) {
    std::copy_n(args, n, arg_pool_.extend(n));
    return append_cached(*known, args, n, ids);
  }
  const NewNode made = record_new(op, args, n, attrs, n_attrs, ids, false);
  if (made.cacheable) record_cache_.set(key, known_of(made.id));
  return made.id;
}

// These are flat: every call they make costs 2 to 5 % of a recorded op (benchmarks/record.py).
[[gnu::flatten]] NodeId Graph::record(OpId op, const NodeId* args, uint32_t n, const uint32_t* attrs,
                                      uint32_t n_attrs, const Ids& ids) {
  static_assert(RecordCache::kMostArgs == 3);
  if (n_attrs <= RecordCache::kMostAttrs) [[likely]] {
    if (n == 1) return record_few<1>(op, args, attrs, n_attrs, ids);
    if (n == 2) return record_few<2>(op, args, attrs, n_attrs, ids);
    if (n == 3) return record_few<3>(op, args, attrs, n_attrs, ids);
  }
  return record_many(op, args, n, attrs, n_attrs, ids);
}

[[gnu::flatten]] NodeId Graph::unary(OpId op, NodeId x) { return record_few<1>(op, &x, nullptr, 0, kNoIds); }

[[gnu::flatten]] NodeId Graph::binary(OpId op, NodeId x, NodeId y) {
  const NodeId args[2] = {x, y};
  return record_few<2>(op, args, nullptr, 0, kNoIds);
}

[[gnu::flatten]] NodeId Graph::lookup(const std::shared_ptr<Storage>& storage, const Ids& ids, bool update) {
  parameters.use(storage);
  const ParameterTable::RowLookup& known = parameters.row_lookup(storage->uid, update);
  if (ids.list || known.tables != tables_) return lookup_new(*storage, ids, update);
  return append_cached(known.signature, nullptr, 0, ids);
}

// Flat: with calls of append_cached() and BucketTable::find() a step of a small LSTM took 5 % longer. Without
// loops for the usual numbers of arguments.
[[gnu::flatten]] NodeId Graph::record_cached(const CachedSignature& cached, const NodeId* nodes,
                                             const uint32_t* indices, uint32_t n, const Ids& ids) {
  NodeId* const args = arg_pool_.extend(n);
  for (uint32_t i = 0; i < n; ++i) args[i] = nodes[indices[i]];
  if (n == 1) return append_cached(cached, args, 1, ids);
  if (n == 2) return append_cached(cached, args, 2, ids);
  if (n == 3) return append_cached(cached, args, 3, ids);
  return append_cached(cached, args, n, ids);
}

// The arguments are at the end of the pool already, which does not count them yet.
NodeId Graph::append_cached(const CachedSignature& cached, const NodeId* args, uint32_t n_args,
                            const Ids& ids) {
  Node& node = *nodes_.extend(1);
  *offsets_.extend(1) = kPending;
  node = {};
  node.sig = cached.sig;
  node.site = cached.site;
  node.args = static_cast<uint32_t>(arg_pool_.size());
  node.flags = cached.requires_grad;
  node.n_args = n_args;
  set_ids(&node, ids);
  join_bucket(node, cached.size, args, n_args);
  recorded_floats_ += cached.size;
  ++pending_;
  ++unread_;
  no_grad_ += !cached.requires_grad;
  arg_pool_.advance(n_args);
  offsets_.advance(1);
  nodes_.advance(1);
  return size() - 1;
}

// All edges between the sites are known.
void Graph::join_bucket(Node& node, uint32_t size, const NodeId* args, uint32_t n, uint32_t first_round) {
  const uint32_t phase = sites_.phase(node.site);
  uint32_t round = first_round;
  for (uint32_t i = 0; i < n; ++i) {
    const Node& a = nodes_[args[i]];
    if (a.flags & Node::leaf || offset_of(args[i]) != kPending) continue;
    delay(&round, node.site, phase, a.site, a.round);
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

// As join_bucket() does it, for nodes that are not there yet.
void Graph::join_buckets(const Joining* joinings, uint32_t n, const uint32_t* sources, JoinedBucket* places,
                         uint32_t first) {
  for (uint32_t i = 0; i < n; ++i) {
    const Joining& j = joinings[i];
    const uint32_t phase = sites_.phase(j.site);
    JoinedBucket& to = places[first + i];
    to = {j.site, 0, 0};
    for (uint32_t k = 0; k < j.n_sources; ++k) {
      const JoinedBucket& from = places[sources[k]];
      delay(&to.round, j.site, phase, from.site, from.round);
    }
    to.bucket = buckets_.find(sites_, j.site, to.round, epoch_);
    for (uint32_t k = 0; k < j.n_sources; ++k) buckets_.connect(places[sources[k]].bucket, to.bucket);
    sources += j.n_sources;
  }
}

void Graph::append_nodes(const NodeRange& range, NodeId* nodes) {
  const uint32_t first = size();
  const auto first_arg = static_cast<uint32_t>(arg_pool_.size());
  for (uint32_t i = 0; i < range.n; ++i) nodes[range.to[i]] = first + i;
  Node* const to = nodes_.extend(range.n);
  std::copy_n(range.nodes, range.n, to);
  for (uint32_t i = 0; i < range.n; ++i) {
    const JoinedBucket& place = range.places[to[i].bucket];
    to[i].args += first_arg - range.args_at;
    to[i].round = place.round;
    to[i].bucket = place.bucket;
  }
  std::fill_n(offsets_.extend(range.n), range.n, kPending);
  NodeId* const args = arg_pool_.extend(range.n_args);
  for (uint32_t i = 0; i < range.n_args; ++i) args[i] = nodes[range.args[i]];
  nodes_.advance(range.n);
  offsets_.advance(range.n);
  arg_pool_.advance(range.n_args);
}

void Graph::count_appended(const BucketCount* counts, uint32_t n, const JoinedBucket* places,
                           const AppendStats& stats) {
  for (uint32_t i = 0; i < n; ++i) buckets_[places[counts[i].bucket].bucket].stats.add(counts[i].stats);
  recorded_floats_ += stats.floats;
  pending_ += stats.nodes;
  unread_ += stats.unread;
  no_grad_ += stats.no_grad;
}

}  // namespace dyc
