// The Python type _WalkedFunction.
#include <cstddef>

#include "bindings/arguments.h"
#include "bindings/call_cost.h"
#include "bindings/python_compat.h"
#include "bindings/region_walk.h"
#include "bindings/region_walk_memo.h"
#include "bindings/region_walk_payoff.h"
#include "bindings/signatures.h"
#include "bindings/tuning.h"

namespace dyc::py {

namespace {

// Stands before the statements of one function, and passes on what they return.
struct WalkedFunction {
  Owned resolve;             // describes the program of a function
  Owned recording;           // a set: the functions that only record
  PyObject* code = nullptr;  // borrowed: it has this object among its constants
  std::string name;
  struct CallCounts {
    uint64_t hits = 0, misses = 0;
    uint64_t walks = 0, nodes = 0;  // hits that were no replays; what these have recorded
  };
  CallCounts counts;
  struct Outermost {
    uint32_t generation = 0;  // of the graph
    int depth = 0;            // levels of recursion that were left
  };
  struct Rest {                   // calls that run as they are written
    uint32_t left = 0, last = 0;  // how many do so now, and did after the last miss
    Outermost outermost;          // the call in this graph that the others are inside of
  };
  Rest rest;
  bool only_memos = false;  // walks have lost: they are made only to be written down
  const char* reason = "";
  const char* off = "";  // why the function is not walked any more
  struct Payoffs {
    WalkPayoff walks, memos;
    WalkPayoff* timed = nullptr;  // of the statements that are timed
  };
  Payoffs payoff;
  MemoTable memos;
  std::vector<std::shared_ptr<CodeRestorer>> restorers;

  // Null: the statements must run, unless an exception is set.
  PyObject* call(PyObject* const* args, size_t n);
  // The statements have run.
  void leave();

 private:
  bool is_inside(const Engine& e);
  PyObject* call_outermost(Engine* e, PyObject* const* args, size_t n);
  PyObject* call_in_trial(Engine& e, int64_t start, PyObject* const* args, size_t n);
  PyObject* call_with_memo(Engine& e, int64_t start, PyObject* const* args, size_t n, const MemoFound& found);
  PyObject* timed(Engine& e, WalkPayoff& times, int64_t start, PyObject* const* args, size_t n,
                  const MemoFound& found);
  PyObject* run_statements(Engine& e, WalkPayoff& times, WalkPayoff::Way way);
  PyObject* walk(PyObject* const* args, size_t n, MemoFound found = {}, bool may_walk = true);
  void give_up(const char* why);
};

Walker& walker() {
  static auto* const one = new Walker;
  return *one;
}

struct PyWalkedFunction {
  PyObject_HEAD vectorcallfunc call;
  WalkedFunction* core;
};

WalkedFunction* core_of(PyObject* self) { return reinterpret_cast<PyWalkedFunction*>(self)->core; }

}  // namespace

PyObject* WalkedFunction::call(PyObject* const* args, size_t n) {
  if (*off || timed_statements.enter(this)) return nullptr;
  Engine* e = this_thread;
  if (only_memos && e && is_inside(*e)) return nullptr;
  PyObject* made = call_outermost(e, args, n);
  if (made) rest.outermost = {};
  return made;
}

PyObject* WalkedFunction::call_outermost(Engine* e, PyObject* const* args, size_t n) {
  const bool rests = rest.left > 0;
  rest.left -= rests;
  // Random numbers that an instance of batch_map draws cannot be taken back.
  const bool alone = e && e->graph.instances.current() == Instances::kOutside;
  // Looking at the arguments is part of what walks and replays take.
  const bool walks_on_trial = alone && !only_memos && payoff.walks.is_trial(counts.walks);
  const bool may_be_timed = memos.is_steady() ? memos.is_to_be_timed() : walks_on_trial;
  const int64_t start = may_be_timed ? thread_clock() : 0;
  MemoFound found = alone ? memos.look(args, n, only_memos) : MemoFound();
  if (found.memo && !found.reviews && start && memos.is_to_be_timed() && !timed_statements.is_on())
    return call_with_memo(*e, start, args, n, found);
  if (found.memo) return walk(args, n, found, !only_memos && !rests);
  if (only_memos && memos.is_off()) give_up("it takes longer than the statements");
  if (rests || *off || (only_memos && !found.writes)) return nullptr;
  const bool trial_now = walks_on_trial && !timed_statements.is_on();
  return trial_now ? call_in_trial(*e, start ? start : thread_clock(), args, n) : walk(args, n, found);
}

// Is it a call in the statements of another one, which would have been remembered as a whole?
bool WalkedFunction::is_inside(const Engine& e) {
  const int depth = remaining_depth();
  const uint32_t generation = e.graph.generation();
  if (generation == rest.outermost.generation && depth < rest.outermost.depth) return true;
  rest.outermost = {generation, depth};
  return false;
}

void WalkedFunction::leave() {
  timed_statements.leave(this, payoff.timed ? *payoff.timed : payoff.walks);
  if (remaining_depth() >= rest.outermost.depth) rest.outermost = {};
}

PyObject* WalkedFunction::call_in_trial(Engine& e, int64_t start, PyObject* const* args, size_t n) {
  const WalkPayoff::Way way = payoff.walks.turn();
  if (way == WalkPayoff::kWays) {
    only_memos = payoff.walks.decide(counts.walks);
    return only_memos ? nullptr : walk(args, n);
  }
  return way == WalkPayoff::walked ? timed(e, payoff.walks, start, args, n, {})
                                   : run_statements(e, payoff.walks, way);
}

// By turns a replay, the statements with their regions, and the statements alone.
PyObject* WalkedFunction::call_with_memo(Engine& e, int64_t start, PyObject* const* args, size_t n,
                                         const MemoFound& found) {
  const WalkPayoff::Way way = payoff.memos.turn();
  if (way == WalkPayoff::walked) return timed(e, payoff.memos, start, args, n, found);
  if (way != WalkPayoff::kWays) return run_statements(e, payoff.memos, way);
  const WalkPayoff::Verdict verdict = payoff.memos.judge_memos();
  if (verdict == WalkPayoff::won) memos.approve();
  if (verdict != WalkPayoff::lost) return walk(args, n, found, !only_memos);
  memos.turn_off();
  return nullptr;
}

PyObject* WalkedFunction::run_statements(Engine& e, WalkPayoff& times, WalkPayoff::Way way) {
  payoff.timed = &times;
  timed_statements.begin(this, e, way == WalkPayoff::alone);
  return nullptr;
}

PyObject* WalkedFunction::timed(Engine& e, WalkPayoff& times, int64_t start, PyObject* const* args, size_t n,
                                const MemoFound& found) {
  const uint32_t size = e.graph.size();
  PyObject* made = walk(args, n, found, !found.memo);
  if (made)
    times.add(WalkPayoff::walked, static_cast<double>(elapsed_since(start) + around(tuning::kAroundWalk)),
              e.graph.size() - size);
  return made;
}

void WalkedFunction::give_up(const char* why) {
  off = why;
  memos.turn_off();
  for (const auto& restorer : std::exchange(restorers, {})) restorer->forget_walked_function();
}

PyObject* WalkedFunction::walk(PyObject* const* args, size_t n, MemoFound found, bool may_walk) {
  while (WalkProgram* program = find_program(code)) {
    PyObject* made =
        program->usable ? walker().run(*program, recording.get(), args, n, memos, found, may_walk) : nullptr;
    if (made || PyErr_Occurred()) {
      counts.hits += made != nullptr;
      if (!made || walker().was_replayed()) return made;
      ++counts.walks;
      rest.last = 0;
      if ((counts.nodes += walker().recorded()) == 0 && counts.walks >= tuning::kFirstTrial)
        give_up("it records nothing");
      return made;
    }
    if (!walker().has_walked()) return nullptr;
    found.memo = nullptr;  // it did not fit, and may be gone
    reason = walker().reason();
    const Owned function = walker().take_unknown();
    if (!program->usable || !function) break;
    const Owned spec = Owned::steal(PyObject_CallOneArg(resolve.get(), function.get()));
    if (!spec) throw PythonError();
    define_program(PyFunction_GET_CODE(function.get()), spec.get());
  }
  ++counts.misses;
  rest.last =
      std::min(2 * rest.last + 1, walker().is_learning() ? tuning::kLearningSkips : tuning::kWalkSkips);
  rest.left = rest.last;
  if (counts.hits == 0 &&
      counts.misses > (walker().is_learning() ? tuning::kLearningWalks : tuning::kRefusedWalks))
    give_up("it is always refused");
  return nullptr;
}

namespace {

// What the function returns, or `...`: then its statements run. With an argument by name, they have run and
// return it.
PyObject* call(PyObject* self, PyObject* const* args, size_t n, PyObject* names) {
  return guarded([&] {
    if (names) {
      core_of(self)->leave();
      return Owned(args[0]).release();
    }
    PyObject* made = core_of(self)->call(args, static_cast<size_t>(PyVectorcall_NARGS(n)));
    return made || PyErr_Occurred() ? made : Owned(Py_Ellipsis).release();
  });
}

PyObject* define(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n != 4 || !PyCode_Check(args[0]) || !PyDict_Check(args[2]))
    return PyErr_Format(PyExc_TypeError, "define(): expected code, program, regions, whether it is its own");
  return guarded([&] {
    if (args[3] == Py_True) core_of(self)->code = args[0];
    define_program(args[0], args[1], args[2]);
    return Owned(Py_None).release();
  });
}

constexpr PyCFunction statistics = plain([](PyObject* self) {
  const WalkedFunction& r = *core_of(self);
  return Py_BuildValue("{s:s,s:K,s:K,s:s,s:s,s:K,s:O}", "name", r.name.c_str(), "hits", r.counts.hits,
                       "misses", r.counts.misses, "refusal", r.reason, "off", r.off, "remembered",
                       r.memos.replays(), "only_remembered", r.only_memos ? Py_True : Py_False);
});

PyObject* reduce(PyObject* self, PyObject*) {
  return Py_BuildValue("O()", reinterpret_cast<PyObject*>(Py_TYPE(self)));
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
  const char* name = "";
  PyObject *resolve = nullptr, *recording = nullptr;
  int only_memos = 0;
  if (!PyArg_ParseTuple(args, "|sOOp:_WalkedFunction", &name, &resolve, &recording, &only_memos))
    return nullptr;
  return guarded([&] {
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) throw PythonError();
    auto* core = new WalkedFunction;
    core->name = name;
    core->resolve = Owned(resolve);
    core->recording = Owned(recording);
    core->only_memos = only_memos != 0;
    reinterpret_cast<PyWalkedFunction*>(self)->call = call;
    reinterpret_cast<PyWalkedFunction*>(self)->core = core;
    return self;
  });
}

void dealloc(PyObject* self) {
  delete core_of(self);
  Py_TYPE(self)->tp_free(self);
}

PyMethodDef methods[] = {
    {"define", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(define)), METH_FASTCALL,
     "define(code, program, regions, own)\n\nThe program of functions with this code; `regions`: a dict. "
     "`own`: the functions ask this object."},
    plain_method("__reduce__", reduce, nullptr),
    plain_method("statistics", statistics,
                 "statistics()\n\nHow often the function was recorded by one call."),
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject WalkedFunctionType =
    static_type({"dynet_compat._core._WalkedFunction",
                 "_WalkedFunction(name, resolve, recording, only_memos): a function, recorded by one call.",
                 sizeof(PyWalkedFunction), dealloc, methods, create, nullptr, Py_TPFLAGS_HAVE_VECTORCALL});

}  // namespace

void add_restorer(PyObject* walked_function, std::shared_ptr<CodeRestorer> restorer) {
  if (Py_TYPE(walked_function) == &WalkedFunctionType)
    core_of(walked_function)->restorers.push_back(std::move(restorer));
}

void add_walked_functions(PyObject* module) {
  WalkedFunctionType.tp_vectorcall_offset = offsetof(PyWalkedFunction, call);
  WalkedFunctionType.tp_call = PyVectorcall_Call;
  add_type(module, WalkedFunctionType);
}

}  // namespace dyc::py
