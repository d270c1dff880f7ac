// The recorder. It appends nodes, infers their shapes, and assigns site, round and bucket (graph/sites.h) as
// it goes. It knows nothing of launches; the planner fills in the offset of each value.
//
// Data: nodes_ and offsets_, one entry per node; arg_pool_ and id_pool_, the arguments and indices of all
// nodes; tables of signatures and sites, which outlive renewals; BucketTable, ParameterTable, ValueNumbers,
// VaryingNumbers and Generations, each with its own head comment.
//
// Graph has 83 methods and 26 fields: recording, the accessors of a node, and the life of the graph
// all work on the same few vectors, and record(), record_cached() and append_nodes() are as fast as they are
// because nothing lies between them and these vectors.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/pool.h"
#include "base/storage.h"
#include "graph/buckets.h"
#include "graph/generations.h"
#include "graph/instances.h"
#include "graph/parameter_table.h"
#include "graph/record_cache.h"
#include "graph/signature.h"
#include "graph/sites.h"
#include "graph/value_numbers.h"
#include "graph/varying_numbers.h"

namespace dyc {

class SegmentSchedule;

// Offset of a value in the value arena, or one of these.
constexpr int64_t kPending = -1;    // not planned yet
constexpr int64_t kParameter = -2;  // in the parameter's own storage

struct Node {
  static constexpr uint32_t requires_grad = 1;  // depends on something that takes a gradient
  static constexpr uint32_t view = 2;           // same memory as its argument, `aux` floats further on
  static constexpr uint32_t list = 4;           // ids are a list in the pool (else the one id is in aux)
  static constexpr uint32_t leaf = 8;           // input, parameter or draw: has no bucket
  static constexpr uint32_t constant = 16;      // an input that cannot be set again
  static constexpr uint32_t merged = 32;        // equal expressions share this node's value and gradient
  static constexpr uint32_t has_reader = 64;    // an argument of some node
  uint32_t sig;
  uint32_t site;
  uint32_t bucket;
  uint32_t round;
  uint32_t args;  // first argument, in the pool
  uint32_t aux;
  uint32_t value_number;  // graph/value_numbers.h
  uint32_t flags : 8;
  uint32_t n_args : 24;
};

// Sizes of a graph, to revert to.
struct GraphMark {
  uint32_t nodes, args, ids, parameters;
  int64_t values, far_values;
  size_t draws;
};

class Graph : public Generations {
 public:
  Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Equal values that no input can change are computed once (off: every expression on its own).
  bool share_equal_values = true;

  // ---- recording
  struct Ids {  // indices of one node, or the word of its number
    const uint32_t* data = nullptr;
    uint32_t n = 0;
    bool list = false;
  };
  // An op of the table. Throws ValueError from the shape rule; the graph is then unchanged.
  NodeId record(OpId op, const NodeId* args, uint32_t n, const uint32_t* attrs, uint32_t n_attrs,
                const Ids& ids);
  NodeId record(OpId op, const NodeId* args, uint32_t n) { return record(op, args, n, nullptr, 0, Ids{}); }
  // The same as record() without attributes and indices, but faster.
  NodeId unary(OpId op, NodeId x);
  NodeId binary(OpId op, NodeId x, NodeId y);
  // Input whose values the caller writes into values(id); `writable`: may be written again later.
  NodeId input(const Dim& dim, bool writable);
  NodeId constant(const Dim& dim, float value);
  // Random values, drawn when a launch reads them. In an instance of batch_map they are drawn at once, so
  // that they depend only on the order of calls in that instance.
  NodeId draw(DrawKind kind, float a, float b, const Dim& dim);
  // Its values, from the stream of the instance that recorded it.
  void fill_draw(NodeId id);
  NodeId parameter(const std::shared_ptr<Storage>& storage, uint32_t role);
  NodeId lookup(const std::shared_ptr<Storage>& storage, const Ids& ids, bool update);
  // Contiguous part of x, values and gradient, with another shape.
  NodeId view(OpId op, NodeId x, const Dim& dim, uint32_t offset);

  // ---- recording what was recorded before (graph/trace.h)
  // Its arguments are nodes[indices[i]].
  NodeId record_cached(const CachedSignature& cached, const NodeId* nodes, const uint32_t* indices,
                       uint32_t n, const Ids& ids);
  NodeId view_cached(uint32_t sig, NodeId x, uint32_t offset, uint32_t value_number);
  // Where pending nodes are; valid in one epoch.
  struct JoinedBucket {
    uint32_t site, round, bucket;
  };
  // Nodes of one site that read nodes of the same places.
  struct Joining {
    uint32_t site, n_sources;
  };
  // For each of these in their order, the place that its nodes would get if they were recorded one by one:
  // places[first + i]. `sources`: of one after the other, indices into `places`.
  void join_buckets(const Joining* joinings, uint32_t n, const uint32_t* sources, JoinedBucket* places,
                    uint32_t first);
  // Finished nodes (ops, lookups, and views of these) to append in bulk.
  struct NodeRange {
    // `args`: begin of each one's in `args` below, plus `args_at`; `bucket`: index in `places`; indices are
    // not filled in.
    const Node* nodes;
    const uint32_t* to;  // node i becomes nodes[to[i]] of append_nodes()
    uint32_t n;
    const uint32_t* args;  // indices into nodes[] of append_nodes()
    uint32_t n_args, args_at;
    const JoinedBucket* places;
  };
  // count_appended() must follow; until then only append_nodes() and methods that record leaves may be
  // called.
  void append_nodes(const NodeRange& range, NodeId* nodes);
  struct BucketCount {
    uint32_t bucket;  // index in places
    BucketStats stats;
  };
  struct AppendStats {
    uint32_t nodes = 0;    // without views
    uint32_t unread = 0;   // that no other of them reads
    uint32_t no_grad = 0;  // that take no gradient
    uint64_t floats = 0;
  };
  void count_appended(const BucketCount* counts, uint32_t n, const JoinedBucket* places,
                      const AppendStats& stats);
  void fill_ids(NodeId id, const Ids& ids) { set_ids(&nodes_[id], ids); }
  // To be called for arguments of appended nodes that are not appended nodes themselves.
  void note_read(NodeId id) {
    if (!(nodes_[id].flags & (Node::leaf | Node::has_reader)) && offsets_[id] == kPending) mark_read(id);
  }
  // Bucket of a pending node; kNone for others.
  uint32_t pending_bucket(NodeId id) {
    const Node& n = nodes_[id];
    return n.flags & Node::leaf || offset_of(id) != kPending ? kNone : n.bucket;
  }
  // Numbers of buckets are valid for one epoch: until the next renewal, rebucket() or regroup().
  uint32_t epoch() const { return epoch_; }

  // ---- nodes
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  const Node& node(NodeId id) const { return nodes_[id]; }
  Node& node(NodeId id) { return nodes_[id]; }
  const Node* nodes() const { return nodes_.data(); }
  const Sig& sig(NodeId id) const { return signatures_[nodes_[id].sig]; }
  const Sig& sig_number(uint32_t s) const { return signatures_[s]; }
  const Dim& dim(NodeId id) const { return *sig(id).y; }
  // Equal for equal shapes, as long as tables() is the same.
  uint32_t dim_number(NodeId id) const { return signatures_.brief(nodes_[id].sig).dim; }
  const NodeId* args(NodeId id) const { return arg_pool_.data() + nodes_[id].args; }
  const NodeId* arg_pool() const { return arg_pool_.data(); }
  uint32_t n_arguments() const { return static_cast<uint32_t>(arg_pool_.size()); }  // in the pool
  Ids ids(NodeId id) const;
  uint32_t* mutable_ids(NodeId id);
  // The node whose memory a view shares.
  NodeId base_of(NodeId id) const {
    while (nodes_[id].flags & Node::view) id = arg_pool_[nodes_[id].args];
    return id;
  }
  // Offset of the value. Views get theirs when it is first asked for.
  int64_t offset_of(NodeId id) {
    const int64_t offset = offsets_[id];
    if (offset != kPending || !(nodes_[id].flags & Node::view)) return offset;
    const int64_t whole = offsets_[base_of(id)];
    return whole < 0 ? whole : offset_of_view(id);
  }
  int64_t* offsets() { return offsets_.data(); }
  void set_offset(NodeId id, int64_t offset) { offsets_[id] = offset; }
  bool is_parameter(NodeId id) const { return sig(id).op == op_id<ParameterNode>; }
  float* values(NodeId input) { return values_arena.base() + offsets_[input]; }
  ParameterUse& parameter_use(NodeId node) { return parameters[nodes_[node].aux]; }
  std::vector<NodeId>& draws() { return draws_; }

  // ---- tables
  const BucketTable& buckets() const { return buckets_; }
  Sites& sites() { return sites_; }
  Signatures& signatures() { return signatures_; }
  // Number of the tables of signatures and sites: unique in the process, another one once they were given up,
  // once nodes have other signatures than before, or once numbers of values have begun again.
  uint32_t tables() const { return tables_; }

  // ---- life
  // Returns true when the tables of signatures and sites were given up because they had grown large, as
  // happens in a program that keeps making new models.
  bool renew();
  // For tests that compare graphs of one process: numbers are never, or always, the nodes' own.
  void own_numbers(std::optional<bool> always);
  // Derives phases from the edges seen so far, then rounds and buckets of all pending nodes.
  void rebucket();
  // Derives rounds and buckets again, with the same phases; a schedule delays nodes to the round of their
  // time step.
  void regroup(const SegmentSchedule* schedule);
  bool wants_rebucket() const { return sites_.changed() || contradicted_; }
  GraphMark mark() const;
  void revert(const GraphMark& mark);
  // Exchanges nodes, values and parameters with a graph that only serves to compute them; it reads the
  // signatures of this one, whose tables, buckets and draws stay.
  void lend_nodes(Graph& other);
  void drop_nodes();

  // ---- statistics, kept while recording: spare the planner a pass over the nodes
  // Floats of all nodes recorded in this graph: how much there is to compute.
  uint64_t recorded_floats() const { return recorded_floats_; }
  // Do all pending nodes lead to these, each named once? False also when that is not known.
  bool all_lead_to(std::span<const NodeId> bases) const {
    if (!counted_ || unread_ != bases.size()) return false;
    for (const NodeId b : bases)
      if (nodes_[b].flags & Node::has_reader || offsets_[b] != kPending) return false;
    return true;
  }
  uint32_t pending() const { return pending_; }
  // Every node of this graph takes a gradient, but for leaves; nodes that a revert removed count, too.
  bool all_require_grad() const { return no_grad_ == 0; }
  // The planner gave nodes their offsets: all pending ones, or some (then nothing is known until renew()).
  void mark_allocated(bool all);
  // "; largest of 12 nodes: ...", for messages.
  std::string largest_nodes() const;

  Arena values_arena;
  Arena grads_arena;
  ParameterTable parameters;
  Instances instances;

 private:
  [[gnu::noinline]] int64_t offset_of_view(NodeId id) {
    return offsets_[id] = offset_of(arg_pool_[nodes_[id].args]) + nodes_[id].aux;
  }
  struct NewNode {
    NodeId id;
    bool cacheable;
  };
  void forget_layouts();
  bool owns_number(OpId op, NodeId x, uint32_t number, bool numbered);
  [[noreturn, gnu::cold]] static void refuse_argument();
  const Node& argument(NodeId id) const {
    if (id >= nodes_.size()) [[unlikely]]
      refuse_argument();
    return nodes_[id];
  }
  // One of several equal nodes stands for all of them. Not for picks: set_index() changes a single one.
  // Numbers that a script computes would make numbers of values without end.
  bool may_be_shared(OpId op) const {
    return share_equal_values && op != op_id<Pick> && !is_one_of(op, NumberOps{});
  }
  NewNode record_new(OpId op, const NodeId* args, uint32_t n, const uint32_t* attrs, uint32_t n_attrs,
                     const Ids& ids, bool numbered);
  NodeId lookup_new(const Storage& storage, const Ids& ids, bool update);
  template <uint32_t n>
  NodeId record_few(OpId op, const NodeId* args, const uint32_t* attrs, uint32_t n_attrs, const Ids& ids);
  NodeId record_many(OpId op, const NodeId* args, uint32_t n, const uint32_t* attrs, uint32_t n_attrs,
                     const Ids& ids);
  CachedSignature known_of(NodeId id) const {
    const Node& n = nodes_[id];
    return {n.sig, n.site, signatures_.brief(n.sig).size, n.flags & Node::requires_grad};
  }
  NodeId append_cached(const CachedSignature& cached, const NodeId* args, uint32_t n_args, const Ids& ids);
  void bucket_node(Node& n, const NodeId* args, uint32_t n_args);
  void join_bucket(Node& n, uint32_t size, const NodeId* args, uint32_t n_args, uint32_t first_round = 0);
  // A node of this site and phase reads a pending one: its round.
  void delay(uint32_t* round, uint32_t site, uint32_t phase, uint32_t read_site, uint32_t read_round) {
    const uint32_t p = sites_.phase(read_site);
    if (p < phase) return;
    if (p > phase) contradicted_ = true;
    *round = std::max(*round, read_round + (read_site >= site));
  }
  void mark_read(NodeId id);
  NodeId append(const Node& n, int64_t offset);
  NodeId filled(const Dim& dim, float value);
  NodeId record_empty(const Sig& s, const NodeId* args);
  ParameterTable::KnownSignature signature_of(const Storage& storage, uint32_t role);
  void set_ids(Node* n, const Ids& ids) {
    if (ids.list) return set_id_list(n, ids);
    if (ids.n) n->aux = ids.data[0];
  }
  void set_id_list(Node* n, const Ids& ids);
  NodeId duplicate_of(NodeId canonical, uint32_t sig, const NodeId* args, uint32_t n_args);
  uint32_t site_of(uint32_t sig, const NodeId* args, uint32_t n);

  // What recording touches is close together, in this order: with it spread over the object, a step of a
  // small RNN took 5 % longer (benchmarks/record.py).
  RecordCache record_cache_;
  Signatures signatures_;
  Sites sites_;
  Pool<Node> nodes_{tuning::kFirstNodes};
  Pool<int64_t> offsets_{tuning::kFirstNodes};  // by node
  Pool<NodeId> arg_pool_{tuning::kFirstArgs};
  std::vector<uint32_t> id_pool_;
  BucketTable buckets_;
  std::vector<NodeId> draws_;
  ValueNumbers value_numbers_;
  VaryingNumbers varying_numbers_;
  std::vector<uint32_t> scratch_;
  struct InputSignature {
    uint32_t tables = 0, sig = 0;
    Dim dim;
  };
  InputSignature input_signatures_[8];  // of shapes seen lately
  uint64_t recorded_floats_ = 0;
  uint32_t tables_;  // number of the tables of signatures, sites and value numbers
  uint32_t most_signatures_ = tuning::kMostSignatures, graphs_kept_ = 0;
  uint32_t epoch_ = 1;
  // Pending nodes (no leaves, no views) without reader. Not beside pending_: a load of both at once, right
  // after a store to this one, waits for the store.
  uint32_t unread_ = 0;
  bool contradicted_ = false;  // an edge was recorded that the phases do not allow for
  bool counted_ = true;        // unread_, pending_ and the buckets' stats are right
  uint32_t pending_ = 0;       // all of them
  uint32_t no_grad_ = 0;       // nodes (likewise) that take no gradient
};

}  // namespace dyc
