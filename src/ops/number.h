// Operators of an expression and a number, which each node keeps for itself. Losses that a script weighs by
// rewards, and sums that it divides by the lengths of sentences, share a launch so, whatever their numbers
// are. (The numbers of elementwise.h are attributes: where a number is the same for all nodes, its launch can
// be fused with others. graph/varying_numbers.h decides.)
#pragma once
#include "ops/element_loops.h"
#include "ops/elementwise.h"

namespace dyc {

// Op of elementwise.h. x {..}xB -> {..}xB
template <class Op>
struct WithOwnNumber {
  static constexpr Param params[] = {{"x"}, {"c", Param::number}};
  static constexpr Meta own_number(const char* name) {
    return Meta::per_node(name, Op::meta.formula, Op::meta.reads_x ? Reads::x_and_y : Reads::none).hide();
  }
  static Dim shape(const ShapeArgs& s) { return same_as_x(s); }
  template <class I>
  static void forward(const KernelArgs& m) {
    const float number = m.number();
    const float* x = m.x[0];
    float* y = m.out();
    each<I>(m.yd->size(), [=](size_t i, auto c) DYC_LAMBDA { c.put(y + i, Op::f(c.get(x + i), &number)); });
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    constexpr bool reads = Op::meta.reads_x;
    const float number = m.number();
    const float* dy = m.dy;
    const float *x = reads ? m.x[0] : dy, *y = reads ? m.y : dy;  // any where df reads neither
    float* dx = m.dx;
    each<I>(m.yd->size(), [=](size_t i, auto c) DYC_LAMBDA {
      c.add(dx + i, c.get(dy + i) * Op::df(c.get(x + i), c.get(y + i), &number));
    });
  }
};

struct ScaleByOwn : WithOwnNumber<Scale> {
  static constexpr Meta meta = own_number("scale_by_own");
};

struct AddOwn : WithOwnNumber<AddConst> {
  static constexpr Meta meta = own_number("add_own");
};

struct OwnMinus : WithOwnNumber<ConstMinus> {
  static constexpr Meta meta = own_number("own_minus");
};

struct OwnDiv : WithOwnNumber<ConstDiv> {
  static constexpr Meta meta = own_number("own_div");
};

// The ops of this file, in the order of their numbers.
using NumberOps = OpList<ScaleByOwn, AddOwn, OwnMinus, OwnDiv>;

}  // namespace dyc
