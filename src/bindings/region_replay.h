// What was learned of a region, and how it is replayed.
//
// A Specialisation holds a Trace (graph/trace.h), the guards under which it stands for the region, and how to
// build the region's results from it. Guards of items and attributes of one value that are permanent are
// checked only when the version of that value's parts has changed; all others at every call.
//
// The Replayer captures the inputs of a call while it checks the guards, records the trace on them, and
// builds the results:
//
//   SourceReader.values -> matches(specialisation): captured -> replay(specialisation) -> build(output)
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bindings/builders.h"
#include "bindings/region_sources.h"
#include "graph/trace.h"

namespace dyc::py {

// How to build a result, or a part of one.
struct OutputSpec {
  RegionOutput::Kind kind;
  // recorded: index of a node of the trace; input: of one of its inputs; source, part: number of the source;
  // state: index among Specialisation::steps, of the step after the state in parts[0].
  uint32_t at = 0;
  uint32_t number = kNone;  // of an object that the run made, if it is in more than one place
  PyTypeObject* type = nullptr;
  Owned object;  // constant; dict: a tuple of its keys; part: of the keys on the way to it
  std::vector<OutputSpec> parts;
};

// A step of a builder that the region makes.
struct BuilderStep {
  uint32_t source = 0;              // of a state of the same builder
  std::vector<uint32_t> positions;  // of the step's nodes in the trace
  bool operator==(const BuilderStep&) const = default;
};

// What the list, tuple or dict has at the end of this way, borrowed. Guards of its items have been checked.
PyObject* part_at(PyObject* whole, PyObject* way);

// How a specialisation is replayed right after itself in a loop: which inputs are known without guards.
struct LoopFastPath {
  bool tried = false, known = false;
  std::vector<uint32_t> from;  // by input: which of the nodes recorded last it is now; kNone: checked
  std::vector<uint32_t> object_sources;  // by input: the source whose value is its object; kNone: unchanged
  std::vector<uint32_t> checked;         // sources whose guards are still checked
  std::vector<uint32_t> inputs;          // the inputs that these capture, in their order
  std::vector<uint32_t> placeholders;    // and the placeholders
};

// What a Walker checks before it records the specialisation.
struct WalkGuards {
  bool known = false;
  std::vector<uint32_t> capturing;           // sources whose guards capture inputs or placeholders
  std::vector<std::vector<uint32_t>> plain;  // other sources with guards, by the argument they are parts of
  std::vector<uint32_t> roots;               // those of `plain` that have sources
  std::vector<uint64_t> checked;             // beside `plain`: for which reading of that argument
  bool draws = false;                        // random numbers
  uint64_t walks = 0, last = 0;              // in which it was recorded; the number of the last of them
};

// Guards of the parts of one value that are checked only when these have changed.
struct PermanentGuards {
  std::vector<uint32_t> sources;
  PartsVersion satisfied_by;  // the version
};

// One way in which the region runs.
struct Specialisation : std::enable_shared_from_this<Specialisation> {
  // Compares with another run of the same kind. Each index must be seen with two values: with one alone, a
  // number may be equal to it by chance.
  void confirm(const Specialisation& repeated, const SourceReader& sources);
  // Sorts the guards by when they are checked.
  void partition_guards(const SourceReader& sources);
  // What differs between the two, for a message; empty where nothing does.
  std::string difference(const Specialisation& other) const;

  std::vector<Guard> guards;               // beside RegionSpec::sources
  std::vector<uint32_t> always;            // sources whose guards are checked at every call
  std::vector<PermanentGuards> permanent;  // beside SourceReader::parts()
  std::unique_ptr<Trace> trace;
  std::vector<BuilderStep> steps;
  CapturedInputs::Repeated repeated;
  OutputSpec output;
  uint32_t n_shared = 0;  // objects in `output` that have numbers
  uint64_t hits = 0;
  LoopFastPath fast_path;
  WalkGuards walk;

  struct Indices {
    std::vector<uint32_t> values;  // by placeholder, when it was learned
    std::vector<uint8_t> varied;   // was a run with another value compared?
    uint32_t compared = 0;         // runs
    bool confirmed = false;        // all have varied; the others are constants
  } indices;

 private:
  void make_constant_indices();
};

class Replayer {
 public:
  explicit Replayer(const SourceReader& sources) : sources_(sources) {}

  // May the specialisation be replayed with the values that were read? Captures its inputs.
  bool matches(Specialisation& s, const Graph& graph);
  // The guards of these sources, and the permanent guards of the parts of one value.
  bool check(const Specialisation& s, const std::vector<uint32_t>& sources, const Graph& graph,
             CapturedInputs* inputs) const;
  bool check_parts(Specialisation& s, uint32_t parts, const Graph& graph, CapturedInputs* inputs) const;
  // Records the trace with what was captured.
  void replay(Specialisation& s);
  // After the trace was recorded on a graph of `before` nodes: makes the steps of builders.
  void finish(const Specialisation& s, uint32_t before);
  // A result, after replay(). New reference.
  PyObject* build(const OutputSpec& output, const Specialisation& s);

  uint64_t nodes() const { return nodes_; }  // that were recorded
  void count(uint32_t nodes) { nodes_ += nodes; }

  CapturedInputs captured;

 private:
  PyObject* rebuild(const OutputSpec& output, const Specialisation& s);

  const SourceReader& sources_;
  std::vector<RnnBuilder::Step> steps_;  // those that were made, beside Specialisation::steps
  std::vector<PyObject*> built_;         // shared results so far, by number; borrowed
  uint64_t nodes_ = 0;
};

inline PyRnnState* state_in(PyObject* o) { return reinterpret_cast<PyRnnState*>(o); }

}  // namespace dyc::py
