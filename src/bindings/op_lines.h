// Which lines of the script recorded how many nodes outside regions, while somebody asks.
#pragma once
#include "bindings/expression.h"
#include "bindings/pybind_names.h"

namespace dyc::py {

void add_op_lines(pybind11::module_& m);

}  // namespace dyc::py
