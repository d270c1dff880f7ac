// Losses over the rows of a column vector: one id per batch item, kept per node and checked when computed.
#pragma once
#include "ops/exp_sum.h"
#include "ops/op.h"
#include "ops/short_columns.h"

namespace dyc {

// The id of batch item b: the only one, or one each.
DYC_INLINE uint32_t id_of(const KernelArgs& m, uint32_t b) { return m.ids[m.n_ids > 1 ? b : 0]; }

// logsumexp(x) - x[v]. attrs {} for pickneglogsoftmax(x, v) and {number of ids} for
// pickneglogsoftmax_batch(x, vs), which is recorded as this op. x {n}xB -> {1}xB
struct PickNegLogSoftmax {
  static constexpr Meta meta = Meta::per_node("pickneglogsoftmax", "-log_softmax(x)[v]", Reads::x_and_y);
  static constexpr ColumnRole column_role = ColumnRole::loss;
  static constexpr Param params[] = {{"x"}, {"v", Param::index}};
  static Dim shape(const ShapeArgs& s) {
    if (!s[0].column_like()) shape_error(s, "a column vector");
    const uint32_t n = s.n_attrs ? s.attrs[0] : 1;
    if (s[0].bd != n) shape_error(s, text("as many ids as batch items, not ", n));
    return scalar_per_batch(s);
  }
  static void check(const KernelArgs& m, const char* op) { check_ids(m, op); }
  template <class I>
  static void forward(const KernelArgs& m) {
    if (is_short_column<I>(m.xs(0))) return short_forward<I>(m);
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      *m.yb(b) = picked_loss<I>(sum_of<I>(m.xb(0, b), m.xs(0), id_of(m, b)));
  }
  // p[v] - 1 is minus the sum of the others: exact where p[v] is almost 1.
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const size_t n = m.xs(0);
    if (is_short_column<I>(n)) return short_backward<I>(m);
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float* x = m.xb(0, b);
      float* dx = m.dxb(0, b);
      const uint32_t v = id_of(m, b);
      const PickedLogSum s = sum_of<I>(x, n, v);
      const float scale = *m.dyb(b) * picked_scale<I>(s), own = dx[v];
      sync<I>();
      each<I>(n, [&](size_t i, auto c)
                     DYC_LAMBDA { c.add(dx + i, scale * exp_term(below(c.get(x + i), s.shift))); });
      if_leader<I>([&]() DYC_LAMBDA { dx[v] = own - scale * s.others; });
    }
  }

  // ---- in blocks (cpu/column_losses.h)
  template <class I>
  using Reader = PickedLogSumReader<I>;
  using Summary = PickedLogSum;
  template <class I>
  static DYC_INLINE float loss(const Summary& s) {
    return picked_loss<I>(s);
  }
  // Writes the gradient of x[0] to x[n - 1]; v counts from there.
  template <class I>
  static DYC_INLINE void gradient(const Summary& s, const float* x, float* dx, size_t n, size_t v, float dy) {
    const float scale = dy * picked_scale<I>(s);
    each<I>(n, [&](size_t i, auto c)
                   DYC_LAMBDA { c.put(dx + i, scale * exp_term(below(c.get(x + i), s.shift))); });
    if (v < n) dx[v] = -(scale * s.others);
  }

 private:
  // Short columns, whose exponentials e gets; v: the index of each.
  template <class I>
  static DYC_INLINE PickedLogSumOf<typename I::V> short_sum(ShortColumns<I>& e, typename I::V v) {
    using V = typename I::V;
    const V shift = e.greatest(-0x1.fffffep127f);
    V own{};
    for (size_t i = 0; i < e.n; ++i) own = select(v == static_cast<float>(i), e.row[i], own);
    e.apply(shift, [](V a, V s) DYC_LAMBDA {
      const V far = below(a, s);
      return with_lost(exp_term(far), a, s, far);
    });
    return {shift,
            e.sum([&](size_t i) DYC_LAMBDA { return select(v == static_cast<float>(i), V{}, e.row[i]); }),
            own};
  }
  template <class I>
  static DYC_INLINE typename I::V ids_of(const KernelArgs& m, size_t j, int count) {
    typename I::V v{};
    for (int k = 0; k < count; ++k) v[k] = static_cast<float>(m.ids[j + static_cast<size_t>(k)]);
    return v;
  }
  template <class I>
  static DYC_INLINE void short_forward(const KernelArgs& m) {
    if constexpr (I::lanes > 1) {
      each_lanes<I>(m.yd->bd, [&](size_t j, int count) DYC_LAMBDA {
        ShortColumns<I> e(m.x[0] + j * m.xs(0), m.xs(0), count);
        const auto s = short_sum<I>(e, ids_of<I>(m, j, count));
        const auto far = (s.shift - s.own) + log_of(s.others + exp_of(s.own - s.shift));
        TailChunk<I>{count}.put(m.out() + j, select(s.own == s.shift, log1p_of(s.others), far));
      });
    }
  }
  template <class I>
  static DYC_INLINE void short_backward(const KernelArgs& m) {
    if constexpr (I::lanes > 1) {
      each_lanes<I>(m.yd->bd, [&](size_t j, int count) DYC_LAMBDA {
        const size_t n = m.xs(0);
        ShortColumns<I> e(m.x[0] + j * n, n, count);
        const auto v = ids_of<I>(m, j, count), dy = TailChunk<I>{count}.get(m.dy + j);
        const auto s = short_sum<I>(e, v);
        const auto scale = dy * (1.f / (s.others + exp_of(below(s.own, s.shift))));
        e.add(m.dx + j * n, [&](size_t i) DYC_LAMBDA {
          return scale * select(v == static_cast<float>(i), -s.others, e.row[i]);
        });
      });
    }
  }
  template <class I>
  static DYC_INLINE PickedLogSum sum_of(const float* x, size_t n, size_t v) {
    Reader<I> r;
    each_block<I>(n, [&](size_t at, size_t count) DYC_LAMBDA { r.read(x + at, count, v - at); });
    return r.result();
  }
};

struct HingeSum {
  float base;    // m - x[v]
  float active;  // how many elements but v are above -base
  float loss;
};

// The same while x is read. A NaN shows.
template <class I>
struct HingeReader {
  using V = typename I::V;
  float base = 0;
  V active{};
  LongSum<V> sum{};

  static DYC_INLINE HingeReader begin(float margin, float own) { return {margin - own}; }
  // The next block, x[0] to x[n - 1]; v counts from there.
  DYC_INLINE void read(const float* x, size_t n, size_t v) {
    each<I>(n, [&](size_t i, auto c) DYC_LAMBDA {
      const V t = c.keep(replaced<I>(base + c.get(x + i), i, v, 0.f), V{});
      sum.add(select(t <= 0.f, V{}, t));
      active += select(t > 0.f, fill<I>(1.f), V{});
    });
  }
  DYC_INLINE HingeSum result() const { return {base, total_of<I>(active), total_of<I>(sum.total())}; }
};

// Sum over j != v of max(0, m - x[v] + x[j]) along a run of len elements at distance `step`. A NaN shows.
template <class I>
DYC_INLINE float hinge_run(const float* x, size_t len, size_t step, size_t v, float margin) {
  if (step == 1) {
    auto r = HingeReader<I>::begin(margin, x[v]);
    r.read(x, len, v);
    return r.result().loss;
  }
  const float base = margin - x[v * step];
  LongSum<float> s;
  for (size_t k = 0; k < len; ++k) {
    const float t = base + x[k * step];
    if (k != v && !(t <= 0)) s.add(t);
  }
  return s.total();
}
template <class I>
DYC_INLINE void hinge_gradient(float* dx, const float* x, size_t len, size_t step, size_t v, float margin,
                               float dy) {
  const float base = margin - x[v * step];
  if (step == 1) {
    typename I::V active{};
    each<I>(len, [&](size_t i, auto c) DYC_LAMBDA {
      const auto above = replaced<I>(base + c.get(x + i), i, v, 0.f) > 0.f;
      active += c.keep(select(above, fill<I>(1.f), typename I::V{}), typename I::V{});
      c.add(dx + i, select(above, fill<I>(dy), typename I::V{}));
    });
    const float n = total_of<I>(active);
    if_leader<I>([&]() DYC_LAMBDA { dx[v] -= n * dy; });
    return;
  }
  float active = 0;
  each_one<I>(len, [&](size_t k) DYC_LAMBDA {
    if (k != v && base + x[k * step] > 0) {
      dx[k * step] += dy;
      active += 1;
    }
  });
  active = sum_of_group<I>(active);
  if_leader<I>([&]() DYC_LAMBDA { dx[v * step] -= active * dy; });
}
inline void check_margin(float margin, const char* op) {
  if (margin < 0) throw ValueError(text(op, "(): expected m >= 0, got ", margin));
}

// attrs {m} for hinge(x, v, m) and {m, number of ids} for hinge_batch(x, vs, m), recorded as this op.
// x {n}xB -> {1}xB
struct Hinge {
  static constexpr Meta meta = Meta::per_node("hinge", "hinge(x, v)", Reads::x);
  static constexpr ColumnRole column_role = ColumnRole::loss;
  static constexpr Param params[] = {{"x"}, {"v", Param::index}, {"m", Param::real, 1}};
  static Dim shape(const ShapeArgs& s) {
    if (!s[0].column_like()) shape_error(s, "a column vector");
    return scalar_per_batch(s);
  }
  static void check(const KernelArgs& m, const char* op) {
    check_margin(m.real(0), op);
    if (m.n_ids != m.xd[0]->bd)
      throw ValueError(text(op, "(): expected one id per batch item of ", *m.xd[0], ", got ", m.n_ids));
    check_ids(m, op);
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      *m.yb(b) = hinge_run<I>(m.xb(0, b), m.xs(0), 1, id_of(m, b), m.real(0));
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      hinge_gradient<I>(m.dxb(0, b), m.xb(0, b), m.xs(0), 1, id_of(m, b), m.real(0), *m.dyb(b));
  }

  // ---- in blocks (cpu/column_losses.h)
  template <class I>
  using Reader = HingeReader<I>;
  using Summary = HingeSum;
  template <class I>
  static DYC_INLINE float loss(const Summary& s) {
    return s.loss;
  }
  template <class I>
  static DYC_INLINE void gradient(const Summary& s, const float* x, float* dx, size_t n, size_t v, float dy) {
    each<I>(n, [&](size_t i, auto c) DYC_LAMBDA {
      c.put(dx + i, select(s.base + c.get(x + i) > 0.f, fill<I>(dy), typename I::V{}));
    });
    if (v < n) dx[v] = 0.f - s.active * dy;
  }
};

// Hinge of each slice along dimension d of a matrix. attrs {d, m}; ids: one per slice, the same for every
// batch item, or one per slice and batch item. x {r,c}xB -> {c}xB (d = 0), {r}xB (d = 1)
struct HingeDim {
  static constexpr Meta meta = Meta::per_node("hinge_dim", "hinge(x, v, d)", Reads::x);
  static constexpr Param params[] = {
      {"x"}, {"v", Param::indices}, {"d", Param::uint, 0}, {"m", Param::real, 1}};
  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd != 2) shape_error(s, "a matrix of 2 dimensions");
    if (s.attrs[0] > 1) shape_error(s, text("d to be 0 or 1, not ", s.attrs[0]));
    return Dim({s[0].d[1 - s.attrs[0]]}, s[0].bd);
  }
  static void check(const KernelArgs& m, const char* op) {
    const Dim& x = *m.xd[0];
    const uint32_t d = m.attrs[0], slices = x.d[1 - d];
    check_margin(m.real(1), op);
    if (m.n_ids != slices && m.n_ids != slices * x.bd)
      throw ValueError(text(op, "(): expected ", slices, " ids for ", x, " and d=", d, ", got ", m.n_ids));
    for (uint32_t i = 0; i < m.n_ids; ++i)
      if (m.ids[i] >= x.d[d]) throw ValueError(text(op, "(): expected ids < ", x.d[d], ", got ", m.ids[i]));
  }
  // f(start of the slice, position in y, id)
  template <class F>
  static DYC_INLINE void slices(const KernelArgs& m, F f) {
    const Dim& x = *m.xd[0];
    const uint32_t n = x.d[1 - m.attrs[0]];
    const size_t next = m.attrs[0] == 0 ? x.d[0] : 1;
    for (uint32_t b = 0; b < x.bd; ++b)
      for (uint32_t i = 0; i < n; ++i)
        f(b * m.xs(0) + i * next, b * n + i, m.ids[m.n_ids > n ? b * n + i : i]);
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t len = m.xd[0]->d[m.attrs[0]], step = m.attrs[0] == 0 ? 1 : m.xd[0]->d[0];
    slices(m, [&](size_t at, size_t y, uint32_t v)
                  DYC_LAMBDA { m.out()[y] = hinge_run<I>(m.x[0] + at, len, step, v, m.real(1)); });
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const size_t len = m.xd[0]->d[m.attrs[0]], step = m.attrs[0] == 0 ? 1 : m.xd[0]->d[0];
    slices(m, [&](size_t at, size_t y, uint32_t v) DYC_LAMBDA {
      hinge_gradient<I>(m.dx + at, m.x[0] + at, len, step, v, m.real(1), m.dy[y]);
    });
  }
};

template <class T>
DYC_INLINE T lgamma_of(T x) {
  return vlgamma(x);
}

// exp(l) + log(x!) - x l for a count x. l one element, not batched.
struct PoissonLoss {
  static constexpr Meta meta = Meta::per_node("poisson_loss", "poisson_loss(l, x)", Reads::x);
  static constexpr Param params[] = {{"log_lambda"}, {"x", Param::index}};
  static Dim shape(const ShapeArgs& s) {
    if (s[0].size() != 1) shape_error(s, "one element");
    return s[0];
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const float l = *m.x[0], x = static_cast<float>(m.ids[0]);
    *m.out() = exp_of(l) + lgamma_of(x + 1.f) - x * l;
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    add_as_leader<I>(m.dx, (exp_of(*m.x[0]) - static_cast<float>(m.ids[0])) * *m.dy);
  }
};

// The ops of this file, in the order of their numbers.
using LossOps = OpList<PickNegLogSoftmax, Hinge, HingeDim, PoissonLoss>;

}  // namespace dyc
