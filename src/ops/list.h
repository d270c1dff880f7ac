// Ops over a list of expressions. Lists can have hundreds of entries: backward_all gives every argument its
// gradient in one pass (dx[i] null: not asked for), where backward(m, arg) would have to count up to arg.
#pragma once
#include "ops/element_loops.h"
#include "ops/op.h"
#include "ops/shape.h"

namespace dyc {

// Backward of ops that add to the gradient of each argument: Op::add_gradient<I>(m, arg, dx).
template <class Op>
struct AddsToEach {
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    Op::template add_gradient<I>(m, arg, m.dx);
  }
  template <class I>
  static void backward_all(const KernelArgs& m, float* const* dx) {
    for (uint32_t i = 0; i < m.n; ++i)
      if (dx[i]) sync<I>(), Op::template add_gradient<I>(m, i, dx[i]);
  }
};

// xs {..} equal up to trailing ones -> {..} of the first, batch 1 or B
struct Esum : AddsToEach<Esum> {
  static constexpr Meta meta = Meta::per_node("esum", "x1 + x2 + ...", Reads::none).shared_by_warps();
  static constexpr Param params[] = {{"xs", Param::exprs}};
  static Dim shape(const ShapeArgs& s) {
    Dim r = equal_sizes(s, &Dim::same_sizes_padded);
    r.bd = common_batch(s);
    return r;
  }
  template <class V>
  static DYC_INLINE V load_any(const float* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof(V));
    return v;
  }
  template <class V>
  static DYC_INLINE V column(const KernelArgs& m, size_t i) {
    LongSum<V> sum(load_any<V>(m.x[0] + i));
    for (uint32_t k = 1; k < m.n; ++k) sum.add(load_any<V>(m.x[k] + i));
    return sum.total();
  }
  // The same of four neighbouring vectors at once.
  template <class V, size_t L>
  static DYC_INLINE void four_columns(const KernelArgs& m, size_t i, float* y) {
    V high[4] = {}, low[4] = {};
    for (uint32_t from = 0, end; from < m.n; from = end) {
      end = m.n - from < kSumBlock ? m.n : from + kSumBlock;
      const float* x = m.x[from] + i;
      V a = load_any<V>(x), b = load_any<V>(x + L), c = load_any<V>(x + 2 * L), d = load_any<V>(x + 3 * L);
      for (uint32_t k = from + 1; k < end; ++k) {
        x = m.x[k] + i;
        a += load_any<V>(x);
        b += load_any<V>(x + L);
        c += load_any<V>(x + 2 * L);
        d += load_any<V>(x + 3 * L);
      }
      const V block[4] = {a, b, c, d};
      for (int q = 0; q < 4; ++q) {
        if (end - from == kSumBlock) add_exactly(high[q], low[q], block[q]);
        else high[q] = from ? high[q] + (low[q] + block[q]) : block[q], low[q] = V{};
      }
    }
    for (int q = 0; q < 4; ++q) {
      const V sum = m.n < kSumBlock ? high[q] : high[q] + low[q];
      __builtin_memcpy(y + i + q * L, &sum, sizeof(V));
    }
  }
  // Sums in list order.
  template <class I>
  static DYC_INLINE void sum(const KernelArgs& m, float* y, size_t n) {
    using V = typename I::V;
    if constexpr (is_thread_group<I>) {
      each_one<I>(n, [&](size_t i) DYC_LAMBDA { y[i] = column<V>(m, i); });
      return;
    }
    constexpr size_t L = I::lanes;
    size_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) four_columns<V, L>(m, i, y);
    for (; i + L <= n; i += L) {
      const V a = column<V>(m, i);
      __builtin_memcpy(y + i, &a, sizeof(V));
    }
    for (; i < n; ++i) y[i] = column<float>(m, i);
  }
  template <class I>
  static DYC_INLINE void sum_any(const KernelArgs& m) {
    bool plain = true;
    for (uint32_t k = 0; k < m.n; ++k) plain = plain && m.xd[k]->bd == m.yd->bd;
    const size_t n = m.ys();
    if (plain) {
      sum<I>(m, m.out(), n * m.yd->bd);
      return;
    }
    if constexpr (is_thread_group<I>) {
      each_one<I>(n * m.yd->bd, [&](size_t at) DYC_LAMBDA {
        const uint32_t b = static_cast<uint32_t>(at) / static_cast<uint32_t>(n);
        const size_t i = at - b * n;
        LongSum<float> s(m.xb(0, b)[i]);
        for (uint32_t k = 1; k < m.n; ++k) s.add(m.xb(k, b)[i]);
        m.out()[at] = s.total();
      });
      return;
    }
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      each<I>(n, [&](size_t i, auto c) DYC_LAMBDA {
        LongSum<typename I::V> s(c.get(m.xb(0, b) + i));
        for (uint32_t k = 1; k < m.n; ++k) s.add(c.get(m.xb(k, b) + i));
        c.put(m.yb(b) + i, s.total());
      });
  }
  template <class I>
  static DYC_INLINE void add_gradient(const KernelArgs& m, uint32_t arg, float* dx) {
    const size_t n = m.ys();
    if (m.xd[arg]->bd == m.yd->bd) {
      add_span<I>(dx, m.dy, n * m.yd->bd);
    } else {
      for (uint32_t b = 0; b < m.yd->bd; ++b) add_span<I>(dx, m.dy + b * n, n);
    }
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    sum_any<I>(m);
  }
};

// xs {..} exactly equal, batch 1 or B
struct Average : AddsToEach<Average> {
  static constexpr Meta meta =
      Meta::per_node("average", "(x1 + x2 + ...) / n", Reads::none).shared_by_warps();
  static constexpr Param params[] = {{"xs", Param::exprs}};
  static Dim shape(const ShapeArgs& s) {
    Dim r = equal_sizes(s, &Dim::same_sizes);
    r.bd = common_batch(s);
    return r;
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    Esum::sum_any<I>(m);
    const size_t n = m.yd->size();
    const float count = static_cast<float>(m.n);
    float* const y = m.out();
    each_one<I>(n, [=](size_t i) DYC_LAMBDA { y[i] /= count; });
  }
  template <class I>
  static DYC_INLINE void add_gradient(const KernelArgs& m, uint32_t arg, float* dx) {
    const bool all = m.xd[arg]->bd == m.yd->bd;
    const size_t n = all ? m.yd->size() : m.ys();
    const float share = 1.f / static_cast<float>(m.n);
    const float* __restrict dy = m.dy;
    float* __restrict const d = dx;
    for (uint32_t b = 0; b < (all ? 1 : m.yd->bd); ++b, dy += n) {
      if constexpr (is_thread_group<I>) each_one<I>(n, [&](size_t i) DYC_LAMBDA { d[i] += dy[i] * share; });
      else
        for (size_t i = 0; i < n; ++i) d[i] += dy[i] * share;
    }
  }
};

// Largest value per element; the first of equal ones has the gradient. A NaN comes through and has none.
struct Emax {
  static constexpr Meta meta = Meta::per_node("emax", "max(x1, x2, ...)", Reads::x_and_y).shared_by_warps();
  static constexpr Param params[] = {{"xs", Param::exprs}};
  static Dim shape(const ShapeArgs& s) { return identical_shape(s); }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t n = m.yd->size();
    float* __restrict const y = m.out();
    copy_span<I>(y, m.x[0], n);
    for (uint32_t k = 1; k < m.n; ++k) {
      const float* __restrict const x = m.x[k];
      each_one<I>(n, [=](size_t i) DYC_LAMBDA { y[i] = (x[i] > y[i]) | (x[i] != x[i]) ? x[i] : y[i]; });
    }
  }
  template <class I>
  static DYC_INLINE uint32_t winner(const KernelArgs& m, size_t i) {
    uint32_t k = 0;
    while (k < m.n && m.x[k][i] != m.y[i]) ++k;
    return k;
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    each_one<I>(m.yd->size(), [&](size_t i) DYC_LAMBDA {
      if (m.x[arg][i] == m.y[i] && winner<I>(m, i) == arg) m.dx[i] += m.dy[i];
    });
  }
  template <class I>
  static void backward_all(const KernelArgs& m, float* const* dx) {
    each_one<I>(m.yd->size(), [&](size_t i) DYC_LAMBDA {
      const uint32_t k = winner<I>(m, i);
      if (k < m.n && dx[k]) dx[k][i] += m.dy[i];
    });
  }
};

// attrs {d}: along dimension d, the other dimensions equal (absent ones count 1). concatenate_cols is d = 1.
struct Concatenate {
  static constexpr Meta meta = Meta::per_node("concatenate", "[x1; x2; ...]", Reads::none).shared_by_warps();
  static constexpr Param params[] = {{"xs", Param::exprs}, {"d", Param::uint, 0}};
  static Dim shape(const ShapeArgs& s) {
    const uint32_t axis = s.attrs[0];
    if (axis >= kMaxDims) shape_error(s, text("d < ", kMaxDims, ", not ", axis));
    Dim r = s[0];
    for (; r.nd <= axis; ++r.nd) r.d[r.nd] = 1;
    r.d[axis] = 0;
    for (uint32_t k = 0; k < s.n; ++k) {
      for (uint32_t i = 0; i < (s[k].nd > r.nd ? s[k].nd : r.nd); ++i)
        if (i != axis && s[k][i] != r[i])
          throw ValueError(text(s.op, "(): expected shapes equal but for dimension ", axis, ", got ", s[0],
                                " and, at position ", k, ", ", s[k]));
      r.d[axis] += s[k][axis];
    }
    r.bd = common_batch(s);
    return r;
  }

  // The result as blocks: one per outer position, argument k fills `chunk` elements of each at `offset`.
  struct Blocks {
    size_t inner, outer, block;
    uint32_t axis;
    DYC_INLINE explicit Blocks(const KernelArgs& m) : inner(1), outer(1), axis(m.attrs[0]) {
      const Dim& y = *m.yd;
      for (uint32_t i = 0; i < y.nd; ++i)
        if (i != axis) (i < axis ? inner : outer) *= y.d[i];
      block = inner * y.d[axis];
    }
    DYC_INLINE size_t chunk(const Dim& x) const { return inner * x[axis]; }
  };
  // Argument k to the result, or, with `add`, its gradient. All batch items at once, or for each of the
  // result that of an argument that has but one.
  template <class I, bool add>
  static DYC_INLINE void move(const KernelArgs& m, const Blocks& l, uint32_t k, size_t offset, float* dx) {
    const uint32_t batch = m.yd->bd, times = m.xd[k]->bd == batch ? 1 : batch;
    const size_t chunk = l.chunk(*m.xd[k]), count = times == 1 ? l.outer * batch : l.outer;
    for (uint32_t b = 0; b < times; ++b) {
      const size_t at = offset + b * l.outer * l.block, before = offset * l.outer;
      if constexpr (add) move_runs<I, true>(dx, m.dy + at, chunk, count, chunk, l.block, before);
      else move_runs<I, false>(m.out() + at, m.x[k], chunk, count, l.block, chunk, before);
    }
  }
  // Without batch and outer positions the arguments are in a row: move(k, offset, elements) of each. Lists
  // may be of scalars, for each of which a general move takes ten times as long.
  template <class F>
  static DYC_INLINE void in_a_row(const KernelArgs& m, F&& move) {
    const Dim* shape = nullptr;  // of the last argument
    size_t n = 0, offset = 0;
    for (uint32_t k = 0; k < m.n; ++k, offset += n) {
      if (m.xd[k] != shape) n = (shape = m.xd[k])->size();
      move(k, offset, n);
    }
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const Blocks l(m);
    if constexpr (!is_thread_group<I>)
      if (l.outer == 1 && m.yd->bd == 1)
        return in_a_row(m, [y = m.out(), x = m.x](uint32_t k, size_t at, size_t n) {
          move_runs<I, false>(y + at, x[k], n, 1, n, n);
        });
    size_t offset = 0;
    for (uint32_t k = 0; k < m.n; ++k) {
      move<I, false>(m, l, k, offset, nullptr);
      offset += l.chunk(*m.xd[k]);
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    const Blocks l(m);
    size_t offset = 0;
    for (uint32_t k = 0; k < arg; ++k) offset += l.chunk(*m.xd[k]);
    move<I, true>(m, l, arg, offset, m.dx);
  }
  template <class I>
  static void backward_all(const KernelArgs& m, float* const* dx) {
    const Blocks l(m);
    if constexpr (!is_thread_group<I>)
      if (l.outer == 1 && m.yd->bd == 1)
        return in_a_row(m, [dy = m.dy, dx](uint32_t k, size_t at, size_t n) {
          if (dx[k]) move_runs<I, true>(dx[k], dy + at, n, 1, n, n);
        });
    size_t offset = 0;
    for (uint32_t k = 0; k < m.n; ++k) {
      if (dx[k]) sync<I>(), move<I, true>(m, l, k, offset, dx[k]);
      offset += l.chunk(*m.xd[k]);
    }
  }
};

// xs {..}xB1, {..}xB2 ... -> {..}x(B1 + B2 + ...)
struct ConcatenateToBatch {
  static constexpr Meta meta =
      Meta::per_node("concatenate_to_batch", "batch [x1; x2; ...]", Reads::none).shared_by_warps();
  static constexpr Param params[] = {{"xs", Param::exprs}};
  static Dim shape(const ShapeArgs& s) {
    Dim r = equal_sizes(s, &Dim::same_sizes);
    for (uint32_t i = 1; i < s.n; ++i) r.bd += s[i].bd;
    return r;
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t item = m.ys();
    float* y = m.out();
    for (uint32_t k = 0; k < m.n; ++k) {
      const size_t n = item * m.xd[k]->bd;
      move_runs<I, false>(y, m.x[k], n, 1, n, n, static_cast<size_t>(y - m.out()));
      y += n;
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    const size_t item = m.ys();
    const float* dy = m.dy;
    for (uint32_t k = 0; k < arg; ++k) dy += item * m.xd[k]->bd;
    add_span<I>(m.dx, dy, item * m.xd[arg]->bd);
  }
  template <class I>
  static void backward_all(const KernelArgs& m, float* const* dx) {
    const size_t item = m.ys();
    const float* dy = m.dy;
    for (uint32_t k = 0; k < m.n; ++k) {
      const size_t n = item * m.xd[k]->bd;
      if (dx[k]) sync<I>(), move_runs<I, true>(dx[k], dy, n, 1, n, n, static_cast<size_t>(dy - m.dy));
      dy += n;
    }
  }
};

// The ops of this file, in the order of their numbers.
using ListOps = OpList<Esum, Average, Emax, Concatenate, ConcatenateToBatch>;

}  // namespace dyc
