#include "bindings/region.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "bindings/arguments.h"
#include "bindings/call_cost.h"
#include "bindings/python_compat.h"
#include "bindings/region_loop.h"
#include "bindings/region_walk.h"
#include "bindings/region_walk_payoff.h"
#include "bindings/signatures.h"
#include "bindings/tuning.h"

namespace dyc::py {

Region::Region() : sources_(spec_), replayer_(sources_), disabled_("it was made in another process") {}

Region::Region(PyObject* spec, PyObject* functions)
    : spec_(spec, functions), sources_(spec_), replayer_(sources_) {
  if (spec_.loop) loop_replayer_ = std::make_unique<LoopReplayer>(*this);
}

Region::~Region() = default;

// ---------------------------------------------------------------- calls

PyObject* Region::call(PyObject* const* args, size_t n) {
  if (!disabled_.empty()) {
    pending_item_ = {};
    for (const auto& restorer : restorers_) restorer->count_call();
    return nullptr;
  }
  const bool first = statistics_.runs() < 4 * tuning::kFirstWindow;
  if (++statistics_.calls % (first ? tuning::kTimedFirstCalls : tuning::kTimedCalls) != 0)
    return call_untimed(args, n);
  const int64_t start = thread_clock();
  PyObject* results = call_untimed(args, n);
  const int64_t elapsed = elapsed_since(start);
  statistics_.call_ns += elapsed;
  payoff_.longest_call = std::max(payoff_.longest_call, elapsed);
  ++statistics_.timed_calls;
  if (std::exchange(walked_, false)) payoff_.next = 0;
  else if (disabled_.empty() && hints_are_timed) check_payoff();
  return results;
}

PyObject* Region::call_untimed(PyObject* const* args, size_t n) {
  if (spec_.loop) return call_in_loop(args, n);
  PyObject* results = nullptr;
  try {
    results = call_once(args, n);
  } catch (...) {
    set_error();
  }
  if (!results) forget_own_error();
  return results;
}

PyObject* Region::call_once(PyObject* const* args, size_t n) {
  Engine* e = ready(n);
  if (!e) return nullptr;
  const Busy busy(this);
  Specialisation* s = select(args, e->graph);
  if (!s) return nullptr;
  replayer_.replay(*s);
  return replayer_.build(s->output, *s);
}

void forget_own_error() {
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
}

bool is_unbound_name() {
  if (!PyErr_ExceptionMatches(PyExc_NameError)) return false;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const bool here = !traceback || !reinterpret_cast<PyTracebackObject*>(traceback)->tb_next;
  PyErr_Restore(type, value, traceback);
  return here;
}

// With a debugger or profiler on, the statements run, and so do the functions that they call.
bool Region::is_debugged() const {
  if (is_traced()) return true;
  if constexpr (kCodeIsMonitored)
    for (const RegionSource& s : spec_.sources)
      for (Py_ssize_t i = 0; s.codes && i < PyList_GET_SIZE(s.codes.get()); ++i)
        if (is_monitored(PyList_GET_ITEM(s.codes.get(), i))) return true;
  return false;
}

// The engine that the region would record with now; null: the statements must run.
Engine* Region::ready(size_t n) {
  if (!disabled_.empty() || busy_ || n != spec_.n_args) return nullptr;
  Engine* e = engine_or_error();
  if (!e || e->options.immediate) return nullptr;
  if (session_.engine == e) session_.on = false;  // the run before has not ended
  return timed_statements.rests() || is_debugged() || starts_plain_run() ? nullptr : e;
}

// The specialisation to replay; null: the statements must run, in a session if something can be learned.
Specialisation* Region::select(PyObject* const* args, const Graph& graph) {
  if (!sources_.read(args)) return nullptr;
  const auto s = std::find_if(specialisations_.begin(), specialisations_.end(),
                              [&](const auto& each) { return replayer_.matches(*each, graph); });
  if (s == specialisations_.end()) {
    ++statistics_.misses;
    start_session(nullptr);
    return nullptr;
  }
  if (!(*s)->indices.confirmed || ++(*s)->hits % tuning::kRevalidateEvery == 0) {
    ++statistics_.reviews;
    start_session(s->get());
    return nullptr;
  }
  ++statistics_.hits;
  std::rotate(specialisations_.begin(), s, s + 1);
  return specialisations_.front().get();
}

// ---------------------------------------------------------------- loops

const RegionLoop& Region::loop() const {
  if (spec_.loop) return *spec_.loop;
  PyErr_SetString(PyExc_TypeError, "the region is not the body of a loop");
  throw PythonError();
}

// Null: the statements must run for this item, or an exception is set. Between the return of an item and this
// call only the item is unpacked. If that runs code of the script, or another thread runs, the item may not
// be the last one that was returned; then the statements run, too.
PyObject* Region::call_in_loop(PyObject* const* args, size_t n) {
  const PendingItem last = std::exchange(pending_item_, {});
  if (!last.items || last.thread != PyThreadState_Get() || last.items->must_run()) return nullptr;
  try {
    return last.reads ? collect(last.items, last.reads, args, n) : iterate(last.items, args, n);
  } catch (...) {
    set_error();
    return nullptr;
  }
}

PyObject* Region::collect(LoopIterator* items, PyObject* reads, PyObject* const* args, size_t n) {
  Engine* e = ready(spec_.n_args);
  if (!e) return nullptr;
  const Owned values = Owned::steal(PyObject_CallNoArgs(reads));
  if (!values) {
    if (!is_unbound_name()) throw PythonError();
    PyErr_Clear();  // the element raises it when it runs, if it reads that name
    return nullptr;
  }
  const auto more = static_cast<size_t>(PyTuple_GET_SIZE(values.get()));
  if (n + more != spec_.n_args) return nullptr;
  std::vector<PyObject*>& all = loop_replayer_->arguments;
  all.assign(args, args + n);
  all.insert(all.end(), PySequence_Fast_ITEMS(values.get()), PySequence_Fast_ITEMS(values.get()) + more);
  Owned list = Owned::steal(PyList_New(0));
  if (!list) throw PythonError();
  bool recorded;
  {
    const Busy busy(this);
    recorded = loop_replayer_->record(e->graph, items, list.get());
  }
  loop_replayer_->release();
  if (!recorded && PyErr_Occurred()) throw PythonError();
  return recorded ? list.release() : nullptr;
}

PyObject* Region::iterate(LoopIterator* items, PyObject* const* args, size_t n) {
  Engine* e = n < spec_.loop->n_added ? nullptr : ready(n - spec_.loop->n_added);
  if (!e) return nullptr;
  loop_replayer_->arguments.assign(args, args + n);
  PyObject* results = nullptr;
  {
    const Busy busy(this);
    if (loop_replayer_->record(e->graph, items, nullptr)) results = loop_replayer_->results();
  }
  loop_replayer_->release();
  return results;
}

// ---------------------------------------------------------------- learning

void Region::start_session(Specialisation* against) {
  const Statistics& n = statistics_;
  if (!against && n.misses > tuning::kTrialMisses && n.hits < tuning::kFairHits * n.misses)
    return disable("it runs in too many ways");
  TraceSession session(sources_.values, against);
  std::swap(session_, session);  // releasing the last one may run code of the script
  session_.start = thread_clock();
}

void Region::keep_result(PyObject* result) {
  if (session_.is_active()) session_.kept.emplace_back(result);
}

void Region::discard_session() {
  plain_start_ = 0;
  if (session_.is_active()) const TraceSession ended = std::exchange(session_, {});
}

namespace {

// A tuple with the items of the tuple, then these.
Owned joined(PyObject* tuple, const std::vector<Owned>& more) {
  const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
  Owned all = Owned::steal(PyTuple_New(n + static_cast<Py_ssize_t>(more.size())));
  if (!all) throw PythonError();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all.get()); ++i) {
    PyObject* each = i < n ? PyTuple_GET_ITEM(tuple, i) : more[static_cast<size_t>(i - n)].get();
    PyTuple_SET_ITEM(all.get(), i, Owned(each).release());
  }
  return all;
}

}  // namespace

void Region::finish(PyObject* rest) {
  end_plain_run();
  if (!session_.is_active()) return;
  const TraceSession ended = std::exchange(session_, {});  // released last, as that may call this region
  if (!specialisations_.empty())
    statistics_.script_ns = std::min(statistics_.script_ns, elapsed_since(ended.start));
  const Owned results = ended.kept.empty() ? Owned(rest) : joined(rest, ended.kept);
  learn(ended, results.get());
  const int64_t elapsed = elapsed_since(ended.start);
  statistics_.session_ns += elapsed;
  payoff_.longest_session = std::max(payoff_.longest_session, elapsed);
}

void Region::learn(const TraceSession& session, PyObject* results) {
  const char* reason = "the graph was renewed or reverted";
  std::unique_ptr<Specialisation> learned;
  if (engine().graph.generation() == session.generation)
    learned = Tracer(spec_, sources_, session, statistics_.refusals < tuning::kRefusals / 2)
                  .learn(results, &reason);
  if (!learned) {
    refusal_ = reason;
    if (session.against) session.against->indices.confirmed = false;  // compare again
    if (++statistics_.refusals >= tuning::kRefusals && specialisations_.empty())
      disable("what it records cannot be learned");
  } else if (!session.against) {
    if (specialisations_.size() == tuning::kSpecialisations) specialisations_.pop_back();
    specialisations_.insert(specialisations_.begin(), std::move(learned));
  } else if (const std::string other = learned->difference(*session.against); !other.empty()) {
    refuted_ = true;
    disable("the script recorded something else than what was learned: " + other);
  } else {
    session.against->confirm(*learned, sources_);
  }
}

void Region::disable(const std::string& reason) {
  disabled_ = reason;
  // Released last, as that may call this region.
  const TraceSession session = std::exchange(session_, {});
  const auto specialisations = std::exchange(specialisations_, {});
  for (const auto& restorer : restorers_) restorer->forget_region();
}

CodeRestorer::CodeRestorer(PyObject* functions, PyObject* old, PyObject* objects)
    : old_(old), in_use_(static_cast<size_t>(PyList_GET_SIZE(objects))), walked_(in_use_) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(functions); ++i) {
    PyObject* function = PyList_GET_ITEM(functions, i);
    if (!PyFunction_Check(function)) {
      PyErr_Format(PyExc_TypeError, "_restore_code(): expected functions, got %s",
                   Py_TYPE(function)->tp_name);
      throw PythonError();
    }
    if (!new_) new_ = Owned(PyFunction_GET_CODE(function));
    functions_.push_back(Owned::steal(PyWeakref_NewRef(function, nullptr)));
    if (!functions_.back()) throw PythonError();
  }
  for (size_t i = 0; i < in_use_; ++i)
    if (const Region* region = region_in(PyList_GET_ITEM(objects, static_cast<Py_ssize_t>(i)))) {
      regions_.push_back(region);
      --walked_;
    }
}

// Over all of the run: a script may train and test by turns, and a region be in use in one of the two. It may
// also test first, when what the other region will save is not known. What walked functions save never is. A
// profiler that is on would count calls of two functions.
void CodeRestorer::compare() {
  if (!new_ || walked_ > 0 || is_traced() || is_monitored(new_.get())) return;
  double saved = 0;
  bool all_met = true;
  for (const Region* region : regions_) {
    saved += region->saved_by_replays();
    all_met &= region->was_met();
  }
  const auto taken = static_cast<double>(around(tuning::kAroundRestingRegion)) * static_cast<double>(calls_);
  lost_ = saved < taken ? lost_ + 1 : 0;
  if (lost_ >= (all_met ? tuning::kLostLooks : tuning::kPatientLooks)) restore();
}

// Once. The new code, which holds the regions, is let go.
void CodeRestorer::restore() {
  regions_.clear();
  const Owned before = std::exchange(old_, {}), after = std::exchange(new_, {});
  if (!before || !after) return;
  for (const Owned& each : std::exchange(functions_, {})) {
    const Owned function(reinterpret_cast<PyWeakReference*>(each.get())->wr_object);
    if (!PyFunction_Check(function.get()) || PyFunction_GET_CODE(function.get()) != after.get()) continue;
    if (PyObject_SetAttrString(function.get(), "__code__", before.get()) < 0)
      PyErr_WriteUnraisable(function.get());
  }
  share_program(before.get(), after.get());
}

// ---------------------------------------------------------------- payoff

// Should the statements run without a session this time, to measure what they take without hints?
bool Region::starts_plain_run() {
  if (payoff_.plain_runs == 0) return false;
  --payoff_.plain_runs;
  plain_engine_ = &engine();
  plain_start_ = thread_clock();
  return true;
}

void Region::end_plain_run() {
  const int64_t start = std::exchange(plain_start_, 0);
  if (start && plain_engine_ == &engine())
    statistics_.script_ns = std::min(statistics_.script_ns, elapsed_since(start));
}

void Region::check_payoff() {
  Statistics& now = statistics_;
  if (now.runs() < payoff_.next) return;
  if (payoff_.next == 0) {  // the first window only learns
    if (now.runs() < tuning::kFirstWindow) return;
    payoff_.plain_runs = tuning::kPlainRuns;
  } else {
    Statistics window = now;
    window.calls -= payoff_.before.calls;
    window.timed_calls -= payoff_.before.timed_calls;
    window.call_ns -= payoff_.before.call_ns + payoff_.longest_call;
    window.session_ns -= payoff_.before.session_ns + payoff_.longest_session;
    const auto runs = static_cast<double>(now.runs() - payoff_.before.runs());
    const double outside =
        static_cast<double>(around(tuning::kAroundCall)) * static_cast<double>(window.calls);
    const auto statements = static_cast<double>(now.script_ns - around(tuning::kAroundPlainRun)) * runs;
    const bool lost = window.call_cost() + static_cast<double>(window.session_ns) + outside > statements;
    payoff_.lost = lost ? payoff_.lost + 1 : 0;
    if (payoff_.lost == 2) return disable("it takes longer than the statements");
    if (lost) payoff_.plain_runs = tuning::kPlainRuns;
  }
  payoff_.before = now;
  payoff_.next = 2 * now.runs();
  payoff_.longest_call = payoff_.longest_session = 0;
}

// ---------------------------------------------------------------- statistics

double Region::Statistics::call_cost() const {
  return static_cast<double>(call_ns) / static_cast<double>(timed_calls) * static_cast<double>(calls);
}

double Region::Statistics::saved() const {
  if (!timed_calls || script_ns == INT64_MAX) return NAN;
  const double statements = static_cast<double>(script_ns) * static_cast<double>(runs());
  return 1e-9 * (statements - call_cost() - static_cast<double>(session_ns));
}

double Region::saved_by_replays() const {
  const Statistics& s = statistics_;
  if (!disabled_.empty() || s.script_ns == INT64_MAX) return 0;
  const auto statements = static_cast<double>(s.script_ns) * static_cast<double>(s.hits);
  return s.timed_calls ? std::max(statements - s.call_cost(), 0.) : statements;
}

PyObject* Region::statistics() const {
  const Statistics& s = statistics_;
  const char* off = disabled_.c_str();
  const auto has_restored = [](const auto& restorer) { return restorer->has_restored(); };
  if (disabled_.empty() && !restorers_.empty() && std::ranges::all_of(restorers_, has_restored))
    off = "it saved less than other regions of its function took";
  return Py_BuildValue("{s:s,s:K,s:K,s:K,s:K,s:K,s:n,s:s,s:s,s:K,s:d}", "name", spec_.name.c_str(), "hits",
                       s.hits, "loop_hits", s.loop_hits, "misses", s.misses, "reviews", s.reviews, "refusals",
                       s.refusals, "specialisations", static_cast<Py_ssize_t>(specialisations_.size()), "off",
                       off, "refusal", refusal_.c_str(), "nodes", replayer_.nodes(), "saved", s.saved());
}

// ---------------------------------------------------------------- the Python type

namespace {

struct PyRegion {
  PyObject_HEAD vectorcallfunc call;
  Region* core;
};

Region* core_of(PyObject* self) { return reinterpret_cast<PyRegion*>(self)->core; }

// The statements ran, with these results.
PyObject* done(Region& region, PyObject* results) {
  region.finish(results);
  return Owned(results).release();
}

// The statements have made this result; done() has the others.
PyObject* keep(Region& region, PyObject* result) {
  region.keep_result(result);
  return Owned(result).release();
}

// keep(), and the statements ran.
PyObject* last(Region& region, PyObject* result) {
  region.keep_result(result);
  region.finish(Owned::steal(PyTuple_New(0)).get());
  return Owned(result).release();
}

// The statements ran, and failed.
PyObject* drop(Region& region, PyObject* none) {
  region.discard_session();
  return Owned(none).release();
}

// Is the exception that is handled another one than that a name has no value here?
PyObject* foreign(Region&, PyObject*) {
  PyObject *type, *value, *traceback;
  PyErr_GetExcInfo(&type, &value, &traceback);
  PyErr_Restore(type, value, traceback);
  const bool unbound = is_unbound_name();
  PyErr_Clear();
  return PyBool_FromLong(!unbound);
}

constexpr struct {
  const char* name;
  PyObject* (*tell)(Region&, PyObject*);
} kNotes[] = {{"done", done}, {"keep", keep}, {"last", last}, {"drop", drop}, {"foreign", foreign}};

// What the rewritten statements tell the region, as an argument by name. These are no methods, as calls of
// methods need a level of recursion, so that the statements would fail before they do as written.
PyObject* tell(Region& region, PyObject* name, PyObject* value) {
  for (const auto& note : kNotes)
    if (PyUnicode_CompareWithASCIIString(name, note.name) == 0) return note.tell(region, value);
  return PyErr_Format(PyExc_TypeError, "a region has no argument '%U'", name);
}

// The results, or None: then the statements run.
PyObject* call(PyObject* self, PyObject* const* args, size_t n, PyObject* names) {
  if (names && PyTuple_GET_SIZE(names) == 1 && PyVectorcall_NARGS(n) == 0)
    return guarded([&] { return tell(*core_of(self), PyTuple_GET_ITEM(names, 0), args[0]); });
  PyObject* results = core_of(self)->call(args, static_cast<size_t>(PyVectorcall_NARGS(n)));
  if (results || PyErr_Occurred()) return results;
  Py_RETURN_NONE;
}

PyObject* restore_code(PyObject*, PyObject* args) {
  PyObject *functions, *old, *objects;
  if (!PyArg_ParseTuple(args, "O!O!O!:_restore_code", &PyList_Type, &functions, &PyCode_Type, &old,
                        &PyList_Type, &objects))
    return nullptr;
  return guarded([&] {
    const auto n = PyList_GET_SIZE(objects);
    const auto restorer = std::make_shared<CodeRestorer>(functions, old, objects);
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* object = PyList_GET_ITEM(objects, i);
      if (Region* region = region_in(object)) region->add_restorer(restorer);
      else add_restorer(object, restorer);
    }
    return Owned(Py_None).release();
  });
}

PyMethodDef functions[] = {
    {"_restore_code", restore_code, METH_VARARGS,
     "_restore_code(functions, old, objects)\n\nThe functions, which have the same code, get their old code "
     "back when all these regions and walked functions, which are those in their new one, are given up."},
    {nullptr, nullptr, 0, nullptr}};

// A region that was pickled to another process records nothing.
PyObject* reduce(PyObject* self, PyObject*) {
  return Py_BuildValue("O()", reinterpret_cast<PyObject*>(Py_TYPE(self)));
}

constexpr PyCFunction statistics = plain([](PyObject* self) { return core_of(self)->statistics(); });

PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *spec = nullptr, *functions = nullptr;
  if (!PyArg_ParseTuple(args, "|O!O!:_Region", &PyTuple_Type, &spec, &PySet_Type, &functions)) return nullptr;
  return guarded([&] {
    auto core = functions ? std::make_unique<Region>(spec, functions) : std::make_unique<Region>();
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) throw PythonError();
    reinterpret_cast<PyRegion*>(self)->call = call;
    reinterpret_cast<PyRegion*>(self)->core = core.release();
    return self;
  });
}

void dealloc(PyObject* self) {
  delete core_of(self);
  Py_TYPE(self)->tp_free(self);
}

PyObject* loop(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n < 2 || n > 3 || (n == 3 && !PyTuple_Check(args[1])))
    return PyErr_Format(PyExc_TypeError,
                        "loop(): expected a function or None, and an iterable or a tuple of these and zip");
  PyObject* reads = args[0] == Py_None ? nullptr : args[0];
  return guarded([&] { return make_loop(self, core_of(self), args[1], n == 3 ? args[2] : nullptr, reads); });
}

PyMethodDef methods[] = {
    {"loop", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(loop)), METH_FASTCALL,
     "loop(reads, iterable, zip=None)\n\nIts items, for a loop that calls the region with each."},
    plain_method("__reduce__", reduce, nullptr),
    plain_method("statistics", statistics, "statistics()\n\nHow often the region was recorded by one call."),
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject RegionType = static_type(
    {"dynet_compat._core._Region", "_Region(spec, functions): statements of a script, recorded by one call.",
     sizeof(PyRegion), dealloc, methods, create, nullptr, Py_TPFLAGS_HAVE_VECTORCALL});

}  // namespace

Region* region_in(PyObject* object) { return Py_TYPE(object) == &RegionType ? core_of(object) : nullptr; }

void add_regions(PyObject* module) {
  RegionType.tp_vectorcall_offset = offsetof(PyRegion, call);
  RegionType.tp_call = PyVectorcall_Call;
  add_type(module, RegionType);
  add_region_loops();
  add_walked_functions(module);
  if (PyModule_AddFunctions(module, functions) < 0) throw PythonError();
}

}  // namespace dyc::py
