// Calls of functions with branches, loops and calls of themselves, recorded by one call of the core.
//
// The Walker runs the program of a function (region_program.h): it reads the objects, decides the branches,
// checks the guards of each region, and records traces of regions and single ops. It runs no code of the
// script. If anything is not as it should be, the walk ends, what it has recorded is taken back, and the
// function runs as it was written. Objects that Python can see are made at the end: those that the call
// returns or appends to lists, and the attributes that it assigns. Until then, what is recorded are
// WalkResults.
//
// Assigned attributes are kept beside their objects until the end: what the walk reads of an object
// afterwards is what was assigned. Objects of classes of the script are made by the walk, which runs their
// __init__. Random numbers are drawn as Python draws them (region_walk_draws.h).
//
// Walker has 133 methods and 35 fields: one method for each kind of statement and value,
// any of which may end the walk, and the vectors that are kept from one walk to the next, so that a walk
// allocates nothing. Its files: region_walk.cc (statements, calls), region_walk_values.cc (tests, operators,
// items, attributes), region_walk_ops.cc (single ops, lists), region_walk_states.cc (builders and their
// states), region_walk_objects.cc (objects, random numbers), region_walk_builtins.cc (calls of objects),
// region_walk_step.cc (regions), region_walk_run.cc (beginning and end).
#pragma once
#include <unordered_set>

#include "bindings/region.h"
#include "bindings/region_program.h"
#include "bindings/region_walk_draws.h"
#include "bindings/tuning.h"

namespace dyc::py {

struct WalkResult;

// An object of the script, or one that the walk will make at its end. Both null: no value.
struct WalkValue {
  PyObject* object = nullptr;  // borrowed
  WalkResult* result = nullptr;
  bool operator==(const WalkValue&) const = default;
};

inline uintptr_t stack_pointer() { return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); }

inline bool as_short_int(WalkValue v, Py_ssize_t* number) {
  return v.object && PyLong_CheckExact(v.object) && is_short(v.object, number);
}

struct WalkResult {
  enum Kind : uint8_t { recorded, tuple, list } kind = recorded;
  bool is_sequence() const { return kind != recorded; }
  NodeId id = 0;                 // recorded
  PyTypeObject* type = nullptr;  // recorded
  std::vector<WalkValue> items;  // tuple, list
  Owned made;                    // the object
};

// The values that a region reads in a walk. Parts of an argument that is the same object as before in this
// walk are not read again: no code runs that could change them.
struct RegionUse : std::enable_shared_from_this<RegionUse> {
  explicit RegionUse(Region& r);

  Region& region;
  std::vector<WalkValue> arguments;             // of the next step
  std::vector<WalkValue> values;                // of the sources
  SourceValues objects;                         // the same
  std::vector<std::vector<uint32_t>> parts_of;  // by argument: sources that are parts of it; last: of several
  std::vector<const PyTypeObject*> plain_in;    // of attributes: the class in which no code computes them
  std::vector<uint8_t> reads_lists;             // beside `parts_of`: are some of them parts of lists?
  std::vector<uint32_t> appended_to;            // sources
  std::vector<uint64_t> reading;                // beside `parts_of`: number of the last reading
  uint64_t walk = 0, assignments = 0;           // of attributes, when it read them
  Specialisation* last = nullptr;
  uint64_t replays = 0;             // in this walk
  std::vector<WalkValue> appended;  // lists that it appends to
};

// Attributes that a walk has assigned, each once, in the order of their first assignment.
class AssignedAttributes {
 public:
  struct Entry {
    Owned object;    // which nothing else may keep alive, once others are assigned
    PyObject* name;  // interned, borrowed
    WalkValue value;
  };
  // Null: not assigned.
  const WalkValue* find(PyObject* object, PyObject* name) const {
    return (names_ & bit(name)) ? find_entry(object, name) : nullptr;
  }
  void set(PyObject* object, PyObject* name, WalkValue value);
  std::vector<Entry> take();
  bool is_empty() const { return entries_.empty(); }
  uint64_t assignments() const { return assignments_; }  // until now, of all walks

 private:
  static size_t hash(const void* p) { return reinterpret_cast<uintptr_t>(p) >> 4; }
  static uint64_t bit(PyObject* name) { return uint64_t{1} << (hash(name) & 63); }
  size_t slot(PyObject* object, PyObject* name) const;
  const WalkValue* find_entry(PyObject* object, PyObject* name) const;

  std::vector<Entry> entries_;
  std::vector<uint32_t> table_;  // indices into entries_, by hash; kNone: free
  uint64_t names_ = 0;           // one bit for each assigned name, perhaps the same for several
  uint64_t assignments_ = 0;
};

class MemoTable;
class MemoReplay;
class WalkLog;
struct MemoFound;
struct WalkMemo;

class Walker {
 public:
  Walker();
  ~Walker();
  // Runs the program. Null: all that was recorded has been taken back, and the function must run, unless an
  // exception is set, which then ends the script. `args`: values of the parameters, then of the free names.
  // `recording`: the set of functions that only record. `memos`: of the function; `found`: what they have for
  // these arguments. `walks`: if no memo is replayed.
  PyObject* run(WalkProgram& program, PyObject* recording, PyObject* const* args, size_t n, MemoTable& memos,
                const MemoFound& found, bool walks);
  // The function without a program at which the last walk ended, or null.
  Owned take_unknown() { return std::move(unknown_); }
  const char* reason() const { return reason_; }
  bool has_walked() const { return has_walked_; }
  uint32_t recorded() const { return recorded_; }
  // Was it no walk, but the replay of a memo?
  bool was_replayed() const { return was_replayed_; }
  // Must statements run, so that they are learned or compared with what was learned?
  bool is_learning() const { return learning_; }

 private:
  friend class MemoReplay;
  struct Refused {};
  struct Frame {
    WalkValue* slots;
    WalkValue returned;
  };
  enum class Flow : uint8_t { next, broken, again, returned };
  // What a loop runs over: like Python's iterators, it sees a list as it is when the next item is asked for.
  struct Items {
    enum Kind : uint8_t { list, numbers, zip, enumerate } kind = list;
    WalkValue of;  // list
    Py_ssize_t at = 0, step = 1;
    size_t left = 0;  // numbers
    std::vector<Items> parts;
  };
  template <class F>
  PyObject* or_revert(F f);
  PyObject* replay(MemoTable& memos, WalkMemo& memo, PyObject* const* args, size_t n);
  PyObject* walk(WalkProgram& program, PyObject* const* args, size_t n);
  [[noreturn]] void refuse(const char* reason);
  void spend(size_t n);
  WalkValue* take_slots(const WalkProgram& program);
  WalkValue call(const WalkProgram& program, WalkValue* slots);
  Flow execute(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] Flow execute_block(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] Flow execute_branch(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] Flow execute_result(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] Flow execute_expression(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] Flow execute_for(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] Flow execute_while(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] Flow execute_region(const WalkNode& node, Frame& frame);
  void assign(const WalkNode& target, WalkValue value, Frame& frame) {
    if (target.kind != WalkNode::slot) return assign_other(target, value, frame);
    frame.slots[target.number] = value;
  }
  [[gnu::noinline]] void assign_other(const WalkNode& target, WalkValue value, Frame& frame);
  [[gnu::always_inline]] WalkValue evaluate(const WalkNode& node, Frame& frame) {
    if (node.kind == WalkNode::constant) return {node.object.get()};
    if (node.kind != WalkNode::slot) return evaluate_other(node, frame);
    const WalkValue value = frame.slots[node.number];
    if (!value.object && !value.result) refuse("a name without a value");
    return value;
  }
  WalkValue evaluate_other(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] WalkValue evaluate_attribute(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] WalkValue evaluate_item(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] WalkValue evaluate_slice(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] WalkValue evaluate_logic(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] WalkValue evaluate_comparison(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] WalkValue evaluate_conditional(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] WalkValue evaluate_arithmetic(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] WalkValue evaluate_region(const WalkNode& node, Frame& frame);
  [[gnu::noinline]] WalkValue evaluate_global(const WalkNode& node);
  [[gnu::noinline]] WalkValue evaluate_call(const WalkNode& node, Frame& frame);
  PyObject* known_recorder(const WalkNode& node) const;
  WalkValue call_object(PyObject* function, const WalkNode& node, Frame& frame);
  WalkValue call_builtin(PyObject* function, const WalkNode& node, Frame& frame);
  WalkValue sum(WalkValue items);
  WalkValue attribute_named(WalkValue base, WalkValue name);
  [[gnu::noinline]] WalkValue join(const WalkNode& node, Frame& frame);
  WalkValue call_plainly(PyObject* function, WalkValue self, const WalkNode& node, Frame& frame);
  WalkValue get_item(WalkValue dict, const WalkNode& node, Frame& frame);
  WalkValue call_function(PyObject* function, WalkValue self, const WalkNode& node, Frame& frame);
  [[gnu::noinline]] WalkValue construct(PyTypeObject* type, const WalkNode& node, Frame& frame);
  WalkValue draw(const Drawer& from, const WalkNode& node, Frame& frame);
  WalkValue walk_again(PyObject* function, const std::vector<WalkValue>& args);
  WalkValue call_bound(PyObject* function, const WalkProgram& program, WalkValue* slots);
  WalkValue draw_below(const Drawer& from, Py_ssize_t first, Py_ssize_t end);
  WalkValue call_drawer(const Drawer& from, const WalkValue* args, size_t n);
  bool only_records(const WalkNode& node, PyObject* function);
  WalkValue call_list_method(WalkValue list, const WalkNode& node, Frame& frame);
  void append(WalkValue list, WalkValue value);
  void extend(WalkValue list, WalkValue more);
  WalkValue insert(WalkValue list, WalkValue key, WalkValue value);
  void store_item(const WalkNode& target, WalkValue value, Frame& frame);
  void may_replace(PyObject* base, PyObject* name);
  void store_attribute(const WalkNode& target, WalkValue value, Frame& frame);
  WalkValue sum_of_lists(uint32_t how, WalkValue a, WalkValue b);
  // An expression or parameters of a class of the package, whose operators no script has changed.
  static bool is_node(WalkValue value) {
    if (value.result) return value.result->kind == WalkResult::recorded;
    return is_expression(value.object) && !PyType_HasFeature(Py_TYPE(value.object), Py_TPFLAGS_HEAPTYPE);
  }
  bool is_operand(WalkValue value, int depth);
  WalkValue record_call(PyObject* function, const WalkNode& node, Frame& frame);
  bool record_plainly(OpId op, const PlainCall& plain, const WalkValue* operands, size_t n,
                      const WalkValue* index, NodeId* id);
  WalkValue record_pairs(const WalkNode& node, Frame& frame);
  WalkValue record_constant(PyObject* parameters);
  bool record_list(OpId op, const PlainCall& plain, WalkValue list, const WalkValue* index, NodeId* id);
  WalkValue recorded_by_python(PyObject* made);
  void may_record();
  WalkValue record_item(WalkValue base, WalkValue key);
  bool is_start(WalkValue builder, const WalkNode& node);
  WalkValue start_sequence(PyObject* builder, const WalkNode& node, Frame& frame);
  WalkValue set_dropout(PyObject* builder, const WalkNode& node, Frame& frame);
  WalkValue call_state_method(PyObject* state, const WalkNode& node, Frame& frame);
  std::vector<NodeId> nodes_in(WalkValue xs);
  WalkValue add_inputs(PyRnnState* state, uint32_t method, WalkValue xs);
  WalkValue set_state(PyRnnState* from, uint32_t method, WalkValue nodes);
  WalkValue parts_of_state(PyRnnState* state, uint32_t method);
  WalkValue record_operation(uint32_t operation, WalkValue a, WalkValue b);
  WalkValue recorded(NodeId id, PyTypeObject* type) {
    WalkResult* made = make(WalkResult::recorded);
    made->id = id;
    made->type = type;
    return {nullptr, made};
  }
  NodeId node_of(WalkValue value) { return value.result ? value.result->id : node_of_object(value.object); }
  NodeId node_of_object(PyObject* object);
  bool is_instance(WalkValue value, PyObject* type);
  [[gnu::noinline]] WalkValue collect(const WalkNode& node, Frame& frame);
  template <class F>
  Flow iterate(const WalkNode& target, const WalkNode& iterable, Frame& frame, F&& body);
  Items items_of(const WalkNode& iterable, Frame& frame);
  Items numbers(const WalkNode& range, Frame& frame);
  bool next(Items& items, WalkValue* item);
  [[gnu::noinline]] WalkValue copy_of(const WalkNode& iterable, Frame& frame);
  template <class F>
  Flow visit(const WalkNode& iterable, Frame& frame, F&& body);
  PyObject* call_of(PyObject* object);
  bool contains(WalkValue container, WalkValue value);
  WalkValue compare(uint32_t how, WalkValue a, WalkValue b);
  WalkValue arithmetic(uint32_t how, WalkValue a, WalkValue b);
  WalkValue attribute(const WalkNode& node, WalkValue base);
  WalkValue property_value(PyObject* function, WalkValue self);
  PyObject* read_module(PyObject* module, PyObject* name);
  PyObject* method_of(PyObject* base, PyObject* name, PyObject* found);
  const WalkProgram& program_of(PyObject* function, const WalkNode& node);
  WalkValue item(WalkValue base, WalkValue key);
  size_t index(WalkValue base, WalkValue key);
  WalkValue slice(WalkValue base, WalkValue from, WalkValue to, Py_ssize_t step);
  bool truth(WalkValue value) {
    if (value.object == Py_True || value.object == Py_False) return value.object == Py_True;
    return value.result && value.result->is_sequence() ? !value.result->items.empty() : other_truth(value);
  }
  [[gnu::noinline]] bool other_truth(WalkValue value);
  bool holds(const WalkNode& node, Frame& frame);
  size_t length(WalkValue value) {
    return value.result && value.result->is_sequence() ? value.result->items.size() : other_length(value);
  }
  [[gnu::noinline]] size_t other_length(WalkValue value);
  WalkValue element(WalkValue sequence, size_t i) {
    if (sequence.result ? !sequence.result->is_sequence() : !is_sequence(sequence.object))
      return character(sequence, i);
    if (log_ && sequence.object) [[unlikely]]
      log_element(sequence.object, i);
    return sequence.result ? sequence.result->items[i] : WalkValue{PySequence_Fast_ITEMS(sequence.object)[i]};
  }
  [[gnu::noinline]] void log_element(PyObject* sequence, size_t i);
  [[gnu::noinline]] WalkValue character(WalkValue text, size_t i);
  WalkValue keep(PyObject* reference);
  WalkValue keep_part(PyObject* reference);
  WalkResult& result(size_t i) { return results_[i / tuning::kResultChunk][i % tuning::kResultChunk]; }
  WalkResult* make(WalkResult::Kind kind) {
    if (n_results_ == results_.size() * tuning::kResultChunk) add_results();
    WalkResult* made = &result(n_results_++);
    made->kind = kind;
    return made;
  }
  [[gnu::noinline]] void add_results();
  [[gnu::noinline]] WalkValue make_sequence(WalkResult::Kind kind, const WalkNode& node, Frame& frame);
  void note_read(PyObject* list);
  bool is_data(WalkValue value);

  const OutputSpec* step(RegionUse& use);
  void prepare(RegionUse& use);
  static void plan_guards(const RegionUse& use, Specialisation& s);
  bool read_sources(RegionUse& use);
  bool read_root(RegionUse& use, uint32_t root);
  bool read_source(RegionUse& use, uint32_t i, uint32_t root);
  bool has_item(WalkValue base, WalkValue key);
  PyObject* read_attribute(RegionUse& use, uint32_t i, PyObject* base);
  void separate_lists(RegionUse& use);
  bool matches(RegionUse& use, Specialisation& s);
  bool check(const Guard& guard, WalkValue value, const RegionUse& use);
  void capture(WalkValue value);
  WalkValue build(const OutputSpec& output, const RegionUse& use) {
    const bool single = output.kind == RegionOutput::recorded && output.number == kNone;
    return single ? recorded(trace_->nodes()[output.at], output.type) : build_other(output, use);
  }
  WalkValue build_other(const OutputSpec& output, const RegionUse& use);

  PyObject* object_of(WalkValue value, bool is_last = true, int depth = 0);  // new reference
  PyObject* finish(WalkValue returned);
  void clear();

  Engine* engine_ = nullptr;
  std::unique_ptr<WalkLog> logs_;
  std::unique_ptr<MemoReplay> replays_;
  WalkLog* log_ = nullptr;  // null: this walk is not written down
  PyObject* recording_ = nullptr;
  PyObject* globals_ = nullptr;
  PyObject* builtins_ = nullptr;
  Owned unknown_;
  const char* reason_ = "";
  bool learning_ = false, was_replayed_ = false, has_walked_ = false;
  bool running_ = false;    // destructors of released objects may call walked functions
  bool comparing_ = false;  // this walk ends, so that the statements of its regions run and are compared
  uint64_t walk_ = 0, readings_ = 0;
  int depth_ = 0, most_depth_ = 0;
  uintptr_t stack_start_ = 0;  // of C++
  size_t spent_ = 0;
  uint32_t size_ = 0;      // of the graph, before
  uint32_t recorded_ = 0;  // nodes, in the last walk that was not refused

  std::vector<WalkValue> stack_;  // slots; the first n_stack_ are in use
  size_t n_stack_ = 0;
  std::vector<std::unique_ptr<WalkResult[]>> results_;  // in chunks; the first n_results_ are in use
  size_t n_results_ = 0;
  std::vector<RegionUse*> used_;  // regions of this walk
  std::vector<NodeId> ids_;
  std::vector<WalkValue> listed_;
  std::vector<PyObject*> operands_;
  CapturedInputs captured_;
  std::vector<WalkValue> captured_values_;
  const Trace* trace_ = nullptr;  // recorded last
  std::vector<WalkResult*> shared_;
  std::vector<std::pair<PyObject*, WalkValue>> appends_;  // lists of the script, and what goes to them
  std::vector<PyObject*> appended_;                       // these lists, each once
  AssignedAttributes assigned_;
  std::unordered_set<PyObject*> objects_;  // that the walk has made
  WalkDraws draws_;
  std::vector<Owned> kept_;
};

// Where the objects of a class have the value that one of its __slots__ names; 0: it is none of these.
uint32_t slot_offset(PyTypeObject* type, PyObject* name);

// The Python type _WalkedFunction: what a function asks first that may be recorded by one call.
void add_walked_functions(PyObject* module);
// `restorer` forgets the object when its functions are not walked any more.
void add_restorer(PyObject* walked_function, std::shared_ptr<CodeRestorer> restorer);

}  // namespace dyc::py
