// A stretch of a graph taken as a trace: the same nodes are recorded again on other inputs by one call,
// which costs a fraction of what the calls cost that recorded them first.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace dyc {

// The place of the first that is equal to the one at `place`; and that for each.
uint32_t first_equal(const std::vector<NodeId>& nodes, size_t index);
void first_equals(const std::vector<NodeId>& nodes, std::vector<uint32_t>* indices);

class Trace {
 public:
  // Of this trace, never reused in the process; from 1 on.
  const uint64_t number = next_number();

  // A number that differs from one use of the trace to the next: an index of lookups and picks.
  struct Placeholder {
    uint32_t value;  // in the nodes the trace is taken from, where no other number has this value
    uint32_t uses;   // how many indices are this number
  };

  // What the nodes from `begin` on are as a function of `inputs`, all different nodes before `begin`, and of
  // `holes`. Null where they are made of anything else that is not the same in every graph, or where the
  // holes are not found.
  static std::unique_ptr<Trace> capture(Graph& g, NodeId begin, const std::vector<NodeId>& inputs,
                                        const std::vector<Placeholder>& placeholders);

  // The hole is always this number; those after it are numbered anew.
  void make_constant(uint32_t placeholder, uint32_t value);

  // Would the calls the trace stands for record the same ops on these inputs and indices?
  bool matches(const Graph& g, const NodeId* inputs, const uint32_t* indices);
  // Records the trace; nodes() are what became of its nodes. Inputs and holes fit.
  void record(Graph& g, const NodeId* inputs, const uint32_t* indices);
  // Right after `before` was recorded, which may be this trace: without holes, input i is now
  // before.nodes()[from[i]], and the last one is x. False, and nothing is recorded, where that does not fit.
  bool record_after(Graph& g, Trace& before, const std::vector<uint32_t>& from, NodeId x);
  // Right after it was recorded, for the next iteration of a loop: each input but `others` is what it was, or
  // one of the nodes just recorded, the same one each time this is called. The same as record(), only faster;
  // false, and nothing is recorded, where `others` or the holes do not fit.
  bool record_again(Graph& g, const NodeId* inputs, const std::vector<uint32_t>& others,
                    const uint32_t* indices);
  // Inputs, then a node for each step.
  const NodeId* nodes() const { return nodes_.data(); }
  uint32_t n_inputs() const { return static_cast<uint32_t>(input_dims_.size()); }
  // Index into nodes() of a node that was there when the trace was taken, or kNone.
  uint32_t index_of(NodeId id) const;
  // What differs between the two, for a message; empty where nothing does.
  std::string difference(const Trace& other) const;

 private:
  struct TraceStep {
    enum Kind : uint8_t { op, lookup, parameter, constant, draw, view } kind = op;
    bool list = false;
    OpId code = 0;
    uint32_t args = 0, n_args = 0;    // into words_: indices in nodes_
    uint32_t attrs = 0, n_attrs = 0;  // into words_
    uint32_t ids = 0, n_ids = 0;      // into words_
    uint32_t limit = kNone;           // indices that are indices are below
    Dim dim;                          // of constants, draws and views
    uint32_t storage = kNone;         // into storages_
    bool operator==(const TraceStep&) const = default;
  };
  struct BoundPlaceholder {  // word `at` of words_ is hole `hole`
    uint32_t at, placeholder, limit;
    bool operator==(const BoundPlaceholder&) const = default;
  };
  struct InputKey {
    uint32_t words[3] = {};  // 0 beyond n
    uint32_t n = 0;
    bool operator==(const InputKey&) const = default;
  };
  bool add(Graph& g, NodeId id);
  bool add_reference(Graph& g, NodeId id, std::vector<uint32_t>* indices);
  void add_parameter(Graph& g, NodeId id);
  void add_constant(Graph& g, NodeId id);
  void add_step(NodeId id, TraceStep step);
  void find_outside_reads();
  void plan_appends();
  bool is_appended(uint32_t index) const;
  void add_ids(const Graph& g, NodeId id, TraceStep* step);
  bool bind_placeholders(const std::vector<Placeholder>& placeholders);
  bool indices_fit(const uint32_t* indices) const;
  void set_indices(const uint32_t* indices);
  uint32_t signature_set(const Graph& g, const NodeId* inputs, bool* fresh);
  NodeId record_step(Graph& g, const TraceStep& step);
  void learn(const Graph& g, uint32_t signature_set);
  template <class F>
  void or_revert(Graph& g, F f);
  void record_all(Graph& g, const NodeId* inputs, const uint32_t* indices);
  void record_cached(Graph& g, uint32_t signature_set);
  uint32_t layout(Graph& g, const NodeId* inputs);
  void learn_layout(const Graph& g, uint32_t layout, uint32_t signature_set);
  struct BucketLayout;
  void add_to_stats(BucketLayout* p, const Node& n, uint32_t size);
  bool find_parameters(const Graph& g);
  void record_layout(Graph& g, bool parameters_known);
  bool record_predicted(Graph& g, Trace& before, const NodeId* inputs, const InputKey& key,
                        const uint32_t* indices);
  void append_layout(Graph& g, const BucketLayout& layout);
  Graph::Ids ids_of(const TraceStep& s) const { return {words_.data() + s.ids, s.n_ids, s.list}; }

  std::vector<TraceStep> steps_;
  std::vector<uint32_t> words_;
  std::vector<BoundPlaceholder> bound_;
  std::vector<Dim> input_dims_;
  std::vector<uint32_t> dim_numbers_;  // the same as numbers, in the tables `numbers_of_`
  uint32_t numbers_of_ = 0;
  // Places that ops read, not through views: of inputs, and of views of what is in no run.
  std::vector<uint32_t> outside_reads_;
  // Of parameters, which a trace does not keep alive: who uses it has them.
  struct WeakStorage {
    uint32_t uid;
    std::weak_ptr<Storage> storage;
    bool operator==(const WeakStorage& o) const { return uid == o.uid; }
  };
  std::shared_ptr<Storage> storage(const TraceStep& step) const;
  std::vector<WeakStorage> storages_;
  std::vector<NodeId> captured_;  // beside nodes_: the nodes the trace was taken from
  std::vector<NodeId> nodes_;
  std::vector<NodeId> next_inputs_;

  uint32_t tables_ = 0;  // Graph::tables() that what follows is of
  InternTable signature_sets_;
  std::vector<Graph::CachedSignature>
      cached_;  // of each signature_set: what each step came to; sig kNone: record it in full
  std::vector<uint32_t> key_;

  static uint64_t next_number();  // recording is under the interpreter's lock

  // What decides buckets, too, numbered, and what it led to: in one epoch of a graph.
  static InputKey input_key(Graph& g, NodeId input);
  uint32_t epoch_ = 0;
  uint32_t last_layout_ = kNone;  // layout that was recorded last
  uint64_t generation_ = 0;       // of the numbers of placements: no others have the same
  uint64_t layouts_used_ = 0;
  bool learn_at_once_ =
      true;  // in the last epoch, 3 uses for 2 placements? Else they are learned when they come again
  bool layouts_possible_ = true;  // by what is learned; no step may be equal to a node that was there before
  InternTable layout_keys_;
  struct BucketLayout {
    uint32_t signature_set = kNone;  // kNone: not learned
    uint32_t nodes = 0;              // into layout_nodes_
    uint32_t counts = 0, n_counts = 0;
    Graph::AppendStats stats;
    // What was recorded right after it: the generation of its trace, its x and its placement.
    uint64_t next_generation = 0;
    InputKey next_input;
    uint32_t next = kNone;
  };
  std::vector<BucketLayout> layouts_;  // by their numbers
  std::vector<Node> layout_nodes_;     // of each layout: those of ops_
  std::vector<Graph::BucketCount> counts_;

  // Ops, lookups and views of them, which are recorded in runs, and what is recorded on its own between two
  // runs.
  struct Append {
    uint32_t first, n;      // among ops_
    uint32_t args, n_args;  // into append_args_
    uint32_t then;          // a step, or kNone
  };
  std::vector<Append> appends_;
  std::vector<uint32_t> ops_;  // indices of their nodes
  std::vector<uint32_t> append_args_;
  struct Parameter {
    uint32_t index, uid, role;
  };
  std::vector<Parameter> parameters_;
  std::vector<uint32_t> lookups_, with_ids_;  // steps
};

}  // namespace dyc
