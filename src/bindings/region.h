// Regions: statements of a script that record a fixed sequence of ops, and are recorded by one call instead.
//
// The rewriter of hints puts a call of a Region before the statements it stands for. A call either records
// what the statements would record and returns their results, or returns null, and the statements run:
//
//   RegionSpec       what the rewriter says of the statements: sources, results, loop      region_spec.h
//   SourceReader     reads the values of the sources, without running code of the script   region_sources.h
//   Guard            a condition on one value                                              region_guard.h
//   Specialisation   guards, a trace, and how to build the results: one way of running     region_replay.h
//   Replayer         checks guards, replays the trace, builds the results                  region_replay.h
//   TraceSession     a run of the statements, observed                                     region_tracer.h
//   Tracer           makes a Specialisation of it                                          region_tracer.h
//   LoopIterator     the items of a loop whose body is a region                            region_loop.h
//   LoopReplayer     its iterations, recorded in one call                                  region_loop.h
//   Walker           calls of recursive functions, recorded in one call                    region_walk.h
//
// A Region tries its specialisations in order of their last use. If none matches, the statements run in a
// session, and a new one is learned. A specialisation is replayed when it has been confirmed: the statements
// ran again, recorded the same, and each index has had two values. Every tuning::kRevalidateEvery-th time
// they run again and are compared; a difference disables the region.
//
// Region has 15 fields: calls, sessions and the timing of both are one state machine, whose states they are.
#pragma once
#include "bindings/region_tracer.h"

namespace dyc::py {

class LoopIterator;
class LoopReplayer;
class Region;

// Gives functions of the same code their old code back when none of the objects in their new one, regions and
// walked functions, is in use any more, or when those in use have saved less time than calls of the others
// took, at some looks in a row. This is no Python code, as an exception of a signal's handler that came in it
// would be lost.
class CodeRestorer {
 public:
  // `objects`: those in the functions' code.
  CodeRestorer(PyObject* functions, PyObject* old, PyObject* objects);
  void forget_region() { forget(); }
  void forget_walked_function() {
    --walked_;
    forget();
  }
  bool has_restored() const { return !new_; }
  // A region that is given up was called.
  void count_call() {
    if (++calls_ % tuning::kIdleCalls == 0) [[unlikely]]
      compare();
  }

 private:
  void forget() {
    if (--in_use_ == 0) restore();
  }
  void compare();
  void restore();

  std::vector<Owned> functions_;  // weak references
  Owned old_, new_;
  std::vector<const Region*> regions_;  // of the new code
  size_t in_use_, walked_;              // of all, and of walked functions
  uint64_t calls_ = 0;                  // of regions that are given up
  uint32_t lost_ = 0;                   // looks in a row
};

class Region {
 public:
  Region();                                     // of another process: the statements always run
  Region(PyObject* spec, PyObject* functions);  // throws PythonError
  ~Region();

  // Records the region (in a loop: as many iterations as it can) and returns the results. Null: the
  // statements must run, unless an exception is set, which then ends the script.
  PyObject* call(PyObject* const* args, size_t n);
  // The statements run, and have made this result.
  void keep_result(PyObject* result);
  // They have run; `results` are those that were not kept.
  void finish(PyObject* results);
  // They have failed.
  void discard_session();
  // The next call is for an item of the iterator. `reads`: for a comprehension, returns the values that its
  // element reads besides the item.
  void set_pending_item(LoopIterator* items, PyObject* reads) {
    pending_item_ = {items, reads, PyThreadState_Get()};
  }
  void forget_items(const LoopIterator* items) {
    if (pending_item_.items == items) pending_item_ = {};
  }
  const RegionLoop& loop() const;  // throws PythonError where there is none
  void add_restorer(std::shared_ptr<CodeRestorer> restorer) { restorers_.push_back(std::move(restorer)); }
  // Nanoseconds by its replays; what it took to learn is spent. 0: it is given up, or was not learned yet.
  double saved_by_replays() const;
  bool was_met() const { return statistics_.calls + statistics_.hits > 0; }
  PyObject* statistics() const;

 private:
  friend class LoopReplayer;
  friend class Walker;
  friend class MemoReplay;
  friend struct RegionUse;

  // Processor times. One call in tuning::kTimedCalls is timed. The fastest run of the statements counts, not
  // the mean: they run so seldom that the interpreter has not optimised their code.
  struct Statistics {
    uint64_t hits = 0, loop_hits = 0, misses = 0, reviews = 0, refusals = 0;
    uint64_t calls = 0, timed_calls = 0;
    int64_t call_ns = 0, session_ns = 0, script_ns = INT64_MAX;
    uint64_t runs() const { return hits + misses + reviews; }  // of the statements, had they always run
    double call_cost() const;                                  // nanoseconds of all calls
    double saved() const;                                      // seconds; NaN: not known
  };
  // Checks whether the region is faster than its statements, in windows of runs that double in length. Two
  // slower windows in a row disable the region. The longest call and session of a window are ignored, as
  // another process may have interrupted them.
  struct Payoff {
    Statistics before;  // the window
    uint64_t next = 0;  // runs at which it ends
    int64_t longest_call = 0, longest_session = 0;
    uint32_t plain_runs = 0, lost = 0;
  };
  struct PendingItem {  // all borrowed
    LoopIterator* items = nullptr;
    PyObject* reads = nullptr;
    PyThreadState* thread = nullptr;
  };
  // While it reads values or records, the region cannot be called: reading an attribute may lead back here.
  struct Busy {
    explicit Busy(Region* region) : region(region) { region->busy_ = true; }
    ~Busy() {
      region->sources_.release();
      region->busy_ = false;
    }
    Region* region;
  };

  PyObject* call_untimed(PyObject* const* args, size_t n);
  PyObject* call_once(PyObject* const* args, size_t n);
  PyObject* call_in_loop(PyObject* const* args, size_t n);
  // Records elements of a comprehension, the first with these parts of its item and what `reads()` returns,
  // and returns a list of them; null: the first must run, or an error is set.
  PyObject* collect(LoopIterator* items, PyObject* reads, PyObject* const* args, size_t n);
  // Records iterations of a loop, the first with these arguments, and returns the results of the last; null:
  // the first must run, or an error is set.
  PyObject* iterate(LoopIterator* items, PyObject* const* args, size_t n);
  bool is_debugged() const;
  Engine* ready(size_t n);
  Specialisation* select(PyObject* const* args, const Graph& graph);
  void start_session(Specialisation* against);
  void learn(const TraceSession& session, PyObject* results);
  void disable(const std::string& reason);
  bool starts_plain_run();
  void end_plain_run();
  void check_payoff();

  const RegionSpec spec_;
  SourceReader sources_;
  Replayer replayer_;
  std::unique_ptr<LoopReplayer> loop_replayer_;
  std::vector<std::shared_ptr<Specialisation>> specialisations_;  // memos of walks have some, too
  TraceSession session_;
  PendingItem pending_item_;
  Statistics statistics_;
  Payoff payoff_;
  int64_t plain_start_ = 0;  // when timed statements without a session began; 0: none run
  const Engine* plain_engine_ = nullptr;
  std::vector<std::shared_ptr<CodeRestorer>> restorers_;
  bool busy_ = false, walked_ = false;  // walked_: a Walker has recorded it since it was last timed
  bool refuted_ = false;                // the script did not record what was learned
  std::string disabled_, refusal_;      // why it is disabled; why the last run was not learned from
};

// Is the current exception about an unbound name, raised by the frame that has just run itself, and not by a
// signal handler that interrupted it?
bool is_unbound_name();
// Clears an exception of recording, as the statements will raise it again; not exceptions that end the
// script.
void forget_own_error();

Region* region_in(PyObject* object);  // null: it is no _Region
void add_regions(PyObject* module);

}  // namespace dyc::py
