// Loops of a script whose body is a block, and comprehensions whose element is one.
#pragma once
#include <utility>
#include <vector>

#include "bindings/region.h"

namespace dyc::py {

// What a loop goes over: an iterator or, for zip() of lists, their rows.
class LoopIterator {
 public:
  LoopIterator(const RegionLoop::Target& target, PyObject* iterable, PyObject* zip);
  // The next item for the script, a new reference; null: there is none, or an error is set.
  PyObject* next();
  // Reads the next item for unpack(); false: there is none, or an error is set.
  bool fetch();
  // Puts the names that the script would bind into their places among the arguments, borrowed; false where
  // that would run code of the script, or fail.
  bool unpack(PyObject* item, std::vector<PyObject*>* arguments) const;
  bool unpack(std::vector<PyObject*>* arguments) const;
  // The item that was read is done.
  void release() { item_ = Owned(); }
  // The item that was read is the next one of the script; `must_run`: recording it was tried.
  void push_back_item(bool must_run);
  // Must the script run for the item that was handed out? Asked once.
  bool must_run() { return std::exchange(must_run_, false); }
  // The error that is set is one of reading the next item.
  void save_error();
  // Is it the first time that this is asked?
  bool first_time() { return std::exchange(first_time_, false); }
  // Does reading items run no code of the script?
  bool is_pure() const { return pure_; }

 private:
  bool zips_lists(PyObject* iterables, PyObject* zip) const;
  bool fetch_row();
  void pack_row();

  const RegionLoop::Target& target_;
  Owned iterator_, rows_;   // until it has ended
  std::vector<Owned> row_;  // the item that was read
  Py_ssize_t at_ = 0;       // of the next row
  Owned item_;              // read, and not handed out
  bool first_time_ = true;
  bool pure_ = false;
  bool must_run_ = false;
  bool failed_ = false;
  Owned type_, value_, traceback_;  // of the error
};

// LoopReplayer recorded one after the other in one call.
class Region::LoopReplayer {
 public:
  explicit LoopReplayer(Region& t);
  // Records iterations, the first with these arguments, and those of the items that follow; elements of a
  // comprehension go to `list`. False: the first must run, or an error is set.
  bool record(Graph& graph, LoopIterator* items, PyObject* list);
  // What they left behind: a tuple.
  PyObject* results();
  // When all is done, and the template is free again: may run code of the script.
  void release();

  std::vector<PyObject*> arguments;

 private:
  // Of the graph: is anything else than what was recorded here in it, or computed?
  struct State {
    State() = default;
    explicit State(const Graph& g) : generation(g.generation()), size(g.size()), pending(g.pending()) {}
    bool operator==(const State&) const = default;
    uint32_t generation = 0, size = 0, pending = 0;
  };
  bool record_rest(Graph& graph, LoopIterator* items, PyObject* list);
  bool record_one(Graph& graph, LoopIterator* items, PyObject* list);
  bool may_be_replaced() const;
  void commit_outputs(Specialisation& p, PyObject* list);
  void carry();
  Specialisation* recorded(Graph& graph);
  bool replay_fast(Specialisation& p, Graph& graph);
  bool read_varying(Specialisation& p, const Graph& graph);
  void learn_fast_path(Specialisation& p, const Graph& graph) const;
  bool derive(const Specialisation& p, uint32_t source, std::vector<uint32_t>* from) const;
  void keep_fixed_values();

  Region& region_;
  const RegionLoop& loop_;
  std::vector<Owned> carried_, new_carried_;  // what the last iteration left behind, and the present one
  // Expressions among these that no later iteration reads are made at the end: their nodes, if types are set.
  struct DeferredOutput {
    NodeId node = 0;
    PyTypeObject* type = nullptr;
  };
  std::vector<DeferredOutput> deferred_, new_deferred_;
  std::vector<Owned> left_;             // names of the target
  Specialisation* previous_ = nullptr;  // how the last iteration ran
  State state_after_;                   // that it left behind
  bool fixed_kept_ = false;
  std::vector<Owned> dropped_;
  CapturedInputs varying_inputs_;
};

}  // namespace dyc::py
