// Leaves: inputs and constants, parameters, random draws.
#pragma once
#include "ops/op.h"

namespace dyc {

// Values written when recorded. attrs: kind-independent; the recorder is given the shape.
struct Input {
  static constexpr Meta meta{.name = "input",
                             .formula = "input",
                             .kind = OpKind::input,
                             .batch = Batch::none,
                             .nondiff = true,
                             .hidden = true};
  static constexpr Param params[] = {{"values"}};
};

// zeros, ones, constant: like an input that can never be set again, so equal ones are one value.
struct Constant {
  static constexpr Meta meta{.name = "constant",
                             .formula = "constant",
                             .kind = OpKind::input,
                             .batch = Batch::none,
                             .nondiff = true,
                             .hidden = true};
  static constexpr Param params[] = {{"value"}};
};

// A Parameters object (or a LookupParameters used as a whole table). attrs {uid, update}.
struct ParameterNode {
  static constexpr Meta meta{.name = "parameter",
                             .formula = "parameter",
                             .kind = OpKind::parameter,
                             .batch = Batch::none,
                             .hidden = true};
  static constexpr Param params[] = {{"p"}};
};

enum class DrawKind : uint32_t { normal, uniform, bernoulli, gumbel };

// attrs {kind, a, b}: normal(mean, std), uniform(left, right), bernoulli(p, scale), gumbel.
struct Draw {
  static constexpr Meta meta{.name = "random",
                             .formula = "random",
                             .kind = OpKind::draw,
                             .batch = Batch::none,
                             .nondiff = true,
                             .hidden = true};
  static constexpr Param params[] = {{"dim"}};
};

// Row(s) of a LookupParameters. attrs {uid, update, number of ids or 0}; ids are checked when computed.
struct Lookup {
  static constexpr Meta meta{.name = "lookup",
                             .formula = "p[index]",
                             .kind = OpKind::lookup,
                             .batch = Batch::ragged,
                             .hidden = true,
                             .reads_y = false};
  static constexpr Param params[] = {{"p"}, {"index", Param::index, 0}};
};

// A contiguous part of its argument's memory with another shape: recorded by builders.
struct SubView {
  static constexpr Meta meta{
      .name = "part", .formula = "part of x", .kind = OpKind::view, .batch = Batch::none, .hidden = true};
  static constexpr Param params[] = {{"x"}};
};

// The ops of this file, in the order of their numbers.
using InputOps = OpList<Input, Constant, ParameterNode, Draw, Lookup, SubView>;

}  // namespace dyc
