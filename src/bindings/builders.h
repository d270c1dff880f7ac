// RNN builders and RNNState for Python; add_builders() is in model.h.
#pragma once
#include <memory>

#include "bindings/expression.h"
#include "model/builders.h"

namespace dyc::py {

struct PyRnnState;

// What a Python builder object holds.
struct PyBuilder {
  virtual ~PyBuilder() = default;
  std::unique_ptr<RnnBuilder> core;
  const char* name = "_RNNBuilder";  // of the class
  PyRnnState* start = nullptr;       // the initial state of the last graph; not owned: it owns its builder
};

// A state of a sequence. Takes a reference to its builder and to the state before it.
struct PyRnnState {
  PyObject_HEAD PyObject* builder;
  PyBuilder* b;  // in `builder`
  PyRnnState* prev;
  RnnBuilder::Step step;
  NodeId out;                            // kNone at the start
  uint32_t generation, graph, renewals;  // of the graph, as in PyExpression
};

// Are its nodes in that graph? The state is not an empty one.
inline bool is_current(const PyRnnState* s, Engine& e) {
  return s->generation == e.graph.generation() ||
         (s->graph == e.graph.number && s->b->core->keeps(e, s->step, s->generation));
}

PyBuilder* builder_of(PyObject* object);  // null: the object is no builder

extern PyTypeObject RnnStateType;  // RNNState

// The state that initial_state() returns.
PyRnnState* start_state(PyObject* builder, PyBuilder* b, bool update);
// Is the object a builder whose initial_state() is the package's own?
bool starts_plainly(PyObject* object);

// Is the builder's method of this name the package's own, which sets dropout rates and nothing else?
bool sets_dropout_plainly(PyObject* object, PyObject* name);

// ValueError, and false, if the state's graph is gone.
bool check_state(const PyRnnState* s, const char* call);

// The state after one more step, which was recorded already. New reference.
PyObject* next_state(PyRnnState* from, RnnBuilder::Step step);

// Adds RNNState to the module.
void add_state_type(PyObject* module);

}  // namespace dyc::py
