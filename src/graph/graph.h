// The recorder: appends nodes, infers extents, assigns site, round and bucket as it goes. Knows
// nothing of launches; where a node's value lies is filled in by the planner.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "base/arena.h"
#include "base/storage.h"
#include "graph/instances.h"
#include "graph/signature.h"
#include "graph/sites.h"

namespace dyc {

class SegmentSchedule;

using NodeId = uint32_t;
constexpr uint32_t kNone = 0xffffffffu;

// Where a value lies: an offset into the value arena, or one of these.
constexpr int64_t kPending = -1;    // not planned yet
constexpr int64_t kParameter = -2;  // in the parameter's own storage

struct Node {
  static constexpr uint32_t requires_grad = 1;  // depends on something that takes a gradient
  static constexpr uint32_t view = 2;           // same memory as its argument, `aux` floats further on
  static constexpr uint32_t list = 4;           // ids are a list in the pool (else the one id is in aux)
  static constexpr uint32_t leaf = 8;           // input, parameter or draw: has no bucket
  static constexpr uint32_t constant = 16;      // an input that cannot be set again
  static constexpr uint32_t merged = 32;        // equal expressions share this node's value and gradient
  static constexpr uint32_t has_reader = 64;    // some node reads it
  uint32_t sig;
  uint32_t site;
  uint32_t bucket;
  uint32_t round;
  uint32_t args;  // first argument, in the pool
  uint32_t aux;
  uint32_t value_number;  // != 0: number of a value that is the same for every instance
  uint32_t flags : 8;
  uint32_t n_args : 24;
};

// What pending nodes of a bucket come to.
struct BucketStats {
  uint32_t count = 0;
  uint32_t sig = 0;    // of the first
  bool mixed = false;  // others have another
  int64_t floats = 0;  // of their results
  void add(uint32_t node_sig, uint32_t size) {
    if (count++ == 0) sig = node_sig;
    mixed = mixed || sig != node_sig;
    floats += size;
  }
  void add(const BucketStats& t) {
    if (count == 0) sig = t.sig;
    mixed = mixed || t.mixed || sig != t.sig;
    count += t.count;
    floats += t.floats;
  }
};

struct Bucket {
  uint32_t site, round;
  uint32_t preds = 0xffffffffu;   // first of its edges, a list in Graph::edges
  uint32_t reader = 0xffffffffu;  // bucket that last recorded an edge from this one
  BucketStats stats;
};

// A bucket that some node of another bucket reads.
struct BucketEdge {
  uint32_t pred, next;
};

// Role of a parameter's node: a constant, a value that takes a gradient, or one that lets none pass but
// shows the one that arrives (const_parameter).
constexpr uint32_t kConstant = 0, kUpdated = 1, kStopped = 2;

// A Parameters or LookupParameters object in this graph.
struct ParameterUse {
  Storage* storage;
  NodeId node;
  const float* pinned = nullptr;  // the storage's buffer as of first use in the graph
  int64_t slot = -1;              // room for its gradient in the gradient arena, once that was needed
  int64_t gradient =
      -1;               // where the last backward put its gradient: that slot, its place, or -1: the storage
  bool direct = false;  // the last backward added to the storage's gradient
  bool borrowed = false;          // `pinned` is held by hold_storages() and has no pin of its own yet
  const float* values = nullptr;  // what the graph reads, once the host wants it: `pinned` or a copy of it,
                                  // scaled by weight decay
  float factor = 1.f;             // of weight decay
  uint64_t version = 0;           // of what is pinned (Storage::version)
  bool on_device = false;         // a device had it when it was pinned, and the host did not
};

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Equal values that no input can change are computed once (off: every expression on its own).
  bool share_equal_values = true;

  // ---- recording
  struct Ids {  // per-node indices
    const uint32_t* data = nullptr;
    uint32_t n = 0;
    bool list = false;
  };
  // An op of the table. Throws ValueError from the shape rule; the graph is then unchanged.
  NodeId record(OpId op, const NodeId* args, uint32_t n, const uint32_t* attrs, uint32_t n_attrs,
                const Ids& ids);
  NodeId record(OpId op, const NodeId* args, uint32_t n) { return record(op, args, n, nullptr, 0, Ids{}); }
  NodeId unary(OpId op, NodeId x) { return record(op, &x, 1); }
  NodeId binary(OpId op, NodeId x, NodeId y) {
    const NodeId args[2] = {x, y};
    return record(op, args, 2);
  }
  // What is known of a node before it is recorded, because one of the same op with arguments of the same
  // signatures and sites was recorded before. It is an op or a lookup, and no other node is equal to it.
  struct CachedSignature {
    uint32_t sig, site, size, requires_grad;
  };
  // Its arguments are nodes[places[i]].
  NodeId record_cached(const CachedSignature& cached, const NodeId* nodes, const uint32_t* places, uint32_t n,
                       const Ids& ids);
  // Such nodes, and views of them, one after the other, whose buckets are known, too: all nodes whose
  // arguments lie in the same buckets come to lie in the same, in one epoch. nodes[to[i]] becomes the number
  // of the i-th. Until count_appended() has been told of them, nothing else may be asked of the graph.
  struct NodeRange {
    const Node*
        nodes;  // `args` of each: where its own begin among those of the range; indices are not filled in
    const uint32_t* to;
    uint32_t n;
    const uint32_t* args;  // places in `nodes`
    uint32_t n_args;
  };
  void append_nodes(const NodeRange& range, NodeId* nodes);
  // What runs come to: by bucket, and in all.
  struct BucketCount {
    uint32_t bucket;
    BucketStats stats;
  };
  struct AppendStats {
    uint32_t nodes = 0;   // but for views
    uint32_t unread = 0;  // that no other of them reads
    uint32_t idle = 0;    // that take no gradient
    uint64_t floats = 0;
  };
  void count_appended(const BucketCount* counts, uint32_t n, const AppendStats& sums);
  void fill_ids(NodeId id, const Ids& ids) { set_ids(&nodes_[id], ids); }
  // Told of what such nodes read, when they all are recorded.
  void note_read(NodeId id) {
    if (!(nodes_[id].flags & (Node::leaf | Node::has_reader)) && offsets_[id] == kPending) mark_read(id);
  }
  // Bucket of what is to be computed yet, else kNone.
  uint32_t pending_bucket(NodeId id) {
    const Node& n = nodes_[id];
    return n.flags & Node::leaf || offset_of(id) != kPending ? kNone : n.bucket;
  }
  // Buckets are others from one epoch to the next: after every renewal, and when phases were derived.
  uint32_t epoch() const { return epoch_; }
  // Keeps the storage for as long as this graph.
  void use_storage(const std::shared_ptr<Storage>& storage) {
    if (!uses_storage(storage->uid)) adopt(storage);
  }
  // Input whose values the caller writes into values(id); `writable`: may be written again later.
  NodeId input(const Dim& dim, bool writable);
  NodeId constant(const Dim& dim, float value);
  // Drawn when it is needed; at once in an instance, whose random numbers then come in the order of its
  // calls.
  NodeId draw(DrawKind kind, float a, float b, const Dim& dim);
  // Its values, from the stream of the instance that recorded it.
  void fill_draw(NodeId id);
  NodeId parameter(const std::shared_ptr<Storage>& storage, uint32_t role);
  // The same if it is in the graph already, else kNone.
  NodeId find_parameter(const Storage& storage, uint32_t role) const {
    return find_parameter(storage.uid, role);
  }
  NodeId find_parameter(uint32_t uid, uint32_t role) const {
    return uses_storage(uid) ? slots_[uid].node[role] : kNone;
  }
  bool uses_storage(uint32_t uid) const { return uid < slots_.size() && slots_[uid].epoch == epoch_; }
  NodeId lookup(const std::shared_ptr<Storage>& storage, const Ids& ids, bool update);
  // Same memory as x (a contiguous part of it), values and gradient, under other extents.
  NodeId view(OpId op, NodeId x, const Dim& dim, uint32_t offset);
  // The same where its signature is known, and the number of its value if that is equal for all instances.
  NodeId view_cached(uint32_t sig, NodeId x, uint32_t offset, uint32_t value_number);

  // ---- reading
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  // Tells the graphs of all renewals of all threads apart: no two that exist have the same.
  uint32_t version() const { return version_; }
  // Of the nodes recorded now: another one after every renewal and every revert, of any graph.
  uint32_t generation() const { return generation_; }
  // Is the node `id` of that generation of this graph still in it?
  bool keeps(NodeId id, uint32_t generation) const {
    return generation == generation_ || id < first_lost(generation);
  }
  bool reverted() const { return !reverts_.empty(); }
  // How often this graph was renewed.
  uint32_t renewals() const { return renewals_; }
  // Of this object, never reused in the process.
  const uint32_t number;
  // Expires with this object.
  std::weak_ptr<const void> life() const { return life_; }
  const Node& node(NodeId id) const { return nodes_[id]; }
  Node& node(NodeId id) { return nodes_[id]; }
  const Sig& sig(NodeId id) const { return signatures_[nodes_[id].sig]; }
  const Sig& sig_number(uint32_t s) const { return signatures_[s]; }
  const Dim& dim(NodeId id) const { return *sig(id).y; }
  // Equal for equal extents, as long as tables() is the same.
  uint32_t dim_number(NodeId id) const { return signatures_.brief(nodes_[id].sig).dim; }
  const NodeId* args(NodeId id) const { return arg_pool_.data() + nodes_[id].args; }
  const NodeId* arg_pool() const { return arg_pool_.data(); }
  Ids ids(NodeId id) const;
  uint32_t* mutable_ids(NodeId id);
  const Bucket& bucket(uint32_t b) const { return buckets_[b]; }
  const BucketEdge& edge(uint32_t e) const { return edges_[e]; }
  uint32_t buckets() const { return static_cast<uint32_t>(buckets_.size()); }
  // The node whose memory an alias shares.
  NodeId base_of(NodeId id) const {
    while (nodes_[id].flags & Node::view) id = arg_pool_[nodes_[id].args];
    return id;
  }
  // Offset of the value, resolving aliases of placed nodes.
  int64_t offset_of(NodeId id) {
    const int64_t offset = offsets_[id];
    return offset == kPending && nodes_[id].flags & Node::view ? offset_of_view(id) : offset;
  }
  int64_t* offsets() { return offsets_.data(); }
  void set_offset(NodeId id, int64_t offset) { offsets_[id] = offset; }
  bool is_parameter(NodeId id) const { return sig(id).op == op_id<ParameterNode>; }
  float* values(NodeId input) { return values_arena.base() + offsets_[input]; }

  std::vector<ParameterUse>& parameters() { return parameters_; }
  ParameterUse& parameter_use(NodeId node) { return parameters_[nodes_[node].aux]; }
  std::vector<NodeId>& draws() { return draws_; }
  // From now on the graph sees the parameter's values of this moment.
  void pin_parameter(ParameterUse& use);
  // Those values. They are on the host, or `fetch` brings them: fetch(to).
  template <class F>
  const float* parameter_values(ParameterUse& use, F fetch) {
    if (use.values) return use.values;
    pin_parameter(use);
    if (!use.on_device && use.factor == 1.f) return use.values = use.pinned;
    float* const copy = parameter_copy(use);
    const float* from = use.pinned;
    if (use.on_device) {
      fetch(copy);
      from = copy;
    }
    for (size_t i = 0; i < use.storage->size(); ++i) copy[i] = from[i] * use.factor;
    return use.values = copy;
  }
  const float* parameter_values(ParameterUse& use);
  void unpin_parameters();  // the next use reads current values
  Storage& storage(uint32_t uid) { return *storages_[slots_[uid].storage]; }
  const std::shared_ptr<Storage>& shared_storage(uint32_t uid) { return storages_[slots_[uid].storage]; }
  // Raw values of a parameter of this graph, and the factor they are to be multiplied with.
  struct Values {
    const float* raw;
    float factor;
    uint64_t version;  // Storage::version
    bool on_device;    // Storage::on_device
  };
  Values values_of(const Storage& storage) const;
  // Between the two, the graph can be evaluated without the interpreter lock: it reads parameters as they
  // were at hold_storages(), whatever other threads write, and touches nothing they could write to.
  // Both are called with the lock.
  void hold_storages();
  void release_storages();
  Instances instances;
  Sites& sites() { return sites_; }
  // Tells apart the tables of signatures and sites of all graphs, and those before and after they are given
  // up.
  uint32_t tables() const { return tables_; }
  Signatures& signatures() { return signatures_; }

  // ---- life
  // Returns true when the tables of signatures and sites were given up because they had grown large,
  // as happens in a program that keeps making new models; they are learned anew.
  bool renew();
  // For a graph beside others: a version of its own from the start.
  void take_version();
  // Phases were learned or contradicted: derive rounds and buckets of pending nodes again.
  void rebucket();
  // The same without new phases; with steps, no node has a round before its tick.
  void regroup(const SegmentSchedule* schedule);
  // Floats of all nodes recorded in this graph: how much there is to compute.
  uint64_t recorded_floats() const { return recorded_floats_; }
  bool wants_rebucket() const { return sites_.changed() || contradicted_; }

  // ---- what is pending, counted while recording: spares the planner a walk over the graph
  // Do all pending nodes lead to these, each named once? False also when that is not known.
  bool all_lead_to(std::span<const NodeId> bases) const {
    if (!counted_ || unread_ != bases.size()) return false;
    for (const NodeId o : bases)
      if (nodes_[o].flags & Node::has_reader || offsets_[o] != kPending) return false;
    return true;
  }
  uint32_t pending() const { return pending_; }
  // Every node of this graph takes a gradient, but for leaves; nodes that a revert took back count, too.
  bool all_require_grad() const { return idle_ == 0; }
  // The planner gave nodes their places: all of them, or some (then nothing is known until renew).
  void mark_allocated(bool all);

  struct Mark {
    uint32_t nodes, args, ids, parameters;
    int64_t values;
    size_t draws;
  };
  Mark mark() const;
  void revert(const Mark& mark);

  Arena values_arena;
  Arena grads_arena;
  // "; largest of 12 nodes: ...", for messages.
  std::string largest_nodes() const;

 private:
  [[gnu::noinline]] int64_t offset_of_view(NodeId id) {
    const int64_t whole = offset_of(arg_pool_[nodes_[id].args]);
    return whole < 0 ? whole : offsets_[id] = whole + nodes_[id].aux;
  }
  void bucket_node(Node& n, const NodeId* args, uint32_t n_args);
  void join_bucket(Node& n, uint32_t size, const NodeId* args, uint32_t n_args, uint32_t first_round = 0);
  uint32_t bucket_of(uint32_t site, uint32_t round);
  void connect(uint32_t pred, uint32_t bucket);
  void mark_read(NodeId id);
  NodeId append(const Node& n, int64_t offset);
  NodeId filled(const Dim& dim, float value);
  NodeId record_empty(const Sig& s, const NodeId* args);
  void set_ids(Node* n, const Ids& ids);
  NodeId duplicate_of(NodeId canonical, uint32_t sig, const NodeId* args, uint32_t n_args);
  uint32_t site_of(uint32_t sig, const NodeId* args, uint32_t n);
  void adopt(const std::shared_ptr<Storage>& storage);
  float* parameter_copy(const ParameterUse& use);
  NodeId first_lost(uint32_t generation) const;

  Signatures signatures_;
  Sites sites_;
  std::vector<Node> nodes_;
  std::vector<int64_t> offsets_;
  std::vector<uint32_t> arg_pool_, id_pool_;
  std::vector<Bucket> buckets_;
  std::vector<BucketEdge> edges_;
  std::unordered_set<uint64_t> listed_edges_;  // of buckets with many predecessors: predecessor, bucket
  std::vector<NodeId> draws_;
  std::vector<ParameterUse> parameters_;
  std::vector<std::shared_ptr<Storage>> storages_;  // used in this graph, kept alive
  struct Slot {                                     // of one storage uid
    uint32_t epoch = 0, storage = 0;
    NodeId node[3] = {kNone, kNone, kNone};  // by role
    struct Row {                             // signature of a lookup of one row, by `update`
      uint32_t tables = 0, sig = 0;
    } row[2];
  };
  std::vector<Slot> slots_;
  InternTable value_numbers_;
  struct NumberedValue {
    uint32_t epoch = 0;
    NodeId node = kNone;
  };
  std::vector<NumberedValue> numbered_values_;
  std::vector<uint32_t> scratch_;
  // Nodes of generations up to `last` have ids below `size`, which is the least since then; both rise.
  struct Revert {
    uint32_t last, size;
  };
  std::vector<Revert> reverts_;
  uint64_t recorded_floats_ = 0;
  uint32_t tables_;
  uint32_t epoch_ = 1, version_ = 0, generation_ = 0, renewals_ = 0;
  bool holding_ = false;
  std::vector<Values> held_;  // while holding_: beside storages_
  std::shared_ptr<const void> life_;
  uint32_t most_signatures_ = 4096, graphs_kept_ = 0;
  bool contradicted_ = false;
  bool counted_ = true;                // the next two, and the buckets' counts, are right
  uint32_t unread_ = 0, pending_ = 0;  // pending nodes (no leaves, no aliases): that nothing reads; all
  uint32_t idle_ = 0;                  // nodes (likewise) that take no gradient
};

}  // namespace dyc
