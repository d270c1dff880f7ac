// Calls of functions with branches, loops and calls of themselves, recorded by one call of the core.
//
// The Walker runs the program of a function (region_program.h) in two passes. The first reads the objects,
// decides the branches and checks the guards of each region; it runs no code of the script and records
// nothing. What is to be recorded are WalkResults: results of regions, and of single ops outside of them. If
// anything is not as it should be, the walk ends there, and the function runs as it was written. Else the
// second pass records the traces of the regions and the single ops, in order, and makes the objects that the
// call returns or appends to lists.
//
// Walker has more methods and fields than a class should: one method for each kind of statement and value,
// any of which may end the walk, and the vectors that are kept from one walk to the next, so that a walk
// allocates nothing. Its files: region_walk.cc (statements, calls), region_walk_values.cc (tests, items,
// attributes), region_walk_ops.cc (single ops, lists), region_walk_states.cc (builders and their states),
// region_walk_step.cc (regions, the second pass).
#pragma once
#include "bindings/region.h"
#include "bindings/region_program.h"

namespace dyc::py {

struct WalkResult;

// An object of the script, or something that the walk will make; neither: no value.
struct WalkValue {
  PyObject* object = nullptr;  // borrowed
  WalkResult* result = nullptr;
  bool operator==(const WalkValue&) const = default;
};

struct WalkResult {
  enum Kind : uint8_t { recorded, tuple, list, state } kind = recorded;
  bool is_sequence() const { return kind == tuple || kind == list; }
  uint32_t index = 0;             // recorded: of the node in its trace
  PyTypeObject* type = nullptr;   // null: not known before it is recorded
  const Dim* dim = nullptr;       // likewise
  NodeId id = 0;                  // when the second pass has recorded it
  std::vector<WalkValue> items;   // tuple, list; of a state, what was read of it, by index in its step
  RnnBuilder* builder = nullptr;  // state
  bool start = false;             // state: of no step
  WalkResult* same = nullptr;     // recorded: another result, of the same node
  Owned made;
};

// The values that a region reads in a walk. Parts of an argument that is the same object as before in this
// walk are not read again: no code runs that could change them.
struct RegionUse {
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
  uint64_t walk = 0;
  Specialisation* last = nullptr;
  std::vector<WalkValue> appended;  // lists that it appends to
};

class Walker {
 public:
  // Runs the program. Null: nothing was recorded, and the function must run, or an error is set that ends the
  // script. `args`: of the parameters, then of the free names. `recording`: a set, the functions that only
  // record.
  PyObject* run(WalkProgram& program, PyObject* recording, PyObject* const* args, size_t n);
  // A function that the last walk met and whose program is not known, or null.
  Owned take_unknown() { return std::move(unknown_); }
  const char* reason() const { return reason_; }
  // Must statements run, so that they are learned or compared with what was learned?
  bool is_learning() const { return learning_; }

 private:
  struct Refused {};
  struct Frame {
    WalkValue* slots;
    WalkValue returned;
  };
  struct Step {
    Specialisation* s;  // null: a single op
    RegionUse* use;
    uint32_t inputs, placeholders, results, calls;  // where its own begin
  };
  struct Call {  // that records a single op, or one or more steps of a builder
    enum Kind : uint8_t { function, op, operation, item, row, start, step, steps, part } kind;
    // op: OpId; operation: WalkNode::Arithmetic; row: its index; steps: WalkNode::Method; part: index among
    // the nodes of a step.
    uint32_t number = 0;
    uint32_t args = 0, n = 0;    // into call_args_
    PyObject* called = nullptr;  // function; start: the builder
    PyObject* names = nullptr;   // function: of its last arguments, a tuple, or null
    uint32_t index = kNone;      // op
    WalkResult* result = nullptr;
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
  struct WalkInput {
    NodeId id;
    WalkResult* result;
    bool operator==(const WalkInput&) const = default;
  };

  [[noreturn]] void refuse(const char* reason);
  void spend(size_t n);
  WalkValue* take_slots(const WalkProgram& program);
  WalkValue call(const WalkProgram& program, WalkValue* slots);
  Flow execute(const WalkNode& node, Frame& frame);
  Flow execute_while(const WalkNode& node, Frame& frame);
  Flow execute_region(const WalkNode& node, Frame& frame);
  void assign(const WalkNode& target, WalkValue value, Frame& frame);
  WalkValue evaluate(const WalkNode& node, Frame& frame) {
    if (node.kind != WalkNode::slot) return evaluate_other(node, frame);
    const WalkValue value = frame.slots[node.number];
    if (!value.object && !value.result) refuse("a name without a value");
    return value;
  }
  WalkValue evaluate_other(const WalkNode& node, Frame& frame);
  WalkValue evaluate_global(const WalkNode& node);
  WalkValue evaluate_call(const WalkNode& node, Frame& frame);
  WalkValue call_builtin(PyObject* function, const WalkNode& node, Frame& frame);
  WalkValue call_function(PyObject* function, WalkValue self, const WalkNode& node, Frame& frame);
  bool only_records(const WalkNode& node, PyObject* function);
  WalkValue call_list_method(WalkValue list, const WalkNode& node, Frame& frame);
  void append(WalkValue list, WalkValue value);
  void extend(WalkValue list, WalkValue more);
  void store_item(const WalkNode& target, WalkValue value, Frame& frame);
  WalkValue sum_of_lists(uint32_t how, WalkValue a, WalkValue b);
  static bool is_node(WalkValue value);
  bool is_operand(WalkValue value, int depth);
  WalkValue snapshot(WalkValue value);
  WalkValue record_call(PyObject* function, const WalkNode& node, Frame& frame);
  WalkValue record_plainly(OpId op, const WalkValue* arguments, size_t n);
  WalkValue record_item(WalkValue base, WalkValue key);
  bool is_start(WalkValue builder, const WalkNode& node);
  WalkValue start_sequence(PyObject* builder);
  WalkValue call_state_method(WalkValue state, const WalkNode& node, Frame& frame);
  WalkValue add_inputs(WalkValue state, uint32_t method, WalkValue xs);
  WalkValue parts_of_state(WalkValue state, uint32_t method);
  WalkValue part_of_state(WalkValue state, uint32_t i, uint32_t n);
  static WalkValue as_state(WalkValue result, RnnBuilder* builder, bool start);
  RnnBuilder* builder_of_state(WalkValue state);
  void perform_sequence(const Call& call);
  WalkValue record_operation(uint32_t operation, WalkValue a, WalkValue b);
  WalkValue add_call(Call call, size_t first_arg);
  void perform(const Call& call);
  NodeId node_of(WalkValue value);
  PyRnnState* state_of(WalkValue value);
  bool is_instance(WalkValue value, PyObject* type);
  WalkValue collect(const WalkNode& node, Frame& frame);
  template <class F>
  Flow iterate(const WalkNode& target, const WalkNode& iterable, Frame& frame, F&& body);
  Items items_of(const WalkNode& iterable, Frame& frame);
  Items numbers(const WalkNode& range, Frame& frame);
  bool next(Items& items, WalkValue* item);
  WalkValue copy_of(const WalkNode& iterable, Frame& frame);
  template <class F>
  Flow visit(const WalkNode& iterable, Frame& frame, F&& body);
  PyObject* call_of(PyObject* object);
  bool contains(WalkValue container, WalkValue value);
  WalkValue compare(uint32_t how, WalkValue a, WalkValue b);
  WalkValue arithmetic(uint32_t how, WalkValue a, WalkValue b);
  WalkValue attribute(const WalkNode& node, WalkValue base);
  WalkValue property_value(PyObject* function, WalkValue self);
  PyObject* read_module(PyObject* module, PyObject* name);
  PyObject* method_of(PyObject* base, PyObject* name);
  const WalkProgram& program_of(PyObject* function, const WalkNode& node);
  WalkValue item(WalkValue base, WalkValue key);
  size_t index(WalkValue base, WalkValue key);
  WalkValue slice(WalkValue base, WalkValue from, WalkValue to, Py_ssize_t step);
  bool truth(WalkValue value);
  size_t length(WalkValue value);
  WalkValue element(WalkValue sequence, size_t i);
  WalkValue keep(PyObject* reference);
  WalkValue keep_part(PyObject* reference);
  static constexpr size_t kChunk = 256;
  WalkResult& result(size_t i) { return results_[i / kChunk][i % kChunk]; }
  WalkResult* make(WalkResult::Kind kind);
  WalkValue make_sequence(WalkResult::Kind kind, const WalkNode& node, Frame& frame);
  void note_read(PyObject* list);

  const OutputSpec* step(RegionUse& use);
  void prepare(RegionUse& use);
  static void plan_guards(const RegionUse& use, Specialisation& s);
  bool read_sources(RegionUse& use);
  bool read_root(RegionUse& use, uint32_t root);
  bool read_source(RegionUse& use, uint32_t i, uint32_t root);
  bool has_item(WalkValue base, WalkValue key);
  PyObject* read_attribute(RegionUse& use, uint32_t i, PyObject* base);
  void separate_lists(RegionUse& use);
  bool merge_repeated(const CapturedInputs::Repeated& known);
  bool matches(RegionUse& use, Specialisation& s);
  bool check(const Guard& guard, WalkValue value, const RegionUse& use);
  WalkValue build(const OutputSpec& output, const RegionUse& use);

  void record_steps(Graph& g);
  PyObject* object_of(WalkValue value, int depth = 0);  // new reference
  PyObject* finish(WalkValue returned);
  void clear();

  Engine* engine_ = nullptr;
  PyObject* recording_ = nullptr;
  PyObject* globals_ = nullptr;
  PyObject* builtins_ = nullptr;
  Owned unknown_;
  const char* reason_ = "";
  bool learning_ = false;
  bool met_state_ = false;  // a guard was checked against a state that the walk will make
  bool running_ = false;    // objects that are released may call walked functions
  uint64_t walk_ = 0, readings_ = 0;
  int depth_ = 0, most_depth_ = 0;
  uintptr_t stack_start_ = 0;  // of C++
  size_t spent_ = 0;

  std::vector<WalkValue> stack_;  // slots; the first n_stack_ are in use
  size_t n_stack_ = 0;
  std::vector<std::unique_ptr<WalkResult[]>> results_;  // in chunks; the first n_results_ are in use
  size_t n_results_ = 0;
  std::vector<Step> steps_;
  std::vector<Call> calls_;
  std::vector<WalkValue> call_args_;
  std::vector<PyObject*> operands_;
  std::vector<WalkInput> inputs_;
  std::vector<uint32_t> placeholders_;
  std::vector<NodeId> ids_;
  CapturedInputs captured_;
  std::vector<WalkInput> captured_inputs_;
  std::vector<WalkValue> captured_values_;
  std::vector<WalkResult*> shared_;
  std::vector<std::pair<PyObject*, WalkValue>> appends_;  // lists of the script, and what goes to them
  std::vector<PyObject*> appended_;                       // these lists, each once
  std::vector<Owned> kept_;
};

// The Python type _WalkedFunction: what a function asks first that may be recorded by one call.
void add_walked_functions(PyObject* module);

}  // namespace dyc::py
