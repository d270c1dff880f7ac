// Maps of a column vector onto the simplex, or a part of it. x {n}xB.
#pragma once
#include "ops/element_loops.h"
#include "ops/op.h"
#include "ops/scratch.h"

namespace dyc {

namespace detail {

// The projection is max(0, (x - top) - tau); top is the largest x: differences from it lose no digits.
struct Threshold {
  float top, tau;
};

// NaN if an element is NaN or infinite upwards: the projection has no meaning then.
//
// Michelot's passes: with S the elements above tau, tau becomes (sum of S - 1) / |S| until S stays. The first
// tau, top - 1, is below the final one, and tau only rises, so S only shrinks.
template <class I>
DYC_INLINE Threshold simplex_threshold(const float* x, size_t n) {
  using V = typename I::V;
  const float top = max_run<I>(x, n), bad = __builtin_nanf("");
  const float nans = sum_run<I>(n, [&](size_t i, auto c) DYC_LAMBDA {
    return select(c.get(x + i) == c.get(x + i), V{}, fill<I>(1.f));
  });
  if (nans > 0 || !__builtin_isfinite(top)) return {top, bad};
  float tau = -1;
  for (float before = __builtin_inff();;) {
    const float count = sum_run<I>(
        n, [&](size_t i, auto c) DYC_LAMBDA { return select(c.get(x + i) - top > tau, fill<I>(1.f), V{}); });
    if (!(count < before)) return {top, tau};
    before = count;
    const float sum = sum_run<I>(n, [&](size_t i, auto c) DYC_LAMBDA {
      const auto z = c.get(x + i) - top;
      return select(z > tau, z, V{});
    });
    tau = (sum - 1) / count;
  }
}

}  // namespace detail

struct Sparsemax {
  static constexpr Meta meta = Meta::per_node("sparsemax", "sparsemax(x)", Reads::y);
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) {
    if (!s[0].column_like()) shape_error(s, "a column vector");
    return s[0];
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float* x = m.xb(0, b);
      float* y = m.yb(b);
      const auto t = detail::simplex_threshold<I>(x, m.xs(0));
      each<I>(m.xs(0), [&](size_t i, auto c) DYC_LAMBDA {
        const auto v = (c.get(x + i) - t.top) - t.tau;
        c.put(y + i, select(v <= 0.f, fill<I>(0.f), v));  // NaN stays
      });
    }
  }
  template <class I>  // dy minus its mean over the support; 0 elsewhere
  static void backward(const KernelArgs& m, uint32_t) {
    using V = typename I::V;
    const size_t n = m.xs(0);
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float *y = m.yb(b), *dy = m.dyb(b);
      float* dx = m.dxb(0, b);
      const float count = sum_run<I>(
          n, [&](size_t i, auto c) DYC_LAMBDA { return select(c.get(y + i) > 0.f, fill<I>(1.f), V{}); });
      const float sum = sum_run<I>(
          n, [&](size_t i, auto c) DYC_LAMBDA { return select(c.get(y + i) > 0.f, c.get(dy + i), V{}); });
      const float mean = sum / count;
      each<I>(n, [&](size_t i, auto c)
                     DYC_LAMBDA { c.add(dx + i, select(c.get(y + i) <= 0.f, V{}, c.get(dy + i) - mean)); });
    }
  }
};

// -q'x + sum_S (x_i^2 - tau^2) / 2 + |q|^2 / 2, with q uniform over the given labels (one listed twice counts
// twice), S and tau the support and threshold of sparsemax(x). The same labels for every batch item.
// x {n}xB -> {1}xB. attrs {number of labels}
struct SparsemaxLoss {
  static constexpr Meta meta = Meta::per_node("sparsemax_loss", "sparsemax_loss(x, q)", Reads::x);
  static constexpr Param params[] = {{"x"}, {"q_support", Param::indices}};
  static Dim shape(const ShapeArgs& s) {
    if (!s[0].column_like()) shape_error(s, "a column vector");
    return scalar_per_batch(s);
  }
  static void check(const KernelArgs& m, const char* op) {
    if (m.n_ids == 0) throw ValueError(text(op, "(): expected at least one label in q_support, got none"));
    for (uint32_t i = 0; i < m.n_ids; ++i)
      if (m.ids[i] >= m.xs(0))
        throw ValueError(text(op, "(): expected q_support[", i, "] < ", m.xs(0), ", got ", m.ids[i]));
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    using V = typename I::V;
    const float share = 1.f / static_cast<float>(m.n_ids);
    float squares = 0;  // |q|^2
    for (uint32_t i = 0; i < m.n_ids; ++i)
      for (uint32_t j = 0; j < m.n_ids; ++j)
        if (m.ids[i] == m.ids[j]) squares += share * share;
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float* x = m.xb(0, b);
      const auto t = detail::simplex_threshold<I>(x, m.xs(0));
      // Adding a constant to x changes nothing, so x - top takes the place of x.
      const float support = sum_run<I>(m.xs(0), [&](size_t i, auto c) DYC_LAMBDA {
        const auto z = c.get(x + i) - t.top;
        return select(z > t.tau, (z - t.tau) * (z + t.tau), V{});
      });
      float gold = 0;
      for (uint32_t i = 0; i < m.n_ids; ++i) gold += x[m.ids[i]] - t.top;
      *m.yb(b) = 0.5f * (support + squares) - share * gold + 0.f * t.tau;
    }
  }
  template <class I>  // dx = dy * (sparsemax(x) - q)
  static void backward(const KernelArgs& m, uint32_t) {
    const float share = 1.f / static_cast<float>(m.n_ids);
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float *x = m.xb(0, b), dy = *m.dyb(b);
      float* dx = m.dxb(0, b);
      const auto t = detail::simplex_threshold<I>(x, m.xs(0));
      each<I>(m.xs(0), [&](size_t i, auto c) DYC_LAMBDA {
        const auto v = (c.get(x + i) - t.top) - t.tau;
        c.add(dx + i, select(v <= 0.f, fill<I>(0.f), dy * v));
      });
      if_leader<I>([&]() DYC_LAMBDA {
        for (uint32_t i = 0; i < m.n_ids; ++i) dx[m.ids[i]] -= dy * share;
      });
    }
  }
};

// Softmax under upper bounds: the free elements share the remaining mass like a softmax; those above their
// bound are fixed at it; again, until none is. x, u {n}xB -> {n}xB
struct ConstrainedSoftmax {
  static constexpr Meta meta =
      Meta::per_node("constrained_softmax", "constrained_softmax(x, y)", Reads::x_and_y).by_one_thread();
  static constexpr Param params[] = {{"x"}, {"y"}};
  static Dim shape(const ShapeArgs& s) {
    if (!s[0].column_like() || !s[1].column_like() || s[0].rows() != s[1].rows())
      shape_error(s, "two column vectors of equal length");
    Dim r = s[0];
    r.bd = common_batch(s);
    return r;
  }
  static size_t scratch(const KernelArgs& m) {
    return 2 * scratch_bytes<float>(m.ys()) + scratch_bytes<unsigned char>(m.ys());
  }
  // y gets the result, z the free elements of x and -inf for the others, fixed 1 for the others.
  struct Free {  // the softmax of the free ones is exp(z - top) / sum
    float top, sum;
  };
  template <class I>
  static DYC_INLINE Free solve(const float* x, const float* u, float* y, float* z, unsigned char* fixed,
                               size_t n) {
    for (size_t i = 0; i < n; ++i) z[i] = x[i], fixed[i] = 0;
    float mass = 1;
    for (size_t free = n; free > 0;) {
      const float top = max_run<I>(z, n);
      const float sum =
          sum_run<I>(n, [&](size_t i, auto c) DYC_LAMBDA { return exp_of(c.get(z + i) - top); });
      float taken = 0;
      const size_t before = free;
      for (size_t i = 0; i < n; ++i) {
        if (fixed[i]) continue;
        y[i] = exp_of(x[i] - top) * (mass / sum);
        if (!(y[i] > u[i])) continue;
        y[i] = u[i];
        taken += u[i];
        z[i] = -__builtin_inff();
        fixed[i] = 1;
        --free;
      }
      if (free == before) return {top, sum};
      mass -= taken;
    }
    return {0, 1};
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t n = m.ys();
    ScratchArray<float> z(n);
    ScratchArray<unsigned char> fixed(n);
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      solve<I>(m.xb(0, b), m.xb(1, b), m.yb(b), z.get(), fixed.get(), n);
  }
  // With h = sum over the free ones of softmax_i dy_i: dx = y (dy - h) for the free ones, du = dy - h for the
  // fixed ones.
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    const size_t n = m.ys();
    ScratchArray<float> z(n), y(n);
    ScratchArray<unsigned char> fixed(n);
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float* dy = m.dyb(b);
      float *dx = m.dxb(arg, b), h = 0;
      const Free s = solve<I>(m.xb(0, b), m.xb(1, b), y.get(), z.get(), fixed.get(), n);
      for (size_t i = 0; i < n; ++i)
        if (!fixed[i]) h += exp_of(z[i] - s.top) / s.sum * dy[i];
      for (size_t i = 0; i < n; ++i) {
        if (fixed[i] != arg) continue;
        dx[i] += arg == 0 ? y[i] * (dy[i] - h) : dy[i] - h;
      }
    }
  }
};

// The ops of this file, in the order of their numbers.
using SimplexOps = OpList<Sparsemax, SparsemaxLoss, ConstrainedSoftmax>;

}  // namespace dyc
