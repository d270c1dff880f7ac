// A stretch of a graph taken as a pattern: the same nodes are recorded again on other inputs by one call,
// which costs a fraction of what the calls cost that recorded them first.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace dyc {

// The place of the first that is equal to the one at `place`; and that for each.
uint32_t first_equal(const std::vector<NodeId>& nodes, size_t place);
void first_equals(const std::vector<NodeId>& nodes, std::vector<uint32_t>* places);

class Pattern {
 public:
  // Of this pattern, never reused in the process; from 1 on.
  const uint64_t number = next_number();

  // A number that differs from one use of the pattern to the next: an index of lookups and picks.
  struct Hole {
    uint32_t value;  // in the nodes the pattern is taken from, where no other number has this value
    uint32_t uses;   // how many indices are this number
  };

  // What the nodes from `begin` on are as a function of `inputs`, all different nodes before `begin`, and of
  // `holes`. Null where they are made of anything else that is not the same in every graph, or where the
  // holes are not found.
  static std::unique_ptr<Pattern> take(Graph& g, NodeId begin, const std::vector<NodeId>& inputs,
                                       const std::vector<Hole>& holes);

  // The hole is always this number; those after it are numbered anew.
  void fix(uint32_t hole, uint32_t value);

  // Would the calls the pattern stands for record the same ops on these inputs and indices?
  bool fits(const Graph& g, const NodeId* inputs, const uint32_t* holes);
  // Records the pattern; nodes() are what became of its nodes. Inputs and holes fit.
  void record(Graph& g, const NodeId* inputs, const uint32_t* holes);
  // Right after `before` was recorded, which may be this pattern: without holes, input i is now
  // before.nodes()[from[i]], and the last one is x. False, and nothing is recorded, where that does not fit.
  bool record_after(Graph& g, Pattern& before, const std::vector<uint32_t>& from, NodeId x);
  // Right after it was recorded, for the next iteration of a loop: each input but `others` is what it was, or
  // one of the nodes just recorded, the same one each time this is called. The same as record(), only faster;
  // false, and nothing is recorded, where `others` or the holes do not fit.
  bool record_again(Graph& g, const NodeId* inputs, const std::vector<uint32_t>& others,
                    const uint32_t* holes);
  // Inputs, then a node for each step.
  const NodeId* nodes() const { return nodes_.data(); }
  uint32_t n_inputs() const { return static_cast<uint32_t>(input_dims_.size()); }
  // Index into nodes() of a node that was there when the pattern was taken, or kNone.
  uint32_t place_of(NodeId id) const;
  // What differs between the two, for a message; empty where nothing does.
  std::string difference(const Pattern& other) const;

 private:
  struct Step {
    enum Kind : uint8_t { op, lookup, parameter, constant, draw, view } kind = op;
    bool list = false;
    OpId row = 0;
    uint32_t args = 0, n_args = 0;    // into words_: places in nodes_
    uint32_t attrs = 0, n_attrs = 0;  // into words_
    uint32_t ids = 0, n_ids = 0;      // into words_
    uint32_t limit = kNone;           // indices that are holes are below
    Dim dim;                          // of constants, draws and views
    uint32_t storage = kNone;         // into storages_
    bool operator==(const Step&) const = default;
  };
  struct Filled {  // word `at` of words_ is hole `hole`
    uint32_t at, hole, limit;
    bool operator==(const Filled&) const = default;
  };
  struct InputKey {
    uint32_t words[3] = {};  // 0 beyond n
    uint32_t n = 0;
    bool operator==(const InputKey&) const = default;
  };
  bool add(Graph& g, NodeId id);
  bool add_reference(Graph& g, NodeId id, std::vector<uint32_t>* places);
  void add_parameter(Graph& g, NodeId id);
  void add_constant(Graph& g, NodeId id);
  void add_step(NodeId id, Step step);
  void find_reads();
  void plan_runs();
  bool in_run(uint32_t place) const;
  void add_ids(const Graph& g, NodeId id, Step* step);
  bool fill_holes(const std::vector<Hole>& holes);
  bool holes_fit(const uint32_t* holes) const;
  void fill(const uint32_t* holes);
  uint32_t variant(const Graph& g, const NodeId* inputs, bool* fresh);
  NodeId record_step(Graph& g, const Step& step);
  void learn(const Graph& g, uint32_t variant);
  template <class F>
  void undoing(Graph& g, F f);
  void record_all(Graph& g, const NodeId* inputs, const uint32_t* holes);
  void record_known(Graph& g, uint32_t variant);
  uint32_t placement(Graph& g, const NodeId* inputs);
  void learn_placement(const Graph& g, uint32_t placement, uint32_t variant);
  struct Placement;
  void add_to_sums(Placement* p, const Node& n, uint32_t size);
  bool find_parameters(const Graph& g);
  void record_found(Graph& g, bool parameters_known);
  bool follow(Graph& g, Pattern& before, const NodeId* inputs, const InputKey& key, const uint32_t* holes);
  void record_placed(Graph& g, const Placement& placement);
  Graph::Ids ids_of(const Step& s) const { return {words_.data() + s.ids, s.n_ids, s.list}; }

  std::vector<Step> steps_;
  std::vector<uint32_t> words_;
  std::vector<Filled> filled_;
  std::vector<Dim> input_dims_;
  std::vector<uint32_t> dim_numbers_;  // the same as numbers, in the tables `numbers_of_`
  uint32_t numbers_of_ = 0;
  // Places that ops read, not through views: of inputs, and of views of what is in no run.
  std::vector<uint32_t> read_;
  // Of parameters, which a pattern does not keep alive: who uses it has them.
  struct Kept {
    uint32_t uid;
    std::weak_ptr<Storage> storage;
    bool operator==(const Kept& o) const { return uid == o.uid; }
  };
  std::shared_ptr<Storage> storage(const Step& step) const;
  std::vector<Kept> storages_;
  std::vector<NodeId> taken_;  // beside nodes_: the nodes the pattern was taken from
  std::vector<NodeId> nodes_;
  std::vector<NodeId> next_inputs_;

  uint32_t tables_ = 0;  // Graph::tables() that what follows is of
  InternTable variants_;
  std::vector<Graph::Known> known_;  // of each variant: what each step came to; sig kNone: record it in full
  std::vector<uint32_t> key_;

  static uint64_t next_number();  // recording is under the interpreter's lock

  // What decides buckets, too, numbered, and what it led to: in one epoch of a graph.
  static InputKey input_key(Graph& g, NodeId input);
  uint32_t epoch_ = 0;
  uint32_t last_ = kNone;    // placement that was recorded last
  uint64_t generation_ = 0;  // of the numbers of placements: no others have the same
  uint64_t placements_used_ = 0;
  bool often_ =
      true;  // in the last epoch, 3 uses for 2 placements? Else they are learned when they come again
  bool placeable_ = true;  // by what is learned; no step may be equal to a node that was there before
  InternTable placements_;
  struct Placement {
    uint32_t variant = kNone;  // kNone: not learned
    uint32_t nodes = 0;        // into placed_nodes_
    uint32_t tallies = 0, n_tallies = 0;
    Graph::RunSums sums;
    // What was recorded right after it: the generation of its pattern, its x and its placement.
    uint64_t next_generation = 0;
    InputKey next_input;
    uint32_t next = kNone;
  };
  std::vector<Placement> placed_;   // by their numbers
  std::vector<Node> placed_nodes_;  // of each placement: those of ops_
  std::vector<Graph::BucketTally> tallies_;

  // Ops, lookups and views of them, which are recorded in runs, and what is recorded on its own between two
  // runs.
  struct Run {
    uint32_t first, n;      // among ops_
    uint32_t args, n_args;  // into run_args_
    uint32_t then;          // a step, or kNone
  };
  std::vector<Run> runs_;
  std::vector<uint32_t> ops_;  // places of their nodes
  std::vector<uint32_t> run_args_;
  struct Parameter {
    uint32_t place, uid, role;
  };
  std::vector<Parameter> parameters_;
  std::vector<uint32_t> lookups_, with_ids_;  // steps
};

}  // namespace dyc
