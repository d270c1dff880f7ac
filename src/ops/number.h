// Operators of an expression of one element and a number, which each node keeps for itself. Losses that a
// script weighs by rewards or divides by lengths share a launch so, whatever their numbers are. (Larger
// expressions have the numbers of elementwise.h, which are attributes: there a number is mostly the same for
// all nodes, and its launch can be fused with others.)
#pragma once
#include "ops/element_loops.h"
#include "ops/elementwise.h"

namespace dyc {

// Op of elementwise.h for each item of the batch. x {1}xB -> {1}xB
template <class Op>
struct OfElementAndNumber {
  static constexpr Param params[] = {{"x"}, {"c", Param::number}};
  static constexpr Meta of_element(const char* name) {
    return Meta::per_node(name, Op::meta.formula, Op::meta.reads_x ? Reads::x_and_y : Reads::none).hide();
  }
  static Dim shape(const ShapeArgs& s) {
    if (s[0].batch_size() != 1) shape_error(s, "one element");
    return s[0];
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const float number = m.number();
    const float* x = m.x[0];
    float* y = m.out();
    each<I>(m.yd->bd, [=](size_t i, auto c) DYC_LAMBDA { c.put(y + i, Op::f(c.get(x + i), &number)); });
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    constexpr bool reads = Op::meta.reads_x;
    const float number = m.number();
    const float* dy = m.dy;
    const float *x = reads ? m.x[0] : dy, *y = reads ? m.y : dy;  // any where df reads neither
    float* dx = m.dx;
    each<I>(m.yd->bd, [=](size_t i, auto c) DYC_LAMBDA {
      c.add(dx + i, c.get(dy + i) * Op::df(c.get(x + i), c.get(y + i), &number));
    });
  }
};

struct ScaleElement : OfElementAndNumber<Scale> {
  static constexpr Meta meta = of_element("scale_element");
};

struct AddToElement : OfElementAndNumber<AddConst> {
  static constexpr Meta meta = of_element("add_to_element");
};

struct MinusElement : OfElementAndNumber<ConstMinus> {
  static constexpr Meta meta = of_element("minus_element");
};

struct DivByElement : OfElementAndNumber<ConstDiv> {
  static constexpr Meta meta = of_element("div_by_element");
};

// The ops of this file, in the order of their numbers.
using NumberOps = OpList<ScaleElement, AddToElement, MinusElement, DivByElement>;

}  // namespace dyc
