// Which operators on an expression and a number (`x / n`) get other numbers all the time?
//
// A number is an attribute of the op, so that nodes with other numbers have other signatures and launches, as
// have those that read them. Once an operator has met more than a few numbers beside arguments of one site,
// its nodes keep their numbers for themselves (ops/number.h). That begins with the next graph, so that it
// does not matter which nodes of a graph were recorded first.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "graph/tuning.h"
#include "ops/table.h"

namespace dyc {

// The op that keeps its number in the node; other ops: themselves.
constexpr OpId with_own_number(OpId op) {
  return op == op_id<Scale>        ? op_id<ScaleByOwn>
         : op == op_id<AddConst>   ? op_id<AddOwn>
         : op == op_id<ConstMinus> ? op_id<OwnMinus>
         : op == op_id<ConstDiv>   ? op_id<OwnDiv>
                                   : op;
}

// The op whose number is an attribute; other ops: themselves.
constexpr OpId with_shared_number(OpId op) {
  for (const OpId shared : {op_id<Scale>, op_id<AddConst>, op_id<ConstMinus>, op_id<ConstDiv>})
    if (with_own_number(shared) == op) return shared;
  return op;
}

// Is its number an attribute that could be the node's own?
constexpr bool may_own_number(OpId op) { return with_own_number(op) != op; }

class VaryingNumbers {
 public:
  // An op is recorded on an argument of that site, with a number. Are its numbers the nodes' own?
  bool vary(OpId op, uint32_t site, uint32_t number) {
    if (always) return *always;
    Numbers& known = of_sites_[uint64_t{op} << 32 | site];
    if (known.count > tuning::kFewNumbers) return known.vary;
    for (uint32_t i = 0; i < known.count; ++i)
      if (known.few[i] == number) return false;
    if (known.count < tuning::kFewNumbers) known.few[known.count] = number;
    else found_ = true;
    ++known.count;
    return false;
  }
  // A graph begins. True: more numbers vary than before.
  bool renew() {
    if (!found_) return false;
    for (auto& [site, numbers] : of_sites_) numbers.vary = numbers.count > tuning::kFewNumbers;
    found_ = false;
    return true;
  }

  // Sites have new numbers.
  void clear() { of_sites_.clear(); }

  std::optional<bool> always;  // for tests that compare graphs of one process

 private:
  struct Numbers {
    std::array<uint32_t, tuning::kFewNumbers> few = {};
    uint32_t count = 0;
    bool vary = false;
  };
  std::unordered_map<uint64_t, Numbers> of_sites_;  // by op and site
  bool found_ = false;                              // in this graph
};

}  // namespace dyc
