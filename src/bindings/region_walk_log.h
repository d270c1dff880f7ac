// Writes a walk down (region_walk_memo.h) while it goes on: what it records, and what it returns.
// WalkLog has 32 methods: one for each kind of step.
#pragma once
#include "bindings/builders.h"
#include "bindings/region_walk_reads.h"
#include "bindings/region_walk_stretches.h"

namespace dyc::py {

class WalkLog : public WalkReads {
 public:
  void begin(Engine& engine, PyObject* const* args, size_t n, PyObject* globals, PyObject* builtins);
  // ---- steps, after they were recorded
  void trace(RegionUse& use, Specialisation& s, const CapturedInputs& captured,
             const std::vector<WalkValue>& values);
  void op(OpId op, const PlainCall& plain, const WalkValue* operands, size_t n, const uint32_t* index,
          NodeId id);
  void arithmetic(uint32_t which, WalkValue a, WalkValue b, NodeId id);
  void arithmetic(uint32_t which, float a, WalkValue b, NodeId id);
  void arithmetic(uint32_t which, WalkValue a, float b, NodeId id);
  // `kind`: lookup, of this row of a table, or parameter, in this role.
  void parameters(MemoStep::Kind kind, PyObject* object, uint32_t number, NodeId id);
  void call(PyObject* function, PyObject* names, const WalkValue* args, size_t n, WalkValue made);
  void start(PyObject* builder, PyObject* state);
  void set_state(PyObject* from, WalkValue nodes, PyObject* state);
  void add_input(PyObject* from, WalkValue x, PyObject* state);
  // `first`: of the steps; `all`: states, or what the sequence puts out.
  void add_inputs(PyObject* from, uint32_t method, WalkValue xs, RnnBuilder::Step first,
                  const std::vector<WalkValue>& all);
  // It is asked for nodes, which the step that made it has made.
  void parts(PyObject* state);

  // ---- calls that draw random numbers: a replay walks them
  struct Mark {
    size_t steps, nodes, words, calls, states;
    MemoNode made;
    uint32_t drawn;
  };
  Mark mark() const;
  void drawn() { ++drawn_; }
  bool has_drawn_since(const Mark& mark) const { return drawn_ != mark.drawn; }
  // What was written down since `before` is what this call did, which returned `made`.
  void walk(const Mark& before, PyObject* function, const std::vector<WalkValue>& args, WalkValue made);

  // ---- the end
  void finish(WalkValue returned, const std::vector<std::pair<PyObject*, WalkValue>>& appends,
              const std::vector<AssignedAttributes::Entry>& assigned);
  // Null: the walk cannot be a memo.
  std::unique_ptr<WalkMemo> take() { return is_on() ? std::move(memo_) : nullptr; }

 private:
  void add_call(MemoStep step, PyObject* function, PyObject* names, const WalkValue* args, size_t n,
                WalkValue made);
  void add_step(MemoStep step, const std::vector<uint32_t>& words);
  bool add_nodes(MemoStep* step, const WalkValue* values, size_t n);
  void add_nodes(MemoStep* step, const std::vector<MemoNode>& nodes);
  void reads_of_state(const Guard& guard, PyObject* state) override;
  bool node_of(WalkValue value, MemoNode* node);
  bool number_of(NodeId id, MemoNode* node);
  MemoNode n_nodes() const { return static_cast<MemoNode>(walked_.made.size()); }
  void made(NodeId id);
  bool state_of(PyObject* state, uint32_t* number);
  void add_inputs(PyObject* from, uint32_t method, const WalkValue* inputs, size_t n, RnnBuilder::Step first,
                  const std::vector<WalkValue>& all);
  void add_state(PyObject* state, MemoNode nodes, MemoNode masks);
  MemoNode step_made(PyRnnState* from, RnnBuilder::Step step);
  bool arithmetic_step(MemoStep::Kind kind, uint32_t which, const WalkValue* operands, size_t n, float number,
                       NodeId id);
  MemoValue value(WalkValue v, bool is_last, int depth = 0);
  MemoValue result(const WalkResult* r, bool is_last, int depth);

  Engine* engine_ = nullptr;
  std::unordered_map<PyObject*, uint32_t> states_;      // made by steps
  std::unordered_map<NodeId, MemoNode> numbers_;        // of nodes
  std::unordered_map<PyObject*, MemoNode> parameters_;  // nodes of parameters
  std::unordered_map<const WalkResult*, uint32_t> results_, calls_;
  std::unordered_map<const RegionUse*, uint32_t> uses_;
  WalkedSteps walked_;
  uint32_t drawn_ = 0;  // in calls that are not walked by replays
};

}  // namespace dyc::py
