// How a block is recorded again; template_learn.cc has how it is learned.
//
// A block runs as the script has it until a run was watched from its first node to its last. What it read
// then is held against what it reads now; where that is the same but for expressions of equal extents and for
// indices, the block would record the same ops, and they are recorded without it. Every kReview-th time the
// script runs all the same and what it records is compared; so does the run after the first, until each index
// was seen to have two values.
#include "bindings/region.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ctime>

#include "bindings/arguments.h"
#include "bindings/compute.h"
#include "bindings/python_compat.h"
#include "bindings/region_loop.h"

namespace dyc::py {

// ---------------------------------------------------------------- calls

bool Region::check(const Specialisation& p, const std::vector<uint32_t>& sources, const Graph& graph,
                   CapturedInputs* captured) const {
  return std::all_of(sources.begin(), sources.end(), [&](uint32_t i) {
    return p.guards[i].check(values_[i], values_.data(), graph, captured);
  });
}

// Guards of parts that say nothing of the run: asked when the parts have changed.
bool Region::check_parts(Specialisation& p, uint32_t parts, const Graph& graph, CapturedInputs* captured) {
  const Version& now = parts_[parts].version;
  if (now.is_known() && now == p.valid[parts]) return true;
  if (!check(p, p.permanent[parts], graph, captured)) return false;
  p.valid[parts] = now;
  return true;
}

bool Region::matches(Specialisation& p, const Graph& graph) {
  captured_.clear();
  for (uint32_t i = 0; i < parts_.size(); ++i)
    if (!check_parts(p, i, graph, &captured_)) return false;
  return check(p, p.always, graph, &captured_) &&
         p.trace->matches(graph, captured_.inputs.data(), captured_.placeholders.data());
}

void Region::replay(Specialisation& p) {
  Graph& g = engine().graph;
  const uint32_t before = g.size();
  p.trace->record(g, captured_.inputs.data(), captured_.placeholders.data());
  note_replay(p, before);
}

// The trace was recorded; `before`: nodes there were.
void Region::note_replay(const Specialisation& p, uint32_t before) {
  Engine& e = engine();
  costs_.nodes += e.graph.size() - before;
  if (e.graph.size() > before) e.recorded(e.graph.size() - 1);
  new_steps_.clear();
  std::vector<NodeId>& nodes = captured_.nodes;
  for (const BuilderStep& s : p.steps) {
    nodes.resize(s.positions.size());
    for (size_t i = 0; i < nodes.size(); ++i) nodes[i] = p.trace->nodes()[s.positions[i]];
    new_steps_.push_back(state_in(values_[s.source])->b->core->add_step(e, nodes));
  }
  if (p.n_shared) built_.assign(p.n_shared, nullptr);
}

int64_t Region::clock() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

double Region::Costs::saved(uint64_t hits) const {
  if (!timed_calls || written_ns == INT64_MAX) return NAN;
  const double call = static_cast<double>(call_ns) / static_cast<double>(timed_calls);
  return 1e-9 *
         (static_cast<double>(written_ns) * static_cast<double>(hits) - call * static_cast<double>(calls));
}

PyObject* Region::call(PyObject* const* args, size_t n) {
  constexpr uint64_t kTimed = 64;  // one call in so many
  if (++costs_.calls % kTimed != 0) return timed_call(args, n);
  const int64_t start = clock();
  PyObject* results = timed_call(args, n);
  costs_.call_ns += clock() - start;
  ++costs_.timed_calls;
  return results;
}

PyObject* Region::timed_call(PyObject* const* args, size_t n) {
  if (loop_) return call_in_loop(args, n);
  PyObject* results = nullptr;
  try {
    results = attempt(args, n);
  } catch (...) {
    set_error();
  }
  if (!results) forget_error();
  return results;
}

// An error on the way to recording is none of the script's. But not one that is to end it.
void Region::forget_error() {
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

// With a debugger or profiler on, the script runs as it was written, and so do the functions it calls.
bool Region::is_debugged() const {
  if (is_traced()) return true;
  if constexpr (kCodeIsMonitored)
    for (const RegionSource& s : sources_)
      for (Py_ssize_t i = 0; s.codes && i < PyList_GET_SIZE(s.codes.get()); ++i)
        if (is_monitored(PyList_GET_ITEM(s.codes.get(), i))) return true;
  return false;
}

// The engine that the block would record with now; null: it must run.
Engine* Region::ready(size_t n) {
  if (disabled_ || busy_ || n != n_args_) return nullptr;
  Engine* e = engine_or_error();
  if (!e || e->options.immediate) return nullptr;
  if (session_.engine == e) session_.on = false;  // the run before has not ended
  return is_debugged() ? nullptr : e;
}

// How the block would run; null: it must run, and is watched where something can be learned from that.
Region::Specialisation* Region::select(PyObject* const* args, const Graph& graph) {
  if (!evaluate(args)) return nullptr;
  const auto p = std::find_if(specialisations_.begin(), specialisations_.end(),
                              [&](const auto& each) { return matches(*each, graph); });
  if (p == specialisations_.end()) {
    ++misses_;
    start_session(nullptr);
    return nullptr;
  }
  if (!(*p)->confirmed || ++(*p)->hits % kReview == 0) {
    ++reviews_;
    start_session(p->get());
    return nullptr;
  }
  ++hits_;
  std::rotate(specialisations_.begin(), p, p + 1);  // what runs now runs again soon
  return specialisations_.front().get();
}

PyObject* Region::attempt(PyObject* const* args, size_t n) {
  Engine* e = ready(n);
  if (!e) return nullptr;
  const Busy busy(this);  // reading an attribute may come back here
  Specialisation* p = select(args, e->graph);
  if (!p) return nullptr;
  replay(*p);
  return build(p->result, *p);
}

// One object under several names is one object here too.
PyObject* Region::build(const OutputSpec& output, const Specialisation& p) {
  switch (output.kind) {
    case RegionOutput::source:
      return Owned(values_[output.at]).release();
    case RegionOutput::constant:
      return Owned(output.object.get()).release();
    case RegionOutput::input:
      return Owned(captured_.objects[output.at]).release();
    default:
      break;
  }
  if (output.number == kNone) return rebuild(output, p);
  if (PyObject* known = built_[output.number]) return Owned(known).release();
  return built_[output.number] = rebuild(output, p);
}

PyObject* Region::rebuild(const OutputSpec& output, const Specialisation& p) {
  if (output.kind == RegionOutput::recorded) return make_expression(p.trace->nodes()[output.at], output.type);
  if (output.kind == RegionOutput::state) {
    const Owned prev = Owned::steal(build(output.parts[0], p));
    return next_state(state_in(prev.get()), new_steps_[output.at]);
  }
  const auto n = static_cast<Py_ssize_t>(output.parts.size());
  const bool tuple = output.kind == RegionOutput::tuple;
  Owned all = Owned::steal(tuple ? PyTuple_New(n) : PyList_New(n));
  if (!all) throw PythonError();
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* part = build(output.parts[static_cast<size_t>(i)], p);
    if (tuple) PyTuple_SET_ITEM(all.get(), i, part);
    else PyList_SET_ITEM(all.get(), i, part);
  }
  return all.release();
}

// ---------------------------------------------------------------- made in Python

namespace {

RegionOutput parse_output(PyObject* spec) {
  RegionOutput r;
  int kind;
  PyObject* payload;
  if (!PyArg_ParseTuple(spec, "iO", &kind, &payload)) throw PythonError();
  r.kind = static_cast<RegionOutput::Kind>(kind);
  if (r.kind == RegionOutput::source) r.at = static_cast<uint32_t>(PyLong_AsLong(payload));
  if (r.kind == RegionOutput::constant) r.object = Owned(payload);
  if (r.kind == RegionOutput::tuple || r.kind == RegionOutput::list)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(payload); ++i)
      r.parts.push_back(parse_output(PyTuple_GET_ITEM(payload, i)));
  return r;
}

RegionLoop::Target parse_target(PyObject* spec) {
  RegionLoop::Target t;
  if (PyLong_Check(spec)) t.argument = static_cast<uint32_t>(PyLong_AsLong(spec));
  for (Py_ssize_t i = 0; PyTuple_Check(spec) && i < PyTuple_GET_SIZE(spec); ++i)
    t.parts.push_back(parse_target(PyTuple_GET_ITEM(spec, i)));
  return t;
}

// None: the next time it is no argument.
std::vector<uint32_t> parse_numbers(PyObject* spec) {
  std::vector<uint32_t> all;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(spec); ++i) {
    PyObject* each = PyTuple_GET_ITEM(spec, i);
    all.push_back(each == Py_None ? kNone : static_cast<uint32_t>(PyLong_AsLong(each)));
  }
  return all;
}

RegionLoop parse_loop(PyObject* spec) {
  uint32_t n_added;
  PyObject *target, *left, *carried, *appended;
  if (!PyArg_ParseTuple(spec, "OIO!O!O!", &target, &n_added, &PyTuple_Type, &left, &PyTuple_Type, &carried,
                        &PyTuple_Type, &appended))
    throw PythonError();
  return {parse_target(target), n_added, parse_numbers(left), parse_numbers(carried),
          parse_numbers(appended)};
}

}  // namespace

void Region::parse_sources(PyObject* spec) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(spec); ++i) {
    RegionSource s;
    int kind, called, method, expression, state, appended, own, late;
    PyObject *key, *codes, *defaults;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(spec, i), "iIOInpppppIIO!Opp", &kind, &s.base, &key, &s.key_source,
                          &s.n, &called, &method, &expression, &state, &appended, &s.indices, &s.others,
                          &PyList_Type, &codes, &defaults, &own, &late))
      throw PythonError();
    s.kind = static_cast<RegionSource::Kind>(kind);
    s.key = Owned(key);
    s.called = called;
    s.method = method;
    s.expression = expression;
    s.state = state;
    s.appended = appended;
    s.own = own;
    s.late = late;
    s.codes = Owned(codes);
    if (PyTuple_Check(defaults)) s.defaults = Owned(defaults);
    sources_.push_back(std::move(s));
  }
}

Region::Region(PyObject* spec, PyObject* functions) : functions_(functions) {
  const char* name;
  PyObject *sources, *ints, *result, *loop;
  if (!PyArg_ParseTuple(spec, "sIO!O!O!O", &name, &n_args_, &PyTuple_Type, &sources, &PyTuple_Type, &ints,
                        &PyTuple_Type, &result, &loop))
    throw PythonError();
  name_ = name;
  parse_sources(sources);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ints); ++i)
    ints_.push_back(PyLong_AsLong(PyTuple_GET_ITEM(ints, i)));
  result_ = parse_output(result);
  if (loop != Py_None) loop_ = parse_loop(loop);
  if (PyErr_Occurred()) throw PythonError();
  values_.resize(sources_.size());
  plan_reads();
  if (!loop_) return;
  plan_loop();
  loop_replayer_ = std::make_unique<LoopReplayer>(*this);
}

Region::Region() : loop_(RegionLoop()), disabled_(true), reason_("it was made in another process") {}

Region::~Region() = default;

PyObject* Region::statistics() const {
  return Py_BuildValue("{s:s,s:K,s:K,s:K,s:K,s:K,s:n,s:s,s:s,s:K,s:d}", "name", name_.c_str(), "hits", hits_,
                       "loop_hits", loop_hits_, "misses", misses_, "reviews", reviews_, "refusals", refusals_,
                       "specialisations", static_cast<Py_ssize_t>(specialisations_.size()), "off",
                       reason_.c_str(), "refusal", refusal_.c_str(), "nodes", costs_.nodes, "saved",
                       costs_.saved(hits_));
}

// ---------------------------------------------------------------- the Python type

namespace {

struct PyRegion {
  PyObject_HEAD vectorcallfunc call;
  Region* core;
};

Region* core_of(PyObject* self) { return reinterpret_cast<PyRegion*>(self)->core; }

// The results, or None: then the script runs.
PyObject* call(PyObject* self, PyObject* const* args, size_t n, PyObject*) {
  PyObject* results = core_of(self)->call(args, static_cast<size_t>(PyVectorcall_NARGS(n)));
  if (results || PyErr_Occurred()) return results;
  Py_RETURN_NONE;
}

// done(results) -> results
PyObject* done(PyObject* self, PyObject* results) {
  return guarded([&] {
    core_of(self)->finish(results);
    return Owned(results).release();
  });
}

PyObject* keep(PyObject* self, PyObject* result) {
  return guarded([&] {
    core_of(self)->keep_result(result);
    return Owned(result).release();
  });
}

PyObject* last(PyObject* self, PyObject* result) {
  return guarded([&] {
    core_of(self)->keep_result(result);
    core_of(self)->finish(Owned::steal(PyTuple_New(0)).get());
    return Owned(result).release();
  });
}

PyObject* drop(PyObject* self, PyObject*) {
  return guarded([&] {
    core_of(self)->discard_session();
    return Owned(Py_None).release();
  });
}

PyObject* is_foreign(PyObject*, PyObject*) {
  PyObject *type, *value, *traceback;
  PyErr_GetExcInfo(&type, &value, &traceback);
  PyErr_Restore(type, value, traceback);
  const bool unbound = is_unbound_name();
  PyErr_Clear();
  return PyBool_FromLong(!unbound);
}

// A copy in another process knows nothing.
PyObject* reduce(PyObject* self, PyObject*) {
  return Py_BuildValue("O()", reinterpret_cast<PyObject*>(Py_TYPE(self)));
}

PyObject* statistics(PyObject* self, PyObject*) {
  return guarded([&] { return core_of(self)->statistics(); });
}

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

PyCFunction fast(PyObject* (*f)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f));
}

PyMethodDef methods[] = {
    {"done", done, METH_O,
     "done(results)\n\nThe block ran as the script has it and left these results behind."},
    {"drop", drop, METH_NOARGS, "drop()\n\nThe block ran as the script has it, and failed."},
    {"is_foreign", is_foreign, METH_NOARGS,
     "is_foreign()\n\nIs the exception that is handled another one than that a name has no value here?"},
    {"keep", keep, METH_O,
     "keep_result(result)\n\nThe block leaves the result behind; done() has the others."},
    {"last", last, METH_O, "last(result)\n\nkeep(result), and the block ran."},
    {"loop", fast(loop), METH_FASTCALL,
     "loop(reads, iterable, zip=None)\n\nIts items, for a loop that calls the template with each."},
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {"statistics", statistics, METH_NOARGS, "statistics()\n\nHow often the block was recorded by one call."},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject RegionType = blank_type();

}  // namespace

void add_regions(PyObject* module) {
  PyTypeObject& t = RegionType;
  t.tp_name = "dynet_compat._core._Region";
  t.tp_basicsize = sizeof(PyRegion);
  t.tp_vectorcall_offset = offsetof(PyRegion, call);
  t.tp_call = PyVectorcall_Call;
  t.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  t.tp_dealloc = dealloc;
  t.tp_methods = methods;
  t.tp_new = create;
  t.tp_doc = "_Region(spec, functions): a block of a script, recorded by one call.";
  if (PyType_Ready(&t) < 0) throw PythonError();
  Py_INCREF(&t);
  if (PyModule_AddObject(module, "_Region", reinterpret_cast<PyObject*>(&t)) < 0) throw PythonError();
  add_region_loops();
}

}  // namespace dyc::py
