// What a program may look at: the nodes of the graph, the time of the ops; and hooks for the Python part.
#pragma once
#include "bindings/pybind_names.h"

namespace dyc::py {

void add_debug(pybind11::module_& m);

}  // namespace dyc::py
