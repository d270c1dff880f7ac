// Reductions. Those over lists of dimensions take attrs that end in {b, n, d1 ... dn}: b = 1 reduces the
// batch too.
#pragma once
#include "ops/element_loops.h"
#include "ops/op.h"

namespace dyc {

// ---- over all elements of a batch item: {..}xB -> {1}xB

struct SumElems {
  static constexpr Meta meta = Meta::per_node("sum_elems", "sum(x)", Reads::none);
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) { return scalar_per_batch(s); }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t n = m.xs(0);
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float* x = m.xb(0, b);
      *m.yb(b) = sum_run<I>(n, [&](size_t i, auto c) DYC_LAMBDA { return c.get(x + i); });
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const size_t n = m.xs(0);
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      float* dx = m.dxb(0, b);
      const auto d = fill<I>(*m.dyb(b));
      each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { c.add(dx + i, d); });
    }
  }
};

template <class I>
DYC_INLINE float sum_squares(const float* x, size_t n) {
  return sum_run<I>(n, [&](size_t i, auto c) DYC_LAMBDA {
    const auto v = c.get(x + i);
    return v * v;
  });
}
// dx += k * x
template <class I>
DYC_INLINE void add_scaled(float* dx, const float* x, float k, size_t n) {
  each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { c.add(dx + i, k * c.get(x + i)); });
}

struct SquaredNorm {
  static constexpr Meta meta = Meta::per_node("squared_norm", "sum(x^2)", Reads::x);
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) { return scalar_per_batch(s); }
  template <class I>
  static void forward(const KernelArgs& m) {
    for (uint32_t b = 0; b < m.yd->bd; ++b) *m.yb(b) = sum_squares<I>(m.xb(0, b), m.xs(0));
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    for (uint32_t b = 0; b < m.yd->bd; ++b) add_scaled<I>(m.dxb(0, b), m.xb(0, b), 2.f * *m.dyb(b), m.xs(0));
  }
};

struct L2Norm {
  static constexpr Meta meta = Meta::per_node("l2_norm", "sqrt(sum(x^2))", Reads::x_and_y);
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) { return scalar_per_batch(s); }
  template <class I>
  static void forward(const KernelArgs& m) {
    for (uint32_t b = 0; b < m.yd->bd; ++b) *m.yb(b) = sqrt_of(sum_squares<I>(m.xb(0, b), m.xs(0)));
  }
  template <class I>  // NaN where the norm is 0
  static void backward(const KernelArgs& m, uint32_t) {
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      add_scaled<I>(m.dxb(0, b), m.xb(0, b), *m.dyb(b) / *m.yb(b), m.xs(0));
  }
};

// ---- over chosen dimensions

// attrs {b, n, d1 ... dn}
DYC_INLINE ReducePlan reduce_plan(const KernelArgs& m, const uint32_t* attrs) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < attrs[1]; ++i) mask |= 1u << attrs[2 + i];
  return ReducePlan(*m.xd[0], mask, attrs[0]);
}

inline Dim reduced_shape(const ShapeArgs& s, const uint32_t* attrs) {
  const Dim& x = s[0];
  const uint32_t n = attrs[1];
  if (x.nd > 3) shape_error(s, "at most 3 dimensions");
  if (n > 2) shape_error(s, text("at most 2 dimensions to reduce, not ", n));
  if (n == 0 && !attrs[0]) shape_error(s, "a dimension to reduce, or b=True");
  uint32_t mask = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t d = attrs[2 + i];
    if (d >= x.nd) shape_error(s, text("every d to be a dimension of the argument, not ", d));
    if (mask >> d & 1) shape_error(s, text("no dimension twice in d, not ", d));
    mask |= 1u << d;
  }
  Dim r;
  for (uint32_t i = 0; i < x.nd; ++i)
    if (!(mask >> i & 1)) r.d[r.nd++] = x.d[i];
  if (r.nd == 0) r.d[r.nd++] = 1;
  r.bd = attrs[0] ? 1 : x.bd;
  return r;
}

// sum_dim, sum_batches (no d, b = 1). attrs {b, n, d1 ... dn}
struct SumDim {
  static constexpr Meta meta = Meta::per_node("sum_dim", "sum(x, d)", Reads::none).hide();
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) { return reduced_shape(s, s.attrs); }
  template <class I>
  static void forward(const KernelArgs& m) {
    each_result<I>(reduce_plan(m, m.attrs), [&](auto lanes, size_t y) DYC_LAMBDA {
      lanes.put(m.out() + y, sum_lanes<I>(lanes, m.x[0], [](auto v) DYC_LAMBDA { return v; }));
    });
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    each_result<I>(reduce_plan(m, m.attrs), [&](auto lanes, size_t y) DYC_LAMBDA {
      const auto g = lanes.get(m.dy + y);
      lanes.visit([&](size_t i, auto c) DYC_LAMBDA { c.add(m.dx + i, g); });
    });
  }
};

template <class V>
DYC_INLINE V int_power(V x, uint32_t r) {
  V p = 1.f - V{};
  for (; r; r >>= 1, x *= x)
    if (r & 1) p *= x;
  return p;
}

// mean of x^r: mean_dim, mean_elems, mean_batches (r = 1), moment_dim, moment_elems, moment_batches.
// attrs {r, divisor or 0 for the number of elements, b, n, d1 ... dn}
struct MomentDim {
  static constexpr Meta meta = Meta::per_node("moment_dim", "mean(x^r, d)", Reads::x).hide();
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) {
    if (s.attrs[0] < 1) shape_error(s, "r >= 1, not 0");
    return reduced_shape(s, s.attrs + 2);
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const ReducePlan p = reduce_plan(m, m.attrs + 2);
    const float n = static_cast<float>(m.attrs[1] ? m.attrs[1] : p.count);
    const uint32_t r = m.attrs[0];
    each_result<I>(p, [&](auto lanes, size_t y) DYC_LAMBDA {
      lanes.put(m.out() + y,
                sum_lanes<I>(lanes, m.x[0], [&](auto v) DYC_LAMBDA { return int_power(v, r); }) / n);
    });
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const ReducePlan p = reduce_plan(m, m.attrs + 2);
    const float n = static_cast<float>(m.attrs[1] ? m.attrs[1] : p.count);
    const uint32_t r = m.attrs[0];
    each_result<I>(p, [&](auto lanes, size_t y) DYC_LAMBDA {
      const auto g = lanes.get(m.dy + y) * (static_cast<float>(r) / n);
      lanes.visit([&](size_t i, auto c)
                      DYC_LAMBDA { c.add(m.dx + i, g * int_power(c.get(m.x[0] + i), r - 1)); });
    });
  }
};

// Population standard deviation: std_dim, std_elems, std_batches. attrs {b, n, d1 ... dn}
struct StdDim {
  static constexpr Meta meta = Meta::per_node("std_dim", "std(x, d)", Reads::x_and_y).hide();
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) { return reduced_shape(s, s.attrs); }
  template <class I, class L>
  static DYC_INLINE typename I::V mean(const L& lanes, const KernelArgs& m, float n) {
    return sum_lanes<I>(lanes, m.x[0], [](auto v) DYC_LAMBDA { return v; }) / n;
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const ReducePlan p = reduce_plan(m, m.attrs);
    const float n = static_cast<float>(p.count);
    each_result<I>(p, [&](auto lanes, size_t y) DYC_LAMBDA {
      const auto mu = mean<I>(lanes, m, n);
      const auto var =
          sum_lanes<I>(lanes, m.x[0], [&](auto v) DYC_LAMBDA { return (v - mu) * (v - mu); }) / n;
      lanes.put(m.out() + y, sqrt_of(var));
    });
  }
  template <class I>  // NaN where the deviation is 0
  static void backward(const KernelArgs& m, uint32_t) {
    const ReducePlan p = reduce_plan(m, m.attrs);
    const float n = static_cast<float>(p.count);
    each_result<I>(p, [&](auto lanes, size_t y) DYC_LAMBDA {
      const auto mu = mean<I>(lanes, m, n);
      const auto g = lanes.get(m.dy + y) / (n * lanes.get(m.y + y));
      lanes.visit([&](size_t i, auto c) DYC_LAMBDA { c.add(m.dx + i, g * (c.get(m.x[0] + i) - mu)); });
    });
  }
};

// ---- along one dimension

// attrs {d}: y_k = x_1 + ... + x_k
struct CumSum {
  static constexpr Meta meta = Meta::per_node("cumsum", "cumsum(x, d)", Reads::none);
  static constexpr Param params[] = {{"x"}, {"d", Param::uint, 0}};
  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd > 3) shape_error(s, "at most 3 dimensions");
    if (s.attrs[0] > s[0].nd) shape_error(s, text("d <= ", s[0].nd, ", not ", s.attrs[0]));
    return s[0];
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const AxisRuns a(*m.xd[0], m.attrs[0]);
    for (size_t o = 0; o < a.outer; ++o) {
      const float* x = m.x[0] + o * a.inner * a.len;
      float* y = m.out() + o * a.inner * a.len;
      if (a.inner == 1) {
        if_leader<I>([&]() DYC_LAMBDA {
          LongSum<float> s;
          for (size_t k = 0; k < a.len; ++k) s.add(x[k]), y[k] = s.total();
        });
        continue;
      }
      each<I>(a.inner, [&](size_t i, auto c) DYC_LAMBDA {
        LongSum<typename I::V> s;
        for (size_t k = 0; k < a.len; ++k) {
          s.add(c.get(x + i + k * a.inner));
          c.put(y + i + k * a.inner, s.total());
        }
      });
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const AxisRuns a(*m.xd[0], m.attrs[0]);
    for (size_t o = 0; o < a.outer; ++o) {
      float* dx = m.dx + o * a.inner * a.len;
      const float* dy = m.dy + o * a.inner * a.len;
      if (a.inner == 1) {
        if_leader<I>([&]() DYC_LAMBDA {
          LongSum<float> s;
          for (size_t k = a.len; k-- > 0;) s.add(dy[k]), dx[k] += s.total();
        });
        continue;
      }
      each<I>(a.inner, [&](size_t i, auto c) DYC_LAMBDA {
        LongSum<typename I::V> s;
        for (size_t k = a.len; k-- > 0;) {
          s.add(c.get(dy + i + k * a.inner));
          c.add(dx + i + k * a.inner, s.total());
        }
      });
    }
  }
};

// attrs {d}: {..,k,..}xB -> {..,..}xB
struct LogSumExpDim {
  static constexpr Meta meta = Meta::per_node("logsumexp_dim", "log(sum(exp(x), d))", Reads::x_and_y);
  static constexpr Param params[] = {{"x"}, {"d", Param::uint, 0}};
  static Dim shape(const ShapeArgs& s) {
    check_axis(s, s.attrs[0], 2);
    return without_axis(s[0], s.attrs[0]);
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const AxisRuns a(*m.xd[0], m.attrs[0]);
    for (size_t o = 0; o < a.outer; ++o) {
      const float* x = m.x[0] + o * a.inner * a.len;
      float* y = m.out() + o * a.inner;
      if (a.inner == 1) {
        const LogZ z = log_z<I>(x, a.len);
        *y = z.shift + z.log_sum;
        continue;
      }
      each<I>(a.inner, [&](size_t i, auto c) DYC_LAMBDA {
        auto top = c.get(x + i);
        for (size_t k = 1; k < a.len; ++k) top = vmax(top, c.get(x + i + k * a.inner));
        const auto shift = select(top - top == 0.f, top, typename I::V{});  // false for infinities
        LongSum<typename I::V> s;
        for (size_t k = 0; k < a.len; ++k) s.add(exp_of(c.get(x + i + k * a.inner) - shift));
        c.put(y + i, shift + log_of(s.total()));
      });
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const AxisRuns a(*m.xd[0], m.attrs[0]);
    for (size_t o = 0; o < a.outer; ++o) {
      const size_t at = o * a.inner * a.len, to = o * a.inner;
      if (a.inner == 1) {
        const float y = m.y[to], dy = m.dy[to];
        each<I>(a.len, [&](size_t i, auto c)
                           DYC_LAMBDA { c.add(m.dx + at + i, dy * exp_of(c.get(m.x[0] + at + i) - y)); });
        continue;
      }
      each<I>(a.inner, [&](size_t i, auto c) DYC_LAMBDA {
        const auto y = c.get(m.y + to + i), dy = c.get(m.dy + to + i);
        for (size_t k = 0; k < a.len; ++k) {
          const size_t p = at + i + k * a.inner;
          c.add(m.dx + p, dy * exp_of(c.get(m.x[0] + p) - y));
        }
      });
    }
  }
};

// Maximum (sign = 1) or minimum (-1) along dimension attrs[0]; the first of equal elements gets the gradient.
template <int sign>
struct Extreme {
  static constexpr Param params[] = {{"x"}, {"d", Param::uint, 0}};
  static Dim shape(const ShapeArgs& s) {
    check_axis(s, s.attrs[0], 3);
    return without_axis(s[0], s.attrs[0]);
  }
  template <class V>
  static DYC_INLINE V pick(V a, V b) {
    if constexpr (sign > 0) return vmax(a, b);
    else return vmin(a, b);
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const AxisRuns a(*m.xd[0], m.attrs[0]);
    for (size_t o = 0; o < a.outer; ++o) {
      const float* x = m.x[0] + o * a.inner * a.len;
      float* y = m.out() + o * a.inner;
      if (a.inner == 1) {
        auto s = fill<I>(x[0]);
        each<I>(a.len, [&](size_t i, auto c) DYC_LAMBDA { s = pick(s, c.keep(c.get(x + i), s)); });
        if constexpr (sign > 0) *y = largest_of<I>(s);
        else *y = smallest_of<I>(s);
        continue;
      }
      each<I>(a.inner, [&](size_t i, auto c) DYC_LAMBDA {
        auto s = c.get(x + i);
        for (size_t k = 1; k < a.len; ++k) s = pick(s, c.get(x + i + k * a.inner));
        c.put(y + i, s);
      });
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const AxisRuns a(*m.xd[0], m.attrs[0]);
    const auto add = [&](size_t at, size_t to) DYC_LAMBDA {
      for (size_t k = 0; k < a.len; ++k)
        if (m.x[0][at + k * a.inner] == m.y[to]) {
          m.dx[at + k * a.inner] += m.dy[to];
          break;
        }
    };
    if constexpr (is_thread_group<I>) {
      each_one<I>(a.outer * a.inner,
                  [&](size_t i) DYC_LAMBDA { add(i / a.inner * a.inner * a.len + i % a.inner, i); });
    } else {
      for (size_t o = 0; o < a.outer; ++o)
        for (size_t i = 0; i < a.inner; ++i) add(o * a.inner * a.len + i, o * a.inner + i);
    }
  }
};

struct MaxDim : Extreme<1> {
  static constexpr Meta meta = Meta::per_node("max_dim", "max(x, d)", Reads::x_and_y);
};
struct MinDim : Extreme<-1> {
  static constexpr Meta meta = Meta::per_node("min_dim", "min(x, d)", Reads::x_and_y);
};

// ---- over a list

// xs {..} equal up to trailing ones, batch 1 or B -> {..}xB without trailing ones, element by element
struct LogSumExp {
  static constexpr Meta meta = Meta::per_node("logsumexp", "log(exp(x1) + exp(x2) + ...)", Reads::x_and_y);
  static constexpr Param params[] = {{"xs", Param::exprs}};
  static Dim shape(const ShapeArgs& s) {
    Dim r = equal_sizes(s, &Dim::same_sizes_padded);
    r.drop_trailing_ones();
    r.bd = common_batch(s);
    return r;
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      each<I>(m.ys(), [&](size_t i, auto c) DYC_LAMBDA {
        auto top = c.get(m.xb(0, b) + i);
        for (uint32_t k = 1; k < m.n; ++k) top = vmax(top, c.get(m.xb(k, b) + i));
        const auto shift = select(top - top == 0.f, top, typename I::V{});  // false for infinities
        LongSum<typename I::V> s;
        for (uint32_t k = 0; k < m.n; ++k) s.add(exp_of(c.get(m.xb(k, b) + i) - shift));
        c.put(m.yb(b) + i, shift + log_of(s.total()));
      });
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float *x = m.xb(arg, b), *y = m.yb(b), *dy = m.dyb(b);
      float* dx = m.dxb(arg, b);
      each<I>(m.ys(), [&](size_t i, auto c)
                          DYC_LAMBDA { c.add(dx + i, c.get(dy + i) * exp_of(c.get(x + i) - c.get(y + i))); });
    }
  }
};

// The ops of this file, in the order of their numbers.
using ReduceOps = OpList<SumElems, SquaredNorm, L2Norm, SumDim, MomentDim, StdDim, CumSum, LogSumExpDim,
                         MaxDim, MinDim, LogSumExp>;

}  // namespace dyc
