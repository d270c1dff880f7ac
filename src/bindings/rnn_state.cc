// RNNState: hand-written, because a step of a small network costs less than a call through pybind11.
#include <utility>

#include "base/error.h"
#include "bindings/arguments.h"
#include "bindings/builders.h"
#include "bindings/compute.h"
#include "bindings/owned.h"
#include "bindings/signatures.h"
#include "bindings/tuning.h"

namespace dyc::py {

namespace {

// Freed states, for the next ones.
PyRnnState* free_states[tuning::kFreeStates];
size_t n_free = 0;

PyRnnState* self_of(PyObject* object) { return reinterpret_cast<PyRnnState*>(object); }

PyRnnState* allocate() {
  if (n_free == 0) return PyObject_New(PyRnnState, &RnnStateType);
  PyRnnState* s = free_states[--n_free];
  return reinterpret_cast<PyRnnState*>(PyObject_Init(reinterpret_cast<PyObject*>(s), &RnnStateType));
}

void fill(PyRnnState* s, PyObject* builder, PyBuilder* b, PyRnnState* prev, RnnBuilder::Step step,
          NodeId out) {
  Py_INCREF(builder);
  Py_XINCREF(prev);
  s->builder = builder;
  s->b = b;
  s->prev = prev;
  s->step = step;
  s->out = out;
  const Graph& g = engine().graph;
  s->generation = g.generation();
  s->graph = g.number;
  s->renewals = g.renewals();
}

PyObject* make_state(PyRnnState* from, RnnBuilder::Step step) {
  PyRnnState* s = allocate();
  if (s) fill(s, from->builder, from->b, from, step, from->b->core->output(engine(), step));
  return reinterpret_cast<PyObject*>(s);
}

}  // namespace

PyObject* next_state(PyRnnState* from, RnnBuilder::Step step) { return make_state(from, step); }

namespace {

// Frees one state and returns the one before it, whose reference is the caller's.
PyRnnState* release(PyRnnState* s) {
  PyRnnState* prev = s->prev;
  if (s->b && s->b->start == s) s->b->start = nullptr;
  PyObject* builder = std::exchange(s->builder, nullptr);
  if (Py_TYPE(s) == &RnnStateType && n_free < tuning::kFreeStates) free_states[n_free++] = s;
  else Py_TYPE(s)->tp_free(reinterpret_cast<PyObject*>(s));
  Py_XDECREF(builder);
  return prev;
}

// A long sequence is a long chain of states: no recursion.
void dealloc(PyObject* object) {
  PyRnnState* s = release(self_of(object));
  while (s && Py_TYPE(s) == &RnnStateType && Py_REFCNT(s) == 1) s = release(s);
  Py_XDECREF(s);
}

}  // namespace

bool check_state(const PyRnnState* s, const char* call) {
  if (!s->b) {
    PyErr_Format(PyExc_ValueError, "%s(): expected a state made by initial_state(), got an empty RNNState",
                 call);
    return false;
  }
  Engine* e = engine_or_error();
  if (!e) return false;
  if (is_current(s, *e)) return true;
  if (s->graph != e->graph.number)
    PyErr_Format(StaleError,
                 "%s(): expected a state of this thread's graph, got one of %s; call initial_state() in this "
                 "thread",
                 call, whose_graph(s->graph));
  else if (s->renewals != e->graph.renewals())
    PyErr_Format(
        StaleError,
        "%s(): expected a state of the current graph (%u), got one of graph %u; call initial_state() again "
        "after renew_cg()",
        call, e->graph.renewals(), s->renewals);
  else
    PyErr_Format(StaleError,
                 "%s(): expected a state of the current graph, got one that cg_revert() took back", call);
  return false;
}

namespace {

PyObject* expression_tuple(const NodeId* ids, uint32_t n) {
  PyObject* tuple = PyTuple_New(n);
  if (!tuple) return nullptr;
  for (uint32_t i = 0; i < n; ++i) {
    PyObject* e = make_expression(ids[i]);
    if (!e) {
      Py_DECREF(tuple);
      return nullptr;
    }
    PyTuple_SET_ITEM(tuple, i, e);
  }
  return tuple;
}

PyObject* add_input(PyObject* object, PyObject* x) {
  PyRnnState* s = self_of(object);
  NodeId id;
  if (!check_state(s, "add_input") || !to_node(x, "add_input", &id)) return nullptr;
  try {
    return make_state(s, s->b->core->add_input(engine(), s->step, id));
  } catch (...) {
    set_error();
    return nullptr;
  }
}

// Of a list of Expressions, or of an Expression, whose rows these are: DyNet iterates over either.
std::vector<NodeId> rows_or_list(PyObject* xs, const char* call) {
  if (!is_expression(xs)) return as_nodes(xs, call);
  const Owned rows = Owned::steal(PySequence_List(xs));
  if (!rows) throw PythonError();
  return as_nodes(rows.get(), call);
}

// result(step) -> object after each input in turn; returns the list of objects. They are made when all steps
// are recorded, as making them may run anything.
template <class F>
PyObject* for_inputs(PyRnnState* s, PyObject* xs, const char* call, F&& result) {
  return guarded([&]() -> PyObject* {
    const std::vector<NodeId> ids = rows_or_list(xs, call);
    if (ids.empty()) return PyList_New(0);
    if (!check_state(s, call)) return nullptr;
    const RnnBuilder::Step first = s->b->core->add_inputs(engine(), s->step, ids);
    return list_of_recorded(ids.size(), call,
                            [&](size_t i) { return result(first + static_cast<RnnBuilder::Step>(i)); });
  });
}

PyObject* add_inputs(PyObject* object, PyObject* xs) {
  PyRnnState* from = self_of(object);
  return for_inputs(self_of(object), xs, "add_inputs", [&](RnnBuilder::Step step) {
    PyObject* next = make_state(from, step);
    from = self_of(next);  // kept alive by the list
    return next;
  });
}

PyObject* transduce(PyObject* object, PyObject* xs) {
  PyRnnState* s = self_of(object);
  return for_inputs(s, xs, "transduce", [&](RnnBuilder::Step step) {
    return make_expression(s->b->core->output(engine(), step));
  });
}

PyObject* output(PyObject* object, PyObject*) {
  const PyRnnState* s = self_of(object);
  if (s->out == kNone) Py_RETURN_NONE;
  if (!engine_or_error()) return nullptr;
  PyObject* e = make_expression(s->out);
  if (!e) return nullptr;
  auto* p = reinterpret_cast<PyExpression*>(e);
  p->generation = s->generation;
  p->graph = s->graph;
  p->renewals = s->renewals;
  return e;
}

PyObject* h(PyObject* object, PyObject*) {
  const PyRnnState* s = self_of(object);
  if (!check_state(s, "h")) return nullptr;
  if (s->step == RnnBuilder::kStart) return PyTuple_New(0);
  return expression_tuple(s->b->core->h(engine(), s->step), s->b->core->layers());
}

PyObject* all_states(PyObject* object, PyObject*) {
  const PyRnnState* s = self_of(object);
  if (!check_state(s, "s")) return nullptr;
  if (s->step == RnnBuilder::kStart) return PyTuple_New(0);
  return expression_tuple(s->b->core->nodes(engine(), s->step), s->b->core->state_size());
}

PyObject* or_none(PyObject* object) {
  if (!object) Py_RETURN_NONE;
  Py_INCREF(object);
  return object;
}

PyObject* prev(PyObject* object, PyObject*) {
  return or_none(reinterpret_cast<PyObject*>(self_of(object)->prev));
}
PyObject* builder(PyObject* object, PyObject*) { return or_none(self_of(object)->builder); }

using Setter = RnnBuilder::Step (RnnBuilder::*)(Engine&, const std::vector<NodeId>&);

PyObject* set_state(PyObject* object, PyObject* args, PyObject* kwargs, const char* call, const char* format,
                    Setter set) {
  PyRnnState* s = self_of(object);
  static const char* const names[] = {"es", nullptr};
  PyObject* es = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, const_cast<char**>(names), &es)) return nullptr;
  if (!check_state(s, call)) return nullptr;
  return guarded([&] {
    const std::vector<NodeId> ids = es == Py_None ? std::vector<NodeId>() : rows_or_list(es, call);
    return make_state(s, (s->b->core.get()->*set)(engine(), ids));
  });
}

PyObject* set_h(PyObject* self, PyObject* args, PyObject* kwargs) {
  return set_state(self, args, kwargs, "set_h", "|O:set_h", &RnnBuilder::set_h);
}

PyObject* set_s(PyObject* self, PyObject* args, PyObject* kwargs) {
  return set_state(self, args, kwargs, "set_s", "|O:set_s", &RnnBuilder::set_s);
}

// RNNState(builder, state_idx=-1, prev_state=None, out=None): a state by its number, as scripts for DyNet may
// do.
PyObject* create(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"builder", "state_idx", "prev_state", "out", nullptr};
  PyObject *builder, *prev = Py_None, *out = Py_None;
  int step = RnnBuilder::kStart;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|iOO:RNNState", const_cast<char**>(names), &builder, &step,
                                   &prev, &out))
    return nullptr;
  return guarded([&]() -> PyObject* {
    if (prev != Py_None && !PyObject_TypeCheck(prev, &RnnStateType))
      throw TypeError(text("RNNState(): expected an RNNState for prev_state, got ", type_name(prev)));
    PyBuilder* b = builder_of(builder);
    if (!b) throw TypeError(text("RNNState(): expected a builder, got ", type_name(builder)));
    if (!b->core || !b->core->started(engine()))
      throw ValueError("RNNState(): expected initial_state() of the builder before, in the current graph");
    if (step < RnnBuilder::kStart || step >= b->core->steps(engine()))
      throw ValueError(
          text("RNNState(): expected -1 <= state_idx < ", b->core->steps(engine()), ", got ", step));
    PyRnnState* s = self_of(type->tp_alloc(type, 0));
    if (s)
      fill(s, builder, b, prev == Py_None ? nullptr : self_of(prev), step,
           step == RnnBuilder::kStart ? kNone : b->core->output(engine(), step));
    return reinterpret_cast<PyObject*>(s);
  });
}

#define KEYWORDS(f) \
  reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f)), METH_VARARGS | METH_KEYWORDS
PyMethodDef methods[] = {
    fast_method("add_input", one_argument<"RNNState", "x", add_input>, "add_input(x)"),
    fast_method("add_inputs", one_argument<"RNNState", "xs", add_inputs>, "add_inputs(xs)"),
    fast_method("transduce", one_argument<"RNNState", "xs", transduce>, "transduce(xs)"),
    plain_method("output", output),
    plain_method("h", h),
    plain_method("s", all_states),
    plain_method("prev", prev),
    plain_method("b", builder),
    {"set_h", KEYWORDS(set_h), "set_h(es=None)"},
    {"set_s", KEYWORDS(set_s), "set_s(es=None)"},
    {nullptr, nullptr, 0, nullptr}};
#undef KEYWORDS

}  // namespace

PyTypeObject RnnStateType = static_type(
    {"_dynet.RNNState",
     "RNNState(builder, state_idx=-1, prev_state=None, out=None): a state of a sequence fed to an RNN "
     "builder. States form a tree: any of them may be continued.",
     sizeof(PyRnnState), dealloc, methods, create});

PyRnnState* start_state(PyObject* builder, PyBuilder* b, bool update) {
  if (!b->core->started(engine())) {
    b->core->start(engine(), update);
  }
  // The last initial state may belong to an earlier graph, or to that of another thread.
  if (b->start && is_current(b->start, engine())) {
    Py_INCREF(b->start);
    return b->start;
  }
  PyRnnState* s = allocate();
  if (!s) throw PythonError();
  fill(s, builder, b, nullptr, RnnBuilder::kStart, kNone);
  return b->start = s;
}

void add_state_type(PyObject* module) {
  RnnStateType.tp_repr = described;
  add_type(module, RnnStateType);
}

}  // namespace dyc::py
