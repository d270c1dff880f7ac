// Memos of walks: what a walk read of the script's objects, and what it recorded.
//
// A script that trains for several epochs calls its functions with the same sentences and trees again. While
// what a walk read is the same, it would decide the same branches and record the same ops. So the second walk
// with the same arguments is written down (WalkLog), and later calls compare what was read and record the
// ops, without the program of the function (MemoReplay):
//
//   MemoTable.look(arguments) -> reads are as before: inputs -> steps: nodes -> results
//
// Steps that record one after the other, without a call between, are joined to a trace.
//
// Memos keep nothing of the script alive but numbers and text. Each object that a replay looks at is an
// argument, or was just read from one that it had looked at, so it is alive.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "bindings/region_guard.h"
#include "bindings/region_program.h"
#include "bindings/region_walk_payoff.h"
#include "bindings/tuning.h"
#include "graph/trace.h"

namespace dyc::py {

struct Specialisation;

// Of all, with their traces; guarded by the interpreter lock.
inline TraceBudget memo_memory{0, tuning::kMemoBytes};

// What a read gave: this object, of this type; a number or text equal to it; or, without an object, any
// expression of this type, which is the next input of the memo.
struct MemoExpected {
  PyObject* object = nullptr;
  PyTypeObject* type = nullptr;
};

// Something that the walk read of `base`. In brackets: which fields it has.
struct MemoRead {
  enum Kind : uint8_t {
    slot,         // of an object whose class has __slots__ [n: offset]
    attribute,    // [key: name]
    method,       // a function of its class, of this name [key]
    constructor,  // of objects of a class, which is as it was [base_type]
    of_class,     // a function of its class, or that computes a property [key]
    name,         // of a dict of globals, or of Python's own [key]
    item,         // of a dict or module [key]
    absent,       // a dict has no such item [key]
    keys,         // are those of a dict plain?
    size,         // of a dict, list or tuple [n]
    element,      // of a list or tuple [n: index]
    sequence,     // all items of a list or tuple [n; key: are they numbers and text?], the next ones of
                  // WalkMemo::items
    entries,      // all keys and values of a dict, by turns [n: of both], likewise
    cell,         // of a function [n: which]
    defaults,     // of a function [object: its code; type: in WalkMemo::codes; n: in globals_of; key]
    parameters,   // the number of its storage [n]
    builder,      // the number of one that starts plainly [n; key: would parameters take gradients?]
    rates,        // of a builder, their number [n]
    dropout,      // is the builder's method, which sets its rates, the package's own? [key]
    guard         // of a region [object]
  };
  union {
    PyObject* base = nullptr;
    uintptr_t argument;
  };
  PyObject* object = nullptr;  // expected
  uint32_t n = 0;
  uint16_t key = 0;                  // in WalkMemo::keys
  uint16_t type = 0, base_type = 0;  // in WalkMemo::types
  Kind kind = attribute;
  bool of_argument = false;
};

// A node: one that a step made, or (kMemoInput) an input.
using MemoNode = uint32_t;
inline constexpr MemoNode kMemoInput = 1u << 31;

// Something that the walk recorded. Its operands are the next ones of WalkMemo::nodes, its numbers the next
// ones of WalkMemo::words.
struct MemoStep {
  enum Kind : uint8_t {
    trace,       // [object: specialisation; words: indices]
    stretch,     // several steps at once [object: trace; words: indices; after its inputs: pairs of one node]
    op,          // [which; words: attributes, and the index where there is one]
    arithmetic,  // of two nodes [which]
    with_left,   // of a number and a node [which; words: the number]
    with_right,  // of a node and a number
    lookup,      // [object: table; words: row]
    parameter,   // the node of parameters [object; words: its role, or none: as the parameters are used]
    call,        // of a function of the API [object; words: which of WalkMemo::calls]
    walk,        // of a function of the script [object; words: which of WalkMemo::calls]
    start,       // of a sequence [object: builder; words: the state that it makes]
    set,         // a state of these nodes [words: the state before it, the one that it makes]
    add_inputs,  // to a state [words: state, the first one that it makes; which: method]
    recorded,    // the same, whose nodes a stretch made [nodes: of the steps]
    reads        // what a step from the state reads [words: state, how many; object: guard of a region]
  };
  const void* object = nullptr;
  uint16_t which = 0, n_nodes = 0, n_words = 0;
  Kind kind = op;
  uint8_t n_attrs = 0;
};

// A value that a walk returns, stores or hands to a function.
struct MemoValue {
  enum Kind : uint8_t { object, argument, input, state, result } kind = object;
  uint32_t number = 0;
  PyObject* of = nullptr;  // object
};

// One that is made at the end.
struct MemoResult {
  uint8_t kind = 0;  // of WalkResult
  MemoNode node = 0;
  uint32_t call = kNone;  // the call that has made the object
  PyTypeObject* type = nullptr;
  uint32_t begin = 0, n = 0;  // items, in WalkMemo::values
};

struct WalkMemo {
  struct Argument {
    MemoExpected expected;
    bool is_list = false;  // any list or tuple of this type: its items are compared where they were read
  };
  struct Type {
    PyTypeObject* type;
    uint32_t version;  // 0: no script can change it
  };
  struct Code {
    Owned code;  // a weak reference
    const WalkProgram* program;
  };
  struct Use {
    std::shared_ptr<RegionUse> use;
    uint64_t replays;
  };
  struct Call {
    Owned names;                   // of arguments by name, or null
    uint32_t begin, n;             // arguments, in `values`
    bool copies_data = false;      // does the function copy the numbers of its first argument?
    PyTypeObject* type = nullptr;  // of the expression that a walk returns
  };
  struct Stored {
    MemoValue object;
    PyObject* name;
    MemoValue value;
  };
  size_t bytes() const;
  void shrink();

  std::vector<Argument> arguments;
  std::vector<Type> types;
  std::vector<PyObject*> keys, globals_of;  // of reads
  std::vector<Code> codes;
  std::vector<MemoRead> reads, late_reads;  // late: of objects that reads gave
  std::vector<MemoExpected> items;
  std::vector<uint32_t> equal_inputs;  // of each input, the index of the first that is the same node
  std::vector<MemoStep> steps;
  std::vector<MemoNode> nodes;
  std::vector<uint32_t> words;
  std::vector<Call> calls;
  std::vector<MemoValue> values;
  std::vector<MemoResult> results;
  std::vector<std::pair<MemoValue, MemoValue>> appends;
  std::vector<Stored> stored;
  MemoValue returned;
  std::vector<std::shared_ptr<Specialisation>> specialisations;
  std::vector<const Specialisation*> confirmed;  // that it records
  std::vector<std::shared_ptr<Trace>> traces;    // of stretches (region_walk_stretches.h)
  std::vector<Use> uses;
  std::vector<Owned> kept;  // numbers, text, names, functions of modules: until the table keeps them
  PyObject *globals = nullptr, *builtins = nullptr;
  int depth = 0;  // calls inside one another
  uint32_t n_states = 0;
  uint32_t failures = 0, misfits = 0;  // since it was written down; of all with these arguments
};

// What the table has for the arguments of a call.
struct MemoFound {
  WalkMemo* memo = nullptr;
  bool writes = false;   // a walk should be written down
  bool reviews = false;  // the statements should run and be compared with regions
  uint64_t key = 0;
};

// The memos of one function.
//
// The first walks leave only the keys of their arguments. What comes again is written down, or all once
// nearly all calls come again. Once nearly all calls are replays these are timed, as among other calls they
// find nothing in the caches: they must be faster than the statements.
class MemoTable {
 public:
  // `sparsely`: no walk is made but to be written down, so most calls are not looked at until calls come
  // again.
  MemoFound look(PyObject* const* args, size_t n, bool sparsely);
  void add(uint64_t key, std::unique_ptr<WalkMemo> memo);  // null: the walk cannot be one
  // It did not fit, so the walk was made.
  void count_misfit(WalkMemo* memo);
  void count_replay() { ++replays_; }
  uint64_t replays() const { return replays_; }
  bool is_steady() const { return steady_; }  // were nearly all calls replays lately?
  bool is_to_be_timed() const { return steady_ && !approved_ && hints_are_timed; }
  void approve() { approved_ = true; }
  bool is_off() const { return off_; }
  // What is known is forgotten, and nothing is written down any more.
  void turn_off();
  ~MemoTable() { turn_off(); }

 private:
  class Keys {
   public:
    // `most`: how many it keeps, a power of two.
    bool find_or_add(uint64_t key, size_t most);

   private:
    // Keys that are kept in one place, so that some with the same last bits do not displace each other.
    static constexpr size_t kSet = 8;
    std::vector<uint64_t> keys_;
  };
  static uint64_t key(PyObject* const* args, size_t n);
  bool look_for_repeats(uint64_t key);
  bool wants(uint64_t key);
  void keep(Owned object);

  std::unordered_map<uint64_t, std::unique_ptr<WalkMemo>> memos_;
  std::unordered_map<PyObject*, Owned> kept_;  // by all memos, which share nearly all of it
  Keys seen_, sampled_;
  uint64_t asked_ = 0, looks_ = 0, found_ = 0, replays_ = 0, impossible_ = 0, misfits_ = 0;
  uint64_t found_before_ = 0;                       // this window of looks
  uint32_t samples_ = 0, repeated_ = 0, idle_ = 0;  // idle: samples, one after the other, without repeats
  bool repeats_ = false, steady_ = false, off_ = false, approved_ = false;
};

}  // namespace dyc::py
