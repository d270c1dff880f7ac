// Softmax ops. Columns are runs of contiguous memory; along other axes a chunk holds neighbouring runs.
#pragma once
#include "ops/exp_sum.h"
#include "ops/op.h"
#include "ops/short_columns.h"

namespace dyc {

// attrs {d}
struct Softmax {
  static constexpr Meta meta = Meta::per_node("softmax", "softmax(x)", Reads::y).shared_by_warps();
  static constexpr ColumnRole column_role = ColumnRole::maps;
  static constexpr Param params[] = {{"x"}, {"d", Param::uint, 0}};
  static Dim shape(const ShapeArgs& s) {
    check_axis(s, s.attrs[0], 2);
    return s[0];
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const AxisRuns a(*m.xd[0], m.attrs[0]);
    if (a.inner == 1) {
      each_run<I>(a.outer, [&](size_t o, auto group) DYC_LAMBDA {
        column<decltype(group)>(m.x[0] + o * a.len, m.out() + o * a.len, a.len);
      });
      return;
    }
    for (size_t o = 0; o < a.outer; ++o) {
      const float* x = m.x[0] + o * a.inner * a.len;
      float* y = m.out() + o * a.inner * a.len;
      each<I>(a.inner, [&](size_t i, auto c) DYC_LAMBDA {
        auto top = c.get(x + i);
        for (size_t k = 1; k < a.len; ++k) top = vmax(top, c.get(x + i + k * a.inner));
        const auto infinite = fill<I>(__builtin_inff());
        LongSum<typename I::V> s;
        for (size_t k = 0; k < a.len; ++k) {
          const auto v = c.get(x + i + k * a.inner);
          const auto e = exp_of(select(v == infinite, typename I::V{}, v - top));
          c.put(y + i + k * a.inner, e);
          s.add(e);
        }
        const auto scale = 1.f / s.total();
        for (size_t k = 0; k < a.len; ++k) c.put(y + i + k * a.inner, c.get(y + i + k * a.inner) * scale);
      });
    }
  }
  template <class I>
  static DYC_INLINE void column(const float* x, float* y, size_t n) {
    if (is_long_run<I>(n)) return long_column<I>(x, y, n);
    const float top = max_run<I>(x, n);
    const float s = sum_run<I>(n, [&](size_t i, auto c) DYC_LAMBDA {
      const auto e = exp_of(below(c.get(x + i), top));
      c.put(y + i, e);
      return e;
    });
    const float scale = 1.f / s;
    each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { c.put(y + i, c.get(y + i) * scale); });
  }
  // Terms of the sum are kept, and computed again only where a later block has moved the shift.
  template <class I>
  static DYC_INLINE void long_column(const float* x, float* y, size_t n) {
    Reader<I> r;
    size_t moved = 0;
    each_block<I>(n, [&](size_t at, size_t count) DYC_LAMBDA {
      const float before = r.all.shift;
      r.all.read(x + at, count, [&](size_t i, auto c, auto e) DYC_LAMBDA { c.put(y + at + i, e); });
      if (r.all.shift != before) moved = at;
    });
    const Summary s = r.result();
    each<I>(moved, [&](size_t i, auto c) DYC_LAMBDA { c.put(y + i, element(s, c.get(x + i))); });
    each<I>(n - moved,
            [&](size_t i, auto c) DYC_LAMBDA { c.put(y + moved + i, c.get(y + moved + i) * s.scale); });
  }
  template <class I>  // dx = y * (dy - sum(dy * y))
  static void backward(const KernelArgs& m, uint32_t) {
    const AxisRuns a(*m.xd[0], m.attrs[0]);
    if (a.inner == 1) {
      each_run<I>(a.outer, [&](size_t o, auto group) DYC_LAMBDA {
        using G = decltype(group);
        const float *y = m.y + o * a.len, *dy = m.dy + o * a.len;
        float* dx = m.dx + o * a.len;
        const float s =
            sum_run<G>(a.len, [&](size_t i, auto c) DYC_LAMBDA { return c.get(dy + i) * c.get(y + i); });
        each<G>(a.len,
                [&](size_t i, auto c) DYC_LAMBDA { c.add(dx + i, c.get(y + i) * (c.get(dy + i) - s)); });
      });
      return;
    }
    for (size_t o = 0; o < a.outer; ++o) {
      const size_t at = o * a.inner * a.len;
      const float *y = m.y + at, *dy = m.dy + at;
      float* dx = m.dx + at;
      each<I>(a.inner, [&](size_t i, auto c) DYC_LAMBDA {
        LongSum<typename I::V> products;
        for (size_t k = 0, p = i; k < a.len; ++k, p += a.inner) products.add(c.get(dy + p) * c.get(y + p));
        const auto s = products.total();
        for (size_t k = 0, p = i; k < a.len; ++k, p += a.inner)
          c.add(dx + p, c.get(y + p) * (c.get(dy + p) - s));
      });
    }
  }

  // ---- in blocks (cpu/column_losses.h)
  struct Summary {
    float shift, scale, own;
  };
  template <class I>
  struct Reader {
    SteppedExpSum<I> all;
    float own = 0;

    DYC_INLINE void read(const float* x, size_t n, size_t v) {
      if (v < n) own = x[v];
      all.read(x, n, [](size_t, auto, auto) DYC_LAMBDA {});
    }
    DYC_INLINE Summary result() const { return {all.shift, 1.f / all.sum(), own}; }
  };
  template <class V>
  static DYC_INLINE V element(const Summary& s, V x) {
    return shifted_exp(x, s.shift - V{}) * s.scale;
  }
  template <class I>
  static DYC_INLINE float loss(const Summary& s) {
    return first_lane<I>(element(s, fill<I>(s.own)));
  }
  template <class I>
  static DYC_INLINE void gradient(const Summary& s, const float* x, float* dx, size_t n, size_t v, float dy) {
    const float sum = dy * loss<I>(s);
    each<I>(n, [&](size_t i, auto c) DYC_LAMBDA {
      c.put(dx + i, element(s, c.get(x + i)) * (replaced<I>(typename I::V{}, i, v, dy) - sum));
    });
  }
};

// Per column. The Python function also takes `restrict`: see RestrictedLogSoftmax.
struct LogSoftmax {
  static constexpr Meta meta =
      Meta::per_node("log_softmax", "log_softmax(x)", Reads::y).shared_by_warps().hide();
  static constexpr ColumnRole column_role = ColumnRole::maps;
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd > 2) shape_error(s, "at most 2 dimensions");
    return s[0];
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t n = m.xd[0]->rows(), columns = m.xd[0]->cols() * m.xd[0]->bd;
    if (is_short_column<I>(n)) return short_forward<I>(m.x[0], m.out(), n, columns);
    each_run<I>(columns, [&](size_t j, auto group) DYC_LAMBDA {
      using G = decltype(group);
      const float* x = m.x[0] + j * n;
      float* y = m.out() + j * n;
      const Summary s = summary_of<G>(x, n);
      each<G>(n, [&](size_t i, auto c) DYC_LAMBDA { c.put(y + i, element(s, c.get(x + i))); });
    });
  }
  template <class I>  // dx = dy - exp(y) * sum(dy)
  static void backward(const KernelArgs& m, uint32_t) {
    const size_t n = m.xd[0]->rows(), columns = m.xd[0]->cols() * m.xd[0]->bd;
    if (is_short_column<I>(n)) return short_backward<I>(m, n, columns);
    each_run<I>(columns, [&](size_t j, auto group) DYC_LAMBDA {
      using G = decltype(group);
      const float *y = m.y + j * n, *dy = m.dy + j * n;
      float* dx = m.dx + j * n;
      const float s = sum_run<G>(n, [&](size_t i, auto c) DYC_LAMBDA { return c.get(dy + i); });
      each<G>(n,
              [&](size_t i, auto c) DYC_LAMBDA { c.add(dx + i, c.get(dy + i) - s * exp_of(c.get(y + i))); });
    });
  }

  // ---- in blocks (cpu/column_losses.h)
  struct Summary {
    float shift, log_sum, own;
  };
  template <class I>
  struct Reader : WholeSumReader<I> {
    DYC_INLINE Summary result() const {
      const float shift = this->all.greatest();
      return {shift, log_of(this->all.sum(shift)), this->own};
    }
  };
  template <class V>
  static DYC_INLINE V element(const Summary& s, V x) {
    return below(x, s.shift) - s.log_sum;
  }
  template <class I>
  static DYC_INLINE float loss(const Summary& s) {
    return element(s, s.own);
  }
  template <class I>
  static DYC_INLINE void gradient(const Summary& s, const float* x, float* dx, size_t n, size_t v, float dy) {
    each<I>(n, [&](size_t i, auto c) DYC_LAMBDA {
      c.put(dx + i, replaced<I>(typename I::V{}, i, v, dy) - dy * exp_of(element(s, c.get(x + i))));
    });
  }

 private:
  template <class I>
  static DYC_INLINE void short_forward(const float* x, float* y, size_t n, size_t columns) {
    if constexpr (I::lanes > 1) {
      using V = typename I::V;
      each_lanes<I>(columns, [&](size_t j, int count) DYC_LAMBDA {
        ShortColumns<I> c(x + j * n, n, count), e = c;
        const V top = c.greatest(-__builtin_inff()), shift = select(top == -__builtin_inff(), V{}, top);
        e.apply(shift, [](V a, V s) DYC_LAMBDA { return exp_of(below(a, s)); });
        const V log_sum = log_of(e.sum([&](size_t i) DYC_LAMBDA { return e.row[i]; }));
        c.put(y + j * n, [&](size_t i) DYC_LAMBDA { return below(c.row[i], shift) - log_sum; });
      });
    }
  }
  template <class I>
  static DYC_INLINE void short_backward(const KernelArgs& m, size_t n, size_t columns) {
    if constexpr (I::lanes > 1) {
      using V = typename I::V;
      each_lanes<I>(columns, [&](size_t j, int count) DYC_LAMBDA {
        ShortColumns<I> e(m.y + j * n, n, count), dy(m.dy + j * n, n, count);
        e.apply(V{}, [](V a, V) DYC_LAMBDA { return exp_of(a); });
        const V s = dy.sum([&](size_t i) DYC_LAMBDA { return dy.row[i]; });
        e.add(m.dx + j * n, [&](size_t i) DYC_LAMBDA { return dy.row[i] - s * e.row[i]; });
      });
    }
  }
  template <class I>
  static DYC_INLINE Summary summary_of(const float* x, size_t n) {
    if (is_long_run<I>(n)) {
      Reader<I> r;
      r.read_all(x, n);
      return r.result();
    }
    const LogZ z = log_z<I>(x, n);
    return {z.shift, z.log_sum, 0};
  }
};

// log_softmax(x, restrict): normalises over the listed rows (ids; a row listed twice counts twice), the
// others are -inf. No attributes. x column-like, batch items alike.
struct RestrictedLogSoftmax {
  static constexpr Meta meta =
      Meta::per_node("restricted_log_softmax", "log_softmax(x, rows)", Reads::y).hide();
  static constexpr Param params[] = {{"x"}, {"restrict", Param::indices}};
  static Dim shape(const ShapeArgs& s) {
    if (!s[0].column_like()) shape_error(s, "a column vector with restrict");
    return s[0];
  }
  static void check(const KernelArgs& m, const char*) {
    if (m.n_ids == 0) throw ValueError("log_softmax(): expected at least one row in restrict, got none");
    for (uint32_t i = 0; i < m.n_ids; ++i)
      if (m.ids[i] >= m.xs(0))
        throw ValueError(text("log_softmax(): expected restrict[", i, "] < ", m.xs(0), ", got ", m.ids[i]));
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t n = m.xs(0);
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float* x = m.xb(0, b);
      float* y = m.yb(b);
      float top = x[m.ids[0]];
      for (uint32_t i = 1; i < m.n_ids; ++i) top = vmax_of<I>(top, x[m.ids[i]]);
      if (top == -__builtin_inff()) top = 0;
      LongSum<float> sum;
      for (uint32_t i = 0; i < m.n_ids; ++i) sum.add(exp_of(below(x[m.ids[i]], top)));
      const float log_sum = log_of(sum.total());
      each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { c.put(y + i, fill<I>(-__builtin_inff())); });
      sync<I>();
      for (uint32_t i = 0; i < m.n_ids; ++i) y[m.ids[i]] = below(x[m.ids[i]], top) - log_sum;
    }
  }
  template <class I>
  static DYC_INLINE float vmax_of(float a, float b) {
    return a > b ? a : b;
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const size_t n = m.xs(0);
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float *y = m.yb(b), *dy = m.dyb(b);
      float* dx = m.dxb(0, b);
      LongSum<float> part;
      each_one<I>(n, [&](size_t i) DYC_LAMBDA {  // each listed row once, however often it is listed
        if (y[i] != -__builtin_inff()) {
          part.add(dy[i]);
          dx[i] += dy[i];
        }
      });
      const float sum = sum_of_group<I>(part.total());
      if_leader<I>([&]() DYC_LAMBDA {
        for (uint32_t i = 0; i < m.n_ids; ++i) dx[m.ids[i]] -= sum * exp_of(y[m.ids[i]]);
      });
    }
  }
};

// One-hot of the first maximum. attrs {mode}: gradient 0 (zero) or that of the identity (1,
// straight-through). The Python function takes the mode as a string: "zero_gradient",
// "straight_through_gradient".
struct ArgMax {
  static constexpr Meta meta = Meta::per_node("argmax", "argmax(x)", Reads::none).hide();
  static constexpr Param params[] = {{"x"}, {"gradient_mode", Param::uint}};
  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd != 1) shape_error(s, "a vector of 1 dimension");
    return s[0];
  }
  // Going from x[0] on, an element counts as larger where it compares so: NaN never does.
  template <class I>
  static DYC_INLINE size_t first_largest(const float* x, size_t n) {
    size_t best = 0;
    if constexpr (is_thread_group<I>) {
      if (x[0] != x[0]) return 0;
      float top = x[0];
      each_one<I>(n, [&](size_t i) DYC_LAMBDA {
        if (x[i] > top) top = x[i], best = i;
      });
      const float largest = I::max(top);
      return I::least(top == largest ? best : n);
    }
    for (size_t i = 1; i < n; ++i)
      if (x[i] > x[best]) best = i;
    return best;
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t n = m.xs(0);
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float* x = m.xb(0, b);
      float* y = m.yb(b);
      each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { c.put(y + i, fill<I>(0.f)); });
      const size_t best = first_largest<I>(x, n);
      sync<I>();
      y[best] = 1.f;
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    if (m.attrs[0] == 0) return;
    each<I>(m.yd->size(), [&](size_t i, auto c) DYC_LAMBDA { c.add(m.dx + i, c.get(m.dy + i)); });
  }
};

// The ops of this file, in the order of their numbers.
using SoftmaxOps = OpList<Softmax, LogSoftmax, RestrictedLogSoftmax, ArgMax>;

}  // namespace dyc
