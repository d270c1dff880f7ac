// Loops of a script whose body is a region, and comprehensions whose element is one.
//
// Such a loop runs over a LoopIterator instead of its iterable. The iterator notes at the region which item
// it has returned. The region's call with that item then records the body for it and for all items that
// follow, until one has to run, and returns the results of the last; the loop goes on with the first item
// that has not been recorded. Where fetching an item runs code of the script (a generator, say), one item is
// fetched at a time.
#pragma once
#include "bindings/region.h"

namespace dyc::py {

// What a loop runs over: an iterator or, for zip() of lists, these. 13 fields, as it keeps an item, or
// the error of fetching it, until the script asks for it.
class LoopIterator {
 public:
  LoopIterator(const RegionLoop::Target& target, PyObject* iterable, PyObject* zip);
  // The next item for the script, a new reference; null: there is none, or an error is set.
  PyObject* next();
  // Fetches the next item for unpack(); false: there is none, or an error is set.
  bool fetch();
  // Sets the arguments that the target binds, to borrowed references. False where unpacking the item would
  // run code of the script, or fail.
  bool unpack(std::vector<PyObject*>* arguments) const;
  // The fetched item was recorded.
  void release() { item_ = Owned(); }
  // Returns the fetched item to the script next; `must_run`: the statements must run for it.
  void push_back(bool must_run);
  // Must the statements run for the item that was returned? Asked once.
  bool must_run() { return std::exchange(must_run_, false); }
  // Fetching the next item raised the current exception: keeps it until the script asks for that item.
  void save_error();
  // Is this the first call?
  bool first_time() { return std::exchange(first_time_, false); }
  // Does fetching items run no code of the script?
  bool is_pure() const { return pure_; }

 private:
  bool zips_lists(PyObject* iterables, PyObject* zip) const;
  bool fetch_from_lists();
  void pack_items();

  const RegionLoop::Target& target_;
  Owned iterator_, lists_;    // null: it has ended
  std::vector<Owned> items_;  // one of each list, fetched
  Py_ssize_t next_index_ = 0;
  Owned item_;  // fetched, and not returned
  bool first_time_ = true;
  bool pure_ = false;
  bool must_run_ = false;
  bool failed_ = false;
  Owned type_, value_, traceback_;  // of the error
};

// Records iterations one after the other. What an iteration leaves behind for the next needs no guards when
// the same specialisation runs again: then only the item is read and checked (LoopFastPath).
class LoopReplayer {
 public:
  explicit LoopReplayer(Region& region);
  // Records iterations, the first with `arguments`, then those of the items that follow; elements of a
  // comprehension are appended to `list`. False: the first must run, or an error is set.
  bool record(Graph& graph, LoopIterator* items, PyObject* list);
  // The results of the last iteration: a tuple.
  PyObject* results();
  // Releases all references, which may run code of the script: the region must not be busy.
  void release();

  std::vector<PyObject*> arguments;

 private:
  // Two equal states of a graph: nothing was recorded or computed between them.
  struct GraphState {
    GraphState() = default;
    explicit GraphState(const Graph& g) : generation(g.generation()), size(g.size()), pending(g.pending()) {}
    bool operator==(const GraphState&) const = default;
    uint32_t generation = 0, size = 0, pending = 0;
  };
  // An expression that no later iteration reads is made when the loop ends.
  struct DeferredOutput {
    NodeId node = 0;
    PyTypeObject* type = nullptr;  // null: it is not deferred
  };
  // What one iteration leaves behind.
  struct Carried {
    std::vector<Owned> values;
    std::vector<DeferredOutput> deferred;
  };
  bool record_rest(Graph& graph, LoopIterator* items, PyObject* list);
  bool record_one(Graph& graph, LoopIterator* items, PyObject* list);
  bool may_be_replaced() const;
  void commit_outputs(Specialisation& s, PyObject* list);
  void carry();
  Specialisation* replay(Graph& graph);
  bool replay_fast(Specialisation& s, Graph& graph);
  bool read_varying(Specialisation& s, const Graph& graph);
  void learn_fast_path(Specialisation& s, const Graph& graph) const;
  bool derive(const Specialisation& s, uint32_t source, std::vector<uint32_t>* from) const;
  void keep_fixed_values();

  Region& region_;
  const RegionLoop& loop_;
  Carried carried_, next_;              // of the last and of the current iteration
  std::vector<Owned> left_;             // names of the target
  Specialisation* previous_ = nullptr;  // how the last iteration ran
  GraphState state_after_;              // it
  bool fixed_kept_ = false;
  std::vector<Owned> dropped_;
  CapturedInputs checked_;  // what the fast path captures
};

// The LoopIterator of a loop whose body is the region, as a Python object. `zip`: if not null, the object
// that the script calls so; the loop then runs over zip(*iterable), and `iterable` is a tuple. `reads`: see
// Region.
PyObject* make_loop(PyObject* owner, Region* region, PyObject* iterable, PyObject* zip, PyObject* reads);
void add_region_loops();

}  // namespace dyc::py
