// Backward passes and updates that go on while the script records its next graph.
//
// backward() computes the loss, gives the graph to another thread (exec/backward_task.h) and leaves this one
// without a graph; update() is appended to that; renew_cg() begins the next graph at once. Whatever needs the
// old graph before that (gradient(), a value other than the loss, another op) waits and takes it back.
// Whatever reads or changes parameters, or computes, waits too: it calls wait_for_update() (compute.h).
//
// An error then comes late. So this is done only where nothing could catch it: the script would end there. It
// ends where somebody waits, with the line of the call that failed and by SystemExit, which `except
// Exception` leaves alone.
#pragma once
#include "bindings/expression.h"
#include "model/trainers.h"

namespace dyc::py {

// False: the pass is to be computed by the caller, for one of the reasons above, or because there is one
// thread only, the graph is too small to gain or too large to be kept beside the next one, somebody looks at
// the computation (profiles, checks of each value), or the script's steps were faster without
// (background_payoff.h).
bool backward_in_background(Engine& e, NodeId root, bool full);
// False: the update is to be made by the caller.
bool update_in_background(PyObject* trainer, Trainer& t, float scale);

// The graph that renew_cg() is about to renew: it need not be taken back.
Engine& engine_to_renew();
// Waits and takes back the graph that this thread has lent; null: it has lent none.
Engine* take_back_graph();
// Waits until nothing is computed in the background. `throws`: throws an error of that, in the main thread.
void wait_for_background(bool throws);
// The process ends: waits and shows an error that nobody has waited for.
void end_background();
// This thread, with its engine, is about to end.
void forget_background(Engine* e);

// A loss whose graph is lent: its value can be read without waiting.
struct LentLoss {
  float value;
  Dim dim;
};
const LentLoss* lent_loss(PyObject* expression);

// For tests: graphs of so many values are lent, also where errors could be caught; kBackgroundGraph: as
// usual.
void lend_always(uint64_t least);
bool is_lent();  // this thread's graph

}  // namespace dyc::py
