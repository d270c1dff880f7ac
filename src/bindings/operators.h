// What the Expression type does for +, [] and their kin.
#pragma once
#include "bindings/expression.h"

namespace dyc::py {

extern PyNumberMethods expression_numbers;
extern PyMappingMethods expression_mapping;
extern PySequenceMethods expression_sequence;

}  // namespace dyc::py
