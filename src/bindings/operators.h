// What the Expression type does for +, [] and their kin.
#pragma once
#include "bindings/expression.h"

namespace dyc::py {

extern PyNumberMethods expression_numbers;
extern PyMappingMethods expression_mapping;
extern PySequenceMethods expression_sequence;

// The ops that +, -, * and / record: of two expressions, of an expression and a number, of a number and an
// expression.
enum class BinaryOperator : uint8_t { add, subtract, multiply, divide };
NodeId record_operator(BinaryOperator which, NodeId a, NodeId b);
NodeId record_operator(BinaryOperator which, NodeId a, float b);
NodeId record_operator(BinaryOperator which, float a, NodeId b);

// Is it dy.lookup()? (parameters.cc)
bool is_lookup(PyObject* function);

// Is it the function that concatenates pairs of expressions? (inputs.cc)
bool concatenates_pairs(PyObject* function);

// Is it dy.inputVector(), which copies the numbers of its argument into a node? And may it take this object,
// so that neither code of the script nor another thread runs: a list or tuple of numbers? (inputs.cc)
bool copies_data(PyObject* function);
bool is_plain_data(PyObject* object);

// esum([]) and average([]) are 0: a process of a job may have no instance of a minibatch. (functions.cc)
extern bool allow_empty_sums;

}  // namespace dyc::py
