// Instances of batch_map (fibers.py): each runs until it needs a value, then the next one runs.
#pragma once
#include <Python.h>

#include "exec/engine.h"

namespace dyc::py {

// In an instance: returns when all others wait too and the node is computed (or, while batch_map is
// cancelled, at once).
void wait_for_value(NodeId id);
// The same for all that the instance could see, up to this node. Returns what may still have to be computed.
std::vector<NodeId> wait_for_all(NodeId id);
// Before an input changes (kNone: before all is computed again): RuntimeError in the handler of a signal that
// runs in the middle of a computation and, in an instance, if others could notice.
void check_change(const char* call, NodeId id);

// Adds the functions that fibers.py is made of.
void add_fibers(PyObject* module);

}  // namespace dyc::py
