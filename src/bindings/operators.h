// What the Expression type does for +, [] and their kin.
#pragma once
#include "bindings/expression.h"

namespace dyc::py {

extern PyNumberMethods expression_numbers;
extern PyMappingMethods expression_mapping;
extern PySequenceMethods expression_sequence;

// esum([]) and average([]) are 0: a process of a job may have no instance of a minibatch. (functions.cc)
extern bool allow_empty_sums;

}  // namespace dyc::py
