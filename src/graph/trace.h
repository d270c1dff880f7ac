// A trace: a recorded stretch of nodes that one call records again on other inputs, for a fraction of what
// the calls cost that recorded it first.
//
// Captured once: the steps (ops with their attributes, arguments as indices into nodes()), the inputs and the
// placeholders. Learned while recording, in two levels:
// - Layouts, keyed by the signatures and sites of the inputs, and by which of them are pending: the signature
//   and site of each step, the finished nodes, which of them share buckets, and what they add to the
//   statistics of the graph. Valid as long as the tables of the graph (Graph::tables()): graph after graph.
// - Placements, keyed by a layout and the buckets of the inputs: the buckets of the nodes. Valid for one
//   epoch of the graph, and cheap to make. With one, a trace is appended in bulk, without a look at its
//   steps. A placement also predicts the one that followed it last.
// Capturing and recording share all of these data, so they are one class of 54 methods and 20 fields.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace dyc {

// The index of the first node that is equal to the one at `index`; and that for each.
uint32_t first_equal(const std::vector<NodeId>& nodes, size_t index);
void first_equals(const std::vector<NodeId>& nodes, std::vector<uint32_t>* indices);

// Memory of traces and of what uses them, of which there should be no more than `most` bytes.
struct TraceBudget {
  size_t bytes, most;
  bool is_spent() const { return bytes > most; }
};

class Trace {
 public:
  Trace() = default;
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  // Of this trace, never reused in the process; from 1 on.
  const uint64_t number = next_number();

  // A number that differs from one use of the trace to the next: an index of lookups and picks.
  struct Placeholder {
    uint32_t value;  // in the captured nodes, where no other number has this value
    uint32_t uses;   // how many indices are this number
  };

  // Captures the nodes from `begin` on as a function of `inputs`, which are distinct nodes before `begin`,
  // and of the placeholders. Null if they depend on anything else that is not the same in every graph, or if
  // the placeholders are not found.
  static std::unique_ptr<Trace> capture(Graph& g, NodeId begin, const std::vector<NodeId>& inputs,
                                        const std::vector<Placeholder>& placeholders);
  // Captures the nodes from `begin` to `end`, where others follow. Each index is a placeholder, and `indices`
  // get their values. Its layout is learned at once. Null also if a node could not be appended in bulk.
  static std::unique_ptr<Trace> capture_stretch(Graph& g, NodeId begin, NodeId end,
                                                const std::vector<NodeId>& inputs,
                                                std::vector<uint32_t>* indices);

  // Makes the placeholder a constant; the numbers of those after it decrease by one.
  void make_constant(uint32_t placeholder, uint32_t value);

  // Would the captured calls record the same ops on these inputs and indices (values of the placeholders)?
  bool matches(const Graph& g, const NodeId* inputs, const uint32_t* indices);
  // Records the trace, which matches, and sets nodes().
  void record(Graph& g, const NodeId* inputs, const uint32_t* indices);
  // Right after `before` was recorded, which may be this trace: input i is before.nodes()[from[i]], the last
  // one is x, and there are no placeholders. False, and nothing is recorded, if the trace does not match.
  bool record_after(Graph& g, Trace& before, const std::vector<uint32_t>& from, NodeId x);
  // Right after this trace was recorded, for the next iteration of a loop: each input except `others` is
  // unchanged or one of the nodes just recorded, the same one each time. The same as record(), only faster;
  // false, and nothing is recorded, if `others` or the indices do not match.
  bool record_again(Graph& g, const NodeId* inputs, const std::vector<uint32_t>& others,
                    const uint32_t* indices);
  // Inputs, then a node for each step.
  const NodeId* nodes() const { return nodes_.data(); }
  uint32_t n_nodes() const { return static_cast<uint32_t>(nodes_.size()); }
  uint32_t n_inputs() const { return static_cast<uint32_t>(input_dims_.size()); }
  uint32_t n_steps() const { return static_cast<uint32_t>(steps_.size()); }
  // The shape of a node: an input, or what is recorded on inputs that match.
  const Dim& dim(uint32_t index) const {
    return index < n_inputs() ? input_dims_[index] : dims_[steps_[index - n_inputs()].dim];
  }
  // Are the values of the placeholders below their limits?
  bool indices_fit(const uint32_t* indices) const;
  // Index into nodes() of a node that was captured, or kNone.
  uint32_t index_of(NodeId id) const;
  // After this index_of() knows nothing, and the memory is not larger than needed.
  void forget_captured();
  // What it takes from now on is part of the budget. Where that is spent, no layouts are learned: steps on
  // other inputs are recorded one by one.
  void count_in(TraceBudget* budget);
  // Does it draw random numbers?
  bool draws() const;
  // What differs between the two, for a message; empty if nothing does.
  std::string difference(const Trace& other) const;
  // Would it record the same as the other, given the same inputs and indices? Equal ones have equal hashes.
  bool is_equal(const Trace& other) const {
    return input_dims_ == other.input_dims_ && difference(other).empty();
  }
  uint64_t hash() const;

 private:
  struct TraceStep {
    enum Kind : uint8_t { op, lookup, parameter, constant, draw, view } kind = op;
    bool list = false;
    OpId code = 0;
    uint32_t args = 0, n_args = 0;    // into words_: indices in nodes_
    uint32_t attrs = 0, n_attrs = 0;  // into words_
    uint32_t ids = 0, n_ids = 0;      // into words_; the number of an operator is an attribute and an id, as
                                      // the graph decides which op it is (graph/varying_numbers.h)
    uint32_t limit = kNone;           // of values of placeholders
    uint32_t dim = 0;                 // of the result, into dims_
    uint32_t storage = kNone;         // into storages_
    bool operator==(const TraceStep&) const = default;
  };
  struct BoundPlaceholder {  // word `at` of words_ has its value
    uint32_t at, placeholder, limit;
    bool operator==(const BoundPlaceholder&) const = default;
  };
  struct InputKey {
    uint32_t kind = 0, site = 0, value_number = 0, bucket = kNone;  // kNone: not pending
    bool operator==(const InputKey&) const = default;
  };
  size_t bytes() const;
  void count_bytes();
  bool is_full() const { return budget_ && budget_->is_spent(); }
  static std::unique_ptr<Trace> capture_nodes(Graph& g, NodeId begin, NodeId end,
                                              const std::vector<NodeId>& inputs);
  bool add(Graph& g, NodeId id);
  bool add_reference(Graph& g, NodeId id, std::vector<uint32_t>* indices);
  void add_parameter(Graph& g, NodeId id);
  void add_constant(Graph& g, NodeId id);
  void add_step(const Graph& g, NodeId id, TraceStep step);
  void find_reads();
  void plan_appends();
  void add_table(uint32_t storage);
  bool is_appended(uint32_t index) const;
  static bool is_leaf(const TraceStep& step);
  void add_ids(const Graph& g, NodeId id, TraceStep* step);
  bool bind_placeholders(const std::vector<Placeholder>& placeholders);
  void bind_indices(std::vector<uint32_t>* indices);
  static bool has_indices(const TraceStep& s) {  // the words of a number are no index
    return s.n_ids > 0 && !may_own_number(s.code);
  }
  void set_indices(const uint32_t* indices);
  uint32_t layout(Graph& g, const NodeId* inputs, bool* fresh);
  void place(Graph& g, const NodeId* inputs, uint32_t layout);
  NodeId record_step(Graph& g, const TraceStep& step);
  template <class F>
  void or_revert(Graph& g, F f);
  void record_all(Graph& g, const NodeId* inputs, const uint32_t* indices);
  void record_cached(Graph& g, uint32_t layout);
  void learn(const Graph& g, uint32_t layout);
  void learn_nodes(const Graph& g, uint32_t layout);
  bool is_pending(uint32_t input) const { return buckets_[input] != kNone; }
  struct Layout;
  bool find_parameters(const Graph& g);
  bool record_predicted(Graph& g, Trace& before, const NodeId* inputs, const InputKey& key,
                        const uint32_t* indices);
  void append_placed(Graph& g, bool parameters_known);
  Graph::Ids ids_of(const TraceStep& s) const { return {words_.data() + s.ids, s.n_ids, s.list}; }

  std::vector<TraceStep> steps_;
  std::vector<Dim> dims_;  // each once, in the order of the steps
  std::vector<uint32_t> words_;
  std::vector<BoundPlaceholder> bound_;
  std::vector<Dim> input_dims_;
  std::vector<uint32_t> dim_numbers_;  // the same as numbers, in the tables `numbers_of_`
  uint32_t numbers_of_ = 0;
  struct WeakStorage {  // a trace does not keep parameters alive: its user does
    uint32_t uid;
    std::weak_ptr<Storage> storage;
    bool operator==(const WeakStorage& o) const { return uid == o.uid; }
  };
  std::shared_ptr<Storage> storage(uint32_t number) const;
  std::vector<WeakStorage> storages_;
  std::unordered_map<NodeId, uint32_t> captured_;  // indices of the nodes that were captured
  std::vector<NodeId> nodes_;
  std::vector<NodeId> next_inputs_;
  std::vector<uint32_t> key_;
  std::vector<uint32_t> buckets_;  // of the inputs; kNone: not pending

  static uint64_t next_number();  // recording is under the interpreter's lock
  static InputKey input_key(Graph& g, NodeId input);

  struct Layout {
    bool appendable = false;  // no step but leaves is recorded in full
    bool learned = false;     // the rest is filled in: at the second use, as inputs may never be so again
    uint32_t nodes = 0;       // into Layouts::nodes
    uint32_t joins = 0, n_joins = 0, sources = 0;
    uint32_t counts = 0, n_counts = 0;
    Graph::AppendStats stats;
  };
  struct Layouts {
    uint32_t tables = 0;  // Graph::tables() that they are valid for
    InternTable keys{16};
    std::vector<Layout> list;
    std::vector<CachedSignature> cached;  // of each layout, for each step; sig kNone: record it in full
    // Of each layout: those of Bulk::ops; their buckets are places, those of the inputs and then of `joins`.
    std::vector<Node> nodes;
    std::vector<Graph::Joining> joins;
    std::vector<uint32_t> sources;
    std::vector<Graph::BucketCount> counts;
  };
  Layouts layouts_;
  // Scratch of learn_nodes().
  struct Learning {
    std::vector<uint32_t> place_of;               // of each node, or kNone
    std::vector<uint32_t> last_reader, count_of;  // of each place
    InternTable joins{16};                        // by site and sources
    std::vector<uint32_t> key;
  };
  void add_to_stats(Layout* p, const Node& n, uint32_t size, Learning* l);
  uint32_t learn_place(uint32_t index, uint32_t site, uint32_t layout, Learning* l);

  struct Placement {
    uint32_t layout;
    uint32_t places;  // into Placements::places
    // What was recorded right after it: the generation of that trace's placements, its x and its placement.
    uint64_t next_generation = 0;
    InputKey next_input;
    uint32_t next = kNone;
  };
  struct Placements {
    uint32_t epoch = 0;       // Graph::epoch() that they are valid for, with the layouts' tables
    uint32_t last = kNone;    // the one recorded last
    uint64_t generation = 0;  // of their numbers: no placements of before, of any trace, have the same
    InternTable keys{16};
    std::vector<Placement> list;
    std::vector<Graph::JoinedBucket> places;
  };
  Placements placements_;

  // How a trace is appended: ops, lookups and views of them in bulk, other steps one by one between.
  struct Append {
    uint32_t first, n;      // among Bulk::ops
    uint32_t args, n_args;  // into Bulk::args
    uint32_t then;          // a step, or kNone
  };
  struct Parameter {
    uint32_t index, uid, role;
  };
  // What an append needs of a step with indices, apart from the steps: these take so much memory that a trace
  // that was not used lately is read from outside the cache.
  struct IndexedNode {
    uint32_t index, ids, n_ids;  // `ids`: into words_
    bool list;
  };
  struct Bulk {
    std::vector<Append> appends;  // parameters are no steps between
    std::vector<Append> fresh;    // where some are not in the graph yet: they are
    std::vector<uint32_t> ops;    // indices of their nodes
    std::vector<uint32_t> args;
    std::vector<Parameter> parameters;
    std::vector<uint32_t> tables;  // that lookups read, into storages_: each once
    std::vector<IndexedNode> indexed;
    std::vector<uint32_t> outside_reads;  // indices of nodes not appended that ops read, not through views
    std::vector<bool> read;               // by node: do ops of the trace read it, or a view of it?
  };
  Bulk bulk_;
  TraceBudget* budget_ = nullptr;
  size_t counted_ = 0;  // of its bytes, in the budget
};

}  // namespace dyc
