// Ops that only rename or reorder memory, and the span and walk helpers that ops that move data share.
#pragma once
#include "ops/element_loops.h"
#include "ops/op.h"
#include "ops/tuning.h"

namespace dyc {

template <class I>
DYC_INLINE void copy_span(float* to, const float* from, size_t n) {
  if constexpr (is_thread_group<I>) each_one<I>(n, [&](size_t i) DYC_LAMBDA { to[i] = from[i]; });
  else if (n < 4)  // a call of memcpy costs more than this
    for (size_t i = 0; i < n; ++i) to[i] = from[i];
  else __builtin_memcpy(to, from, n * sizeof(float));
}

template <class I>
DYC_INLINE void add_span(float* to, const float* from, size_t n) {
  if constexpr (is_thread_group<I>) {
    each_one<I>(n, [&](size_t i) DYC_LAMBDA { to[i] += from[i]; });
    return;
  }
  using V = typename I::V;
  size_t i = 0;
  for (; i + I::lanes <= n; i += I::lanes) {
    V a, b;
    __builtin_memcpy(&a, to + i, sizeof(V));
    __builtin_memcpy(&b, from + i, sizeof(V));
    a += b;
    __builtin_memcpy(to + i, &a, sizeof(V));
  }
  for (; i < n; ++i) to[i] += from[i];
}

// Visits elements of a tensor at constant steps per axis, the other side being contiguous. Axis 0 is
// the fastest. 7 dimensions and the batch fit.
struct Walk {
  size_t count[kMaxDims + 1];
  size_t step[kMaxDims + 1];
  uint32_t n = 0;
  bool empty = false;

  // Axes that continue the one before are merged with it, so that the inner runs are long.
  DYC_INLINE void axis(size_t c, size_t s) {
    if (c == 1) return;
    empty = empty || c == 0;
    if (n && s == count[n - 1] * step[n - 1]) {
      count[n - 1] *= c;
    } else {
      count[n] = c;
      step[n++] = s;
    }
  }
};

// add = false: flat[k] = strided[offset(k)];  add = true: strided[offset(k)] += flat[k].
template <class I, bool add>
DYC_INLINE void move_run(float* to, const float* from, size_t n, size_t step) {
  if (step == 1) {
    if constexpr (add) add_span<I>(to, from, n);
    else copy_span<I>(to, from, n);
  } else {
    for (size_t i = 0; i < n; ++i) {
      if constexpr (add) to[i * step] += from[i];
      else to[i] = from[i * step];
    }
  }
}

// A matrix whose strided side is contiguous along axis 1: in tiles, so that both sides stay in cache; of
// these, four rows and columns at a time.
template <class I, bool add>
DYC_INLINE void move_tiles(float* to, const float* from, size_t rows, size_t cols, size_t step) {
  using tuning::kMoveTile;
  for (size_t c0 = 0; c0 < cols; c0 += kMoveTile) {
    const size_t c1 = c0 + kMoveTile < cols ? c0 + kMoveTile : cols;
    for (size_t r0 = 0; r0 < rows; r0 += kMoveTile) {
      const size_t r1 = r0 + kMoveTile < rows ? r0 + kMoveTile : rows;
      const auto one = [&](size_t r, size_t c) DYC_LAMBDA {
        if constexpr (add) to[r * step + c] += from[c * rows + r];
        else to[c * rows + r] = from[r * step + c];
      };
      size_t end_r = r0, end_c = c0;  // of the fours
      if constexpr (I::lanes >= 4) {
        end_r += (r1 - r0) / 4 * 4, end_c += (c1 - c0) / 4 * 4;
        for (size_t c = c0; c < end_c; c += 4)
          for (size_t r = r0; r < end_r; r += 4) {
            const size_t strided = r * step + c, flat = c * rows + r;
            if constexpr (add) transpose4(typename I::V{}, true, to + strided, step, from + flat, rows);
            else transpose4(typename I::V{}, false, to + flat, rows, from + strided, step);
          }
      }
      for (size_t c = c0; c < c1; ++c)
        for (size_t r = c < end_c ? end_r : r0; r < r1; ++r) one(r, c);
    }
  }
}

// `count` runs of n elements, each at its step from the one before. `before`: elements that the node has
// moved.
template <class I, bool add>
DYC_INLINE void move_runs(float* to, const float* from, size_t n, size_t count, size_t to_step,
                          size_t from_step, size_t before = 0) {
  if constexpr (is_thread_group<I>) {
    const auto size = static_cast<uint32_t>(n);
    each_one_after<I>(before, n * count, [&](size_t i) DYC_LAMBDA {
      const size_t run = static_cast<uint32_t>(i) / size, at = i - run * n;
      if constexpr (add) to[run * to_step + at] += from[run * from_step + at];
      else to[run * to_step + at] = from[run * from_step + at];
    });
  } else {
    for (size_t k = 0; k < count; ++k, to += to_step, from += from_step) {
      if (n == 1) *to = add ? *to + *from : *from;
      else if constexpr (add) add_span<I>(to, from, n);
      else copy_span<I>(to, from, n);
    }
  }
}

template <class I, bool add>
DYC_INLINE void walk_by_group(const Walk& w, float* to, const float* from) {
  size_t n = 1;
  for (uint32_t k = 0; k < w.n; ++k) n *= w.count[k];
  each_one<I>(n, [&](size_t flat) DYC_LAMBDA {
    size_t strided = 0;
    auto rest = static_cast<uint32_t>(flat);
    for (uint32_t k = 0; k < w.n; ++k) {
      const auto count = static_cast<uint32_t>(w.count[k]), left = k + 1 < w.n ? rest / count : 0;
      strided += (rest - left * count) * w.step[k];
      rest = left;
    }
    if constexpr (add) to[strided] += from[flat];
    else to[flat] = from[strided];
  });
}

template <class I, bool add>
DYC_INLINE void walk(const Walk& w, float* to, const float* from) {
  if (w.empty) return;
  if constexpr (is_thread_group<I>) {
    walk_by_group<I, add>(w, to, from);
    return;
  }
  if (w.n == 0) {
    *to = add ? *to + *from : *from;
    return;
  }
  if (w.n == 1) {
    move_run<I, add>(to, from, w.count[0], w.step[0]);
    return;
  }
  const bool tiles = w.step[0] != 1 && w.step[1] == 1;
  const uint32_t inner = tiles ? 2 : 1;
  const size_t run = tiles ? w.count[0] * w.count[1] : w.count[0];
  size_t at[kMaxDims + 1] = {};
  size_t flat = 0, strided = 0;
  for (;;) {
    float* const t = to + (add ? strided : flat);
    const float* const f = from + (add ? flat : strided);
    if (tiles) move_tiles<I, add>(t, f, w.count[0], w.count[1], w.step[0]);
    else move_run<I, add>(t, f, run, w.step[0]);
    flat += run;
    uint32_t k = inner;
    for (; k < w.n; ++k) {
      strided += w.step[k];
      if (++at[k] < w.count[k]) break;
      strided -= w.count[k] * w.step[k];
      at[k] = 0;
    }
    if (k == w.n) return;
  }
}

// attrs {number of sizes, sizes..., batch size}. The recorded function takes the sizes as one tuple.
// The sizes count all elements, or, with batch size 1, those of one batch item (the batch is kept).
struct Reshape {
  static constexpr Meta meta = Meta::no_launch(OpKind::view, "reshape", "reshape(x)", Reads::none);
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) {
    const uint32_t nd = s.attrs[0], batch = s.attrs[nd + 1];
    if (nd > kMaxDims) shape_error(s, text("at most ", kMaxDims, " sizes"));
    Dim r;
    uint64_t n = 1;
    bool fits = true;  // stops before the product can wrap
    for (uint32_t i = 0; i < nd; ++i) {
      r.d[r.nd++] = s.attrs[i + 1];
      n *= s.attrs[i + 1];
      fits = fits && n <= UINT32_MAX;
    }
    r.bd = batch;
    if (fits && n * batch == s[0].size()) return r;
    if (fits && batch == 1 && n == s[0].batch_size()) {
      r.bd = s[0].bd;
      return r;
    }
    shape_error(s, text("as many elements as ", r));
  }
};

// Ops that move data one way forward, the other way backward: Op::run<I, add>(m).
template <class Op>
struct Moves {
  template <class I>
  static void forward(const KernelArgs& m) {
    Op::template run<I, false>(m);
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    Op::template run<I, true>(m);
  }
};

// attrs {number of axes, axes...}: dimension i of the result is dimension axes[i] of x. Fewer or more axes
// than x has are allowed if x has just one dimension that is not 1. If the axes that are not 1 keep their
// order the memory keeps its order too (the result could be a view).
struct Transpose : Moves<Transpose> {
  static constexpr Meta meta =
      Meta::per_node("transpose", "transpose(x)", Reads::none).shared_by_warps().hide();
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) {
    const Dim& x = s[0];
    const uint32_t n = s.attrs[0];
    uint32_t long_axes = 0;
    for (uint32_t i = 0; i < x.nd; ++i) long_axes += x.d[i] != 1;
    if (n > kMaxDims || (n != x.nd && long_axes != 1))
      shape_error(s, text("one entry of dims per dimension, not ", n));
    Dim r;
    r.bd = x.bd;
    uint32_t seen = 0;  // axes beyond those of x count 1 element and may repeat
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t a = s.attrs[i + 1];
      if (a >= x.nd && n == x.nd && long_axes != 1) shape_error(s, text("dims < ", x.nd, ", not ", a));
      if (a < x.nd && (seen & (1u << a))) shape_error(s, text("dims without repetition, not ", a, " twice"));
      if (a < x.nd) seen |= 1u << a;
      r.d[r.nd++] = x[a];
    }
    if (r.batch_size() != x.batch_size()) shape_error(s, "dims that name every dimension");
    return r;
  }
  static DYC_INLINE Walk walk_of(const KernelArgs& m) {
    const Dim& x = *m.xd[0];
    size_t step[kMaxDims], size = 1;
    for (uint32_t i = 0; i < x.nd; ++i) {
      step[i] = size;
      size *= x.d[i];
    }
    Walk w;
    for (uint32_t i = 0; i < m.attrs[0]; ++i) {
      const uint32_t a = m.attrs[i + 1];
      if (a < x.nd) w.axis(x.d[a], step[a]);
    }
    w.axis(x.bd, size);
    return w;
  }
  template <class I, bool add>
  static DYC_INLINE void run(const KernelArgs& m) {
    if constexpr (add) walk<I, true>(walk_of(m), m.dx, m.dy);
    else walk<I, false>(walk_of(m), m.out(), m.x[0]);
  }
};

// Everything lives on one device: the same memory. Recorded by hand, which checks the device's name.
struct ToDevice {
  static constexpr Meta meta = Meta::no_launch(OpKind::view, "to_device", "to_device(x)", Reads::none);
  static constexpr Param params[] = {{"e"}};
  static Dim shape(const ShapeArgs& s) { return same_as_x(s); }
};

// The ops of this file, in the order of their numbers.
using ShapeOps = OpList<Reshape, Transpose, ToDevice>;

}  // namespace dyc
