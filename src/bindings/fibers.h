// Instances of batch_map (fibers.py): each runs until it needs a value, then the next one runs.
#pragma once
#include <Python.h>

#include "exec/engine.h"

namespace dyc::py {

// In an instance: suspends it until all instances wait for values and the node has been computed. While
// batch_map is being cancelled it returns at once. `reads`: the host wants the value itself.
void wait_for_value(NodeId id, bool reads);
// The same for all nodes up to this one that the instance can refer to. Returns those still to be computed.
std::vector<NodeId> wait_for_all(NodeId id);
// To be called before an input is set (kNone: before everything is computed again). Throws RuntimeError in a
// signal handler that interrupts a computation, and in an instance if other instances read the input.
void check_change(const char* call, NodeId id);

// Adds the functions that fibers.py is made of.
void add_fibers(PyObject* module);

}  // namespace dyc::py
