// A block of a script that records a fixed sequence of ops, recorded by one call.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/builders.h"
#include "bindings/region_guard.h"
#include "graph/trace.h"

namespace dyc::py {

// A value that the block reads: an argument of the call, or a part of another source's value.
struct RegionSource {
  enum Kind : uint8_t { argument, item, item_at, attribute, count };
  Kind kind = argument;
  uint32_t base = 0;
  Owned key;                // item: int or str; attribute: name
  uint32_t key_source = 0;  // item_at
  Py_ssize_t n = 0;     // count: the length that the base must have; no value. item_at: places it is read in
  uint32_t of = kNone;  // item, attribute: in Region::parts_
  // How the block uses it.
  bool called = false;      // as a function, which must be one that does nothing but record
  bool method = false;      // called as a method of the value in source `base`
  bool expression = false;  // it must be an Expression
  bool state = false;       // it must be an RNNState
  bool appended = false;    // as a list to append to
  bool late = false;        // it is read after something was appended to a list
  uint32_t indices = 0;     // times it stands where an index may be
  uint32_t others = 0;      // times it stands elsewhere
  Owned codes;              // called: or a function with one of the code objects in this list
  bool own = false;         // called: made anew each time, with this code
  Owned defaults;           // called: and these defaults: (positional, by name), `...` for any
};

// What the block leaves behind: parallel to the object that is handed over when the block has run.
struct RegionOutput {
  enum Kind : uint8_t { source, constant, recorded, tuple, list, either, state, input };
  Kind kind = recorded;
  uint32_t at = 0;  // of a source
  Owned object;     // constant
  std::vector<RegionOutput> parts;
};

// The loop of the script whose body the block is, or the comprehension whose element it is.
struct RegionLoop {
  struct Target {  // names that an item is bound to
    uint32_t argument = kNone;
    std::vector<Target> parts;  // if it is taken apart
  };
  Target target;
  uint32_t n_added = 0;            // arguments after the block's own, which are only left behind
  std::vector<uint32_t> left;      // arguments that are names of the target which are read after the loop
  std::vector<uint32_t> carried;   // of names that the block assigns: the arguments they are the next time
  std::vector<uint32_t> appended;  // sources of the lists that its other results go to
};

class LoopIterator;

class Region {
 public:
  Region();                                     // of another process: the script runs
  Region(PyObject* spec, PyObject* functions);  // throws PythonError
  ~Region();

  // Records the block, in a loop all iterations that it can, and returns the results, or null: the script
  // must run, or end where a Python exception is set.
  PyObject* call(PyObject* const* args, size_t n);
  // The script runs, and leaves this behind beside the names it assigns.
  void keep_result(PyObject* result);
  // The script ran; `results` is what it leaves behind, or the part of that which was not kept.
  void finish(PyObject* results);
  // The script ran, and failed.
  void discard_session();
  // The next call is with an item of these; `captured`: of a comprehension.
  void set_pending_item(LoopIterator* items, PyObject* reads);
  void forget_items(const LoopIterator* items);
  const RegionLoop& loop() const;  // throws PythonError where it is none
  PyObject* statistics() const;

 private:
  class LoopReplayer;

  // What tells whether parts of a value may have changed: the value, and stamps of its dict and class.
  struct Version {
    PyObject* base = nullptr;
    uint64_t dict = 0, type = 0;
    bool is_known() const { return dict != 0 && type != 0; }
    bool operator==(const Version&) const = default;
  };
  // One way in which the block was seen to run.
  struct OutputSpec {  // a result, or part of it
    RegionOutput::Kind kind;
    // recorded: in the trace's nodes; input: among its inputs; source; state: in `steps`, after the one in
    // parts[0]
    uint32_t at = 0;
    uint32_t number = kNone;  // of an object that the run made, if it is in more than one place
    PyTypeObject* type = nullptr;
    Owned object;
    std::vector<OutputSpec> parts;
  };
  struct BuilderStep {                // of a builder
    uint32_t source = 0;              // of a state of the same builder
    std::vector<uint32_t> positions;  // of its nodes, in the trace's
    bool operator==(const BuilderStep&) const = default;
  };
  struct Specialisation {
    std::vector<Guard> guards;     // beside sources_
    std::vector<uint32_t> always;  // sources whose guards are asked at every call
    std::vector<std::vector<uint32_t>>
        permanent;               // beside parts_: those that are asked when the parts change
    std::vector<Version> valid;  // beside parts_: as of the last time these held
    std::unique_ptr<Trace> trace;
    std::vector<BuilderStep> steps;
    OutputSpec result;
    uint32_t n_shared = 0;  // objects in it that have numbers
    uint64_t hits = 0;
    // Indices when it was learned, and whether a run with another one was compared: until then the index
    // might go elsewhere than it seems.
    std::vector<uint32_t> placeholders;
    std::vector<uint8_t> varied;
    uint32_t compared = 0;
    bool confirmed = false;
    // How it runs right after itself in a loop: which inputs are known without asking guards.
    struct LoopFastPath {
      bool tried = false, known = false;
      std::vector<uint32_t> from;  // of each input: which of the last run's nodes it is now; kNone: asked
      std::vector<uint32_t>
          object_sources;             // of each input: the source that has its object now; kNone: as before
      std::vector<uint32_t> checked;  // sources whose guards are asked all the same
      std::vector<uint32_t> inputs;   // which of all inputs these tell, in their order
      std::vector<uint32_t> placeholders;  // and which of all placeholders
    } fast_path;
  };
  // A run of the script's own block, watched.
  struct TraceSession {
    bool on = false;
    const Engine* engine = nullptr;
    uint32_t generation = 0;  // Graph::generation()
    NodeId begin = 0;
    std::vector<Owned> values, kept;
    int64_t start = 0;  // as clock() says; 0: the first run, which costs more than others
    std::vector<std::pair<uint32_t, RnnBuilder::Step>> builders;  // source of a state, steps there were
    Specialisation* against = nullptr;  // to be compared with what this would have recorded
  };

  // Time that replays take, and the script's own block. Some of the calls are timed. The block runs seldom,
  // so the interpreter is slow at it: its fastest run counts, not the mean.
  struct Costs {
    uint64_t calls = 0, timed_calls = 0, nodes = 0;
    int64_t call_ns = 0, written_ns = INT64_MAX;
    double saved(uint64_t hits) const;  // seconds; NaN: not known
  };

  static constexpr uint64_t kReview = 1024;  // times a program is recorded until the script runs all the same
  PyObject* timed_call(PyObject* const* args, size_t n);
  PyObject* attempt(PyObject* const* args, size_t n);
  PyObject* call_in_loop(PyObject* const* args, size_t n);
  // Records elements of a comprehension, the first with these parts of its item and what `reads()` gives, and
  // returns a list of them; null: the first must run, or an error is set.
  PyObject* collect(LoopIterator* items, PyObject* reads, PyObject* const* args, size_t n);
  // Records iterations of a loop, the first with these arguments, and returns what they leave behind; null:
  // the first must run, or an error is set.
  PyObject* iterate(LoopIterator* items, PyObject* const* args, size_t n);
  static void forget_error();
  static int64_t clock();  // nanoseconds of this thread's processor time
  bool in_session() const;
  bool is_debugged() const;
  Engine* ready(size_t n);
  Specialisation* select(PyObject* const* args, const Graph& graph);
  struct Busy {
    explicit Busy(Region* t) : me(t) { me->busy_ = true; }
    ~Busy() {
      me->attribute_values_.clear();
      me->busy_ = false;
    }
    Region* me;
  };

  struct ValueParts {  // items or attributes of one value, read when it has changed
    uint32_t base;
    bool attributes;
    std::vector<uint32_t> sources;
    Version version;  // as of the last call
  };
  struct ReadStep {
    bool parts;
    uint32_t at;  // in parts_, or sources_
  };
  void parse_sources(PyObject* spec);
  void plan_reads();
  void plan_loop();
  bool evaluate(PyObject* const* args);
  bool read_one(uint32_t at);
  bool read_parts(ValueParts* parts);
  static PyObject* dict_of(const ValueParts& parts, PyObject* base);
  bool read_kept(const RegionSource& source, PyObject* base, PyObject* dict, PyObject** value, bool* kept);
  bool read_attribute(const RegionSource& source, PyObject* base, PyObject** value);
  bool read_item(const RegionSource& source, PyObject* base, PyObject** value);
  bool lists_are_apart();
  void replay(Specialisation& p);
  void note_replay(const Specialisation& p, uint32_t before);
  bool matches(Specialisation& p, const Graph& graph);
  bool check(const Specialisation& p, const std::vector<uint32_t>& sources, const Graph& graph,
             CapturedInputs* captured) const;
  bool check_parts(Specialisation& p, uint32_t parts, const Graph& graph, CapturedInputs* captured);
  void start_session(Specialisation* against);
  static void number_shared(const std::vector<uint32_t>& numbers, OutputSpec* output);
  static bool same_output(const OutputSpec& a, const OutputSpec& b);
  // Null, with a reason, where the run cannot be learned from.
  std::unique_ptr<Specialisation> capture(PyObject* results, const char** reason) const;
  const char* check_use(uint32_t source, const Guard& guard) const;
  const char* make_guards(Specialisation* p, std::vector<Trace::Placeholder>* placeholders) const;
  const char* make_guard(uint32_t source, Guard* guard, uint32_t* budget,
                         std::vector<Trace::Placeholder>* placeholders) const;
  enum Index { no_index, an_index, unclear };
  Index index_uses(uint32_t source, uint32_t* uses) const;
  bool used_as_value(uint32_t source) const;
  bool may_call(const RegionSource& source, PyObject* function) const;
  static bool has_defaults(PyObject* function, PyObject* defaults);
  bool collect_steps(Specialisation* p) const;
  struct OutputObjects {  // of a run that is learned from
    std::vector<PyObject*> inputs;
    std::vector<PyObject*> made;   // by the number of each
    std::vector<uint32_t> counts;  // beside them: in how many places each is
    uint32_t number(PyObject* object);
  };
  bool make_output(const RegionOutput& spec, PyObject* object, const Specialisation& p,
                   OutputObjects* objects, OutputSpec* output) const;
  bool make_expression_output(PyObject* object, const Specialisation& p, OutputObjects* objects,
                              OutputSpec* output) const;
  bool make_state(PyObject* object, const Specialisation& p, OutputObjects* objects,
                  OutputSpec* output) const;
  PyObject* build(const OutputSpec& output, const Specialisation& p);
  PyObject* rebuild(const OutputSpec& output, const Specialisation& p);
  void add(std::unique_ptr<Specialisation> p);
  void confirm(Specialisation* p, const Specialisation& repeated) const;
  void make_constant_indices(Specialisation* p) const;
  void partition_guards(Specialisation* p) const;
  static std::string difference(const Specialisation& a, const Specialisation& b);
  void disable(const std::string& reason);

  std::string name_;
  uint32_t n_args_ = 0;
  std::vector<RegionSource> sources_;
  std::vector<ValueParts> parts_;
  std::vector<ReadStep> read_plan_;   // the order in which values are read
  std::vector<uint32_t> appended_;    // sources of lists that are appended to
  std::vector<uint32_t> with_parts_;  // sources whose items or lengths are read late
  std::vector<long> ints_;            // constants of the block
  RegionOutput result_;
  std::optional<RegionLoop> loop_;
  std::unique_ptr<LoopReplayer> loop_replayer_;
  std::vector<uint8_t> fixed_;           // sources that the iterations of a loop cannot change
  std::vector<ReadStep> varying_reads_;  // of read_plan_: the others
  bool lists_stay_ = true;               // are those that are appended to, and those read after that, fixed?
  Owned functions_;
  struct PendingItem {  // all borrowed
    LoopIterator* items = nullptr;
    PyObject* reads = nullptr;
    PyThreadState* thread = nullptr;
  } pending_item_;

  std::vector<std::unique_ptr<Specialisation>> specialisations_;
  TraceSession session_;
  CapturedInputs captured_;
  std::vector<PyObject*> values_;
  std::vector<RnnBuilder::Step> new_steps_;  // what became of a program's steps
  std::vector<PyObject*> built_;             // results so far by their numbers; borrowed
  std::vector<Owned> attribute_values_;      // owned, while values_ are in use
  Costs costs_;
  uint64_t hits_ = 0, loop_hits_ = 0, misses_ = 0, reviews_ = 0, refusals_ = 0;
  bool disabled_ = false, busy_ = false;
  std::string reason_, refusal_;  // why it is off; why the last run was not learned from
};

// Is the error that is set one of looking a name up, raised by the frame that has just run, and not by a
// handler of a signal that ran in it?
bool is_unbound_name();

inline PyRnnState* state_in(PyObject* o) { return reinterpret_cast<PyRnnState*>(o); }

void add_regions(PyObject* module);
// The items of a loop whose body is the template's block, for the script to go over; `captured`: of a
// comprehension, what its element reads beside the item. With `zip`, what the script calls so, it goes over
// zip(*iterable), of a tuple.
PyObject* make_loop(PyObject* owner, Region* region, PyObject* iterable, PyObject* zip, PyObject* reads);
void add_region_loops();

}  // namespace dyc::py
