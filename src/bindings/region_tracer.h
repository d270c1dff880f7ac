// Learns a region from a run of its own statements.
//
// A TraceSession lasts from the call that found no specialisation to replay until the statements have run. It
// keeps the values of the sources when it began, and notes which nodes and builder steps existed then. The
// Tracer then makes a Specialisation of it: guards of the values, the trace of the new nodes as a function of
// the inputs and indices among these values, and how the results are built from both. It refuses runs that
// record anything which the values do not determine.
#pragma once
#include "bindings/region_replay.h"

namespace dyc::py {

struct TraceSession {
  TraceSession() = default;
  TraceSession(const SourceValues& values, Specialisation* against);
  bool is_active() const { return on && engine == &py::engine(); }

  bool on = false;
  const Engine* engine = nullptr;
  uint32_t generation = 0;  // Graph::generation() when it began
  NodeId begin = 0;         // the first node since
  SourceValues values;
  std::vector<Owned> owned;  // references to all of these
  std::vector<Owned> kept;   // results that were passed on early
  std::vector<std::pair<uint32_t, RnnBuilder::Step>>
      builders;                       // source of a state; how many steps there were
  int64_t start = 0;                  // as thread_clock() says
  Specialisation* against = nullptr;  // to be compared with what is learned
};

int64_t thread_clock();                // nanoseconds of this thread's processor time
int64_t elapsed_since(int64_t start);  // without what reading the clock takes

class Tracer {
 public:
  // `strict`: a number that may be an index or something else is a reason to refuse; else it is a constant.
  Tracer(const RegionSpec& spec, const SourceReader& sources, const TraceSession& session, bool strict)
      : spec_(spec), sources_(sources), session_(session), strict_(strict) {}

  // Makes the specialisation of a session with these results. Null, with a reason, if it refuses.
  std::unique_ptr<Specialisation> learn(PyObject* results, const char** reason);

 private:
  using Placeholders = std::vector<Trace::Placeholder>;
  enum Index { no_index, an_index, unclear };
  PyObject* value(uint32_t source) const { return session_.values.all[source]; }
  Index index_uses(uint32_t source, uint32_t* uses) const;
  bool used_as_value(uint32_t source) const;
  bool may_call(const RegionSource& source, PyObject* function) const;
  // Null, or the reason to refuse.
  const char* check_use(uint32_t source, const Guard& guard) const;
  const char* make_guard(uint32_t source, Guard* guard, uint32_t* budget, Placeholders* placeholders) const;
  const char* make_guards(Placeholders* placeholders) const;
  bool make_constants(Placeholders* placeholders, const std::vector<NodeId>& inputs) const;
  bool collect_steps();
  bool make_output(const RegionOutput& spec, PyObject* object, OutputSpec* output);
  bool make_derived_output(PyObject* object, OutputSpec* output);
  bool make_part_output(PyObject* object, OutputSpec* output);
  bool make_sequence_output(const RegionOutput& spec, PyObject* object, OutputSpec* output);
  bool make_expression_output(PyObject* object, OutputSpec* output);
  bool make_state_output(PyObject* object, OutputSpec* output);
  uint32_t number_of(PyObject* object);

  const RegionSpec& spec_;
  const SourceReader& sources_;
  const TraceSession& session_;
  const bool strict_;
  std::unique_ptr<Specialisation> learned_;
  std::vector<PyObject*> inputs_;   // expressions of the inputs, borrowed
  std::vector<PyObject*> objects_;  // made by the run, by number
  std::vector<uint32_t> counts_;    // beside these: in how many places of the results each is
};

}  // namespace dyc::py
