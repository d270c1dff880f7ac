// Records what a memo of a walk says (region_walk_memo.h), in place of the walk.
// MemoReplay has 30 methods: one for each kind of read and step.
#pragma once
#include <span>

#include "bindings/builders.h"
#include "bindings/region_walk.h"
#include "bindings/region_walk_memo.h"

namespace dyc::py {

class MemoReplay {
 public:
  explicit MemoReplay(Walker& walker) : walker_(walker) {}

  // The next to be recorded.
  void begin(const WalkMemo& memo, PyObject* const* args, size_t n);
  // Is all that the walk has read as it was? Runs no code of the script.
  bool fits();
  // Records, and returns what the function returns. Ends as a walk does where it cannot.
  PyObject* run();

 private:
  bool accepts(PyObject* value, const MemoExpected& expected);
  bool reads(const MemoRead& r);
  MemoExpected expected(const MemoRead& r) const { return {r.object, memo_->types[r.type].type}; }
  const MemoExpected* next_items(uint32_t n) {
    used_.items += n;
    return memo_->items.data() + used_.items - n;
  }
  bool reads_attribute(PyObject* base, const MemoRead& r);
  bool reads_sequence(PyObject* base, const MemoRead& r);
  bool reads_entries(PyObject* base, const MemoRead& r);
  bool reads_function(PyObject* base, const MemoRead& r);
  static PyObject* of_class(PyObject* object, PyObject* name);
  static PyObject* item(PyObject* base, PyObject* key);
  bool inputs_are_equal() const;
  bool regions_are_ready() const;
  void step(const MemoStep& s);
  const NodeId* operands(const MemoStep& s);
  void trace(const MemoStep& s);
  void stretch(const MemoStep& s);
  void record(Trace& trace, const NodeId* inputs);
  NodeId arithmetic(const MemoStep& s);
  void call(const MemoStep& s);
  void walk(const MemoStep& s);
  void add_inputs(const MemoStep& s);
  void steps_of_stretch(const MemoStep& s);
  void step_made(PyRnnState* from, RnnBuilder::Step step);
  void set_state(const MemoStep& s);
  void reads_of_state(const MemoStep& s);
  PyRnnState* add_state(uint32_t number, PyObject* made);
  WalkValue value(const MemoValue& v);
  WalkResult* result(uint32_t number);

  Walker& walker_;
  const WalkMemo* memo_ = nullptr;
  std::span<PyObject* const> args_;
  struct Used {
    size_t items = 0, nodes = 0, words = 0;
  };
  Used used_;                        // how many of the memo's
  const uint32_t* words_ = nullptr;  // of the step
  std::vector<PyObject*> inputs_;    // borrowed
  std::vector<NodeId> input_nodes_, made_;
  struct Operands {  // of the step
    std::vector<NodeId> nodes;
    std::vector<WalkValue> values;
  };
  Operands operands_;
  std::vector<PyRnnState*> states_;
  std::vector<WalkResult*> called_, results_;
};

}  // namespace dyc::py
