// Leaves: inputs and constants, parameters, random draws.
#pragma once
#include "ops/op.h"

namespace dyc {

// Values written when recorded. attrs: kind-independent; the recorder is given the shape.
struct Input {
  static constexpr Meta meta = Meta::no_launch(OpKind::input, "input", "input");
  static constexpr Param params[] = {{"values"}};
};

// zeros, ones, constant: like an input that can never be set again, so equal ones are one value.
struct Constant {
  static constexpr Meta meta = Meta::no_launch(OpKind::input, "constant", "constant");
  static constexpr Param params[] = {{"value"}};
};

// A Parameters object (or a LookupParameters used as a whole table). attrs {uid, update}.
struct ParameterNode {
  static constexpr Meta meta = Meta::no_launch(OpKind::parameter, "parameter", "parameter");
  static constexpr Param params[] = {{"p"}};
};

enum class DrawKind : uint32_t { normal, uniform, bernoulli, gumbel };

// attrs {kind, a, b}: normal(mean, std), uniform(left, right), bernoulli(p, scale), gumbel.
struct Draw {
  static constexpr Meta meta = Meta::no_launch(OpKind::draw, "random", "random");
  static constexpr Param params[] = {{"dim"}};
};

// Row(s) of a LookupParameters. attrs {uid, update, number of ids or 0}; ids are checked when computed.
struct Lookup {
  static constexpr Meta meta = Meta::of(OpKind::lookup, "lookup", "p[index]", Reads::x).hide();
  static constexpr Param params[] = {{"p"}, {"index", Param::index, 0}};
};

// A contiguous part of its argument's memory with another shape: recorded by builders.
struct SubView {
  static constexpr Meta meta = Meta::no_launch(OpKind::view, "part", "part of x");
  static constexpr Param params[] = {{"x"}};
};

// The ops of this file, in the order of their numbers.
using InputOps = OpList<Input, Constant, ParameterNode, Draw, Lookup, SubView>;

}  // namespace dyc
