// Ops that keep the largest elements of windows or lines, or add up neighbouring columns.
#pragma once
#include "ops/conv.h"
#include "ops/element_loops.h"
#include "ops/shape.h"
#include "ops/tuning.h"

namespace dyc {

// attrs {window rows, window columns, rows' stride, columns' stride, is_valid}.
// x {H,W[,C]}xB -> {YH,YW[,C]}xB. The gradient goes to the first maximum, going along the window's rows.
struct MaxPooling2d {
  static constexpr Meta meta = Meta::per_node("maxpooling2d", "maxpooling2d(x)", Reads::x_and_y).hide();
  static constexpr Param params[] = {{"x"}};

  struct Windows {
    WindowAxis h, w;
    size_t x_plane, y_plane, planes;
    Windows(const Dim& x, const uint32_t* a)
        : h(WindowAxis::of(a + 2, 0, x.rows(), a[0])),
          w(WindowAxis::of(a + 2, 1, x.cols(), a[1])),
          x_plane(size_t{x.rows()} * x.cols()),
          y_plane(static_cast<size_t>(h.y) * static_cast<size_t>(w.y)),
          planes(x.size() / x_plane) {}
  };

  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd != 2 && s[0].nd != 3) shape_error(s, "2 or 3 dimensions {rows, columns, channels}");
    const uint32_t *a = s.attrs, *k = a;
    if (k[0] == 0 || k[1] == 0) shape_error(s, text("ksize >= 1, not [", k[0], ", ", k[1], "]"));
    check_window(s, a + 2, k[0], k[1]);
    const Windows v(s[0], a);
    Dim r = s[0];
    r.d[0] = static_cast<uint32_t>(v.h.y);
    r.d[1] = static_cast<uint32_t>(v.w.y);
    return r;
  }

  // The part of a window that is inside x.
  static DYC_INLINE void clip(const WindowAxis& a, int64_t o, int64_t* begin, int64_t* end) {
    const int64_t first = o * a.stride - a.pad, last = first + a.f;
    *begin = first < 0 ? 0 : first;
    *end = last < a.x ? last : a.x;
  }

  static constexpr int64_t kLine = tuning::kPoolingRows;

  // top[i] = max over columns [c0, c1) of row `first + i`, -inf outside of x; 0 <= i < n.
  template <class I>
  static DYC_INLINE void column_maxima(const float* x, int64_t rows, int64_t c0, int64_t c1, int64_t first,
                                       int64_t n, float* top) {
    const int64_t lo = first < 0 ? -first : 0, hi = first + n < rows ? n : rows - first;
    for (int64_t i = 0; i < lo && i < n; ++i) top[i] = -__builtin_inff();
    for (int64_t i = hi < lo ? lo : hi; i < n; ++i) top[i] = -__builtin_inff();
    if (hi <= lo) return;
    const float* from = x + first + lo;
    each<I>(static_cast<size_t>(hi - lo), [&](size_t i, auto c) DYC_LAMBDA {
      auto best = c.get(from + c0 * rows + i);
      for (int64_t k = c0 + 1; k < c1; ++k) best = vmax(best, c.get(from + k * rows + i));
      c.put(top + lo + i, best);
    });
  }
  // y[o] = max of top[o * stride ... + k)
  template <class I>
  static DYC_INLINE void row_maxima(const float* __restrict top, int64_t k, int64_t stride,
                                    float* __restrict y, int64_t n) {
    if (stride == 1) {
      each<I>(static_cast<size_t>(n), [&](size_t i, auto c) DYC_LAMBDA {
        auto best = c.get(top + i);
        for (int64_t j = 1; j < k; ++j) best = vmax(best, c.get(top + i + j));
        c.put(y + i, best);
      });
    } else if (stride == 2 && k == 2) {
      for (int64_t o = 0; o < n; ++o) y[o] = top[2 * o] > top[2 * o + 1] ? top[2 * o] : top[2 * o + 1];
    } else {
      for (int64_t o = 0; o < n; ++o) {
        float best = top[o * stride];
        for (int64_t j = 1; j < k; ++j) best = best > top[o * stride + j] ? best : top[o * stride + j];
        y[o] = best;
      }
    }
  }
  // One column of results.
  template <class I>
  static DYC_INLINE void pool_column(const Windows& v, const float* x, int64_t ow, float* y) {
    float top[kLine];
    int64_t c0, c1;
    clip(v.w, ow, &c0, &c1);
    if (v.h.f > kLine) {  // one window at a time, its rows in pieces
      for (int64_t o = 0; o < v.h.y; ++o) {
        int64_t r0, r1;
        clip(v.h, o, &r0, &r1);
        float best = -__builtin_inff();
        for (int64_t r = r0; r < r1; r += kLine) {
          const int64_t n = r1 - r < kLine ? r1 - r : kLine;
          column_maxima<I>(x, v.h.x, c0, c1, r, n, top);
          for (int64_t i = 0; i < n; ++i) best = best > top[i] ? best : top[i];
        }
        y[o] = best;
      }
      return;
    }
    const int64_t most = v.h.stride > kLine ? 1 : (kLine - v.h.f) / v.h.stride + 1;
    for (int64_t o = 0; o < v.h.y; o += most) {
      const int64_t n = v.h.y - o < most ? v.h.y - o : most;
      column_maxima<I>(x, v.h.x, c0, c1, o * v.h.stride - v.h.pad, (n - 1) * v.h.stride + v.h.f, top);
      row_maxima<I>(top, v.h.f, v.h.stride, y + o, n);
    }
  }
  // Every result for itself; the same order of comparisons, which decides where elements are NaN.
  template <class I>
  static DYC_INLINE void pool_by_group(const Windows& v, const float* x, float* y) {
    each_one<I>(v.planes * v.y_plane, [&](size_t i) DYC_LAMBDA {
      const size_t plane = i / v.y_plane, at = i - plane * v.y_plane;
      const float* const from = x + plane * v.x_plane;
      const int64_t ow = static_cast<int64_t>(at) / v.h.y, oh = static_cast<int64_t>(at) - ow * v.h.y;
      int64_t c0, c1;
      clip(v.w, ow, &c0, &c1);
      float best = -__builtin_inff();
      for (int64_t k = 0; k < v.h.f; ++k) {
        const int64_t row = oh * v.h.stride - v.h.pad + k;
        float top = -__builtin_inff();
        if (row >= 0 && row < v.h.x) {
          top = from[c0 * v.h.x + row];
          for (int64_t c = c0 + 1; c < c1; ++c) top = vmax_of(top, from[c * v.h.x + row]);
        }
        best = k ? vmax_of(best, top) : top;
      }
      y[i] = best;
    });
  }
  template <class T>
  static DYC_INLINE T vmax_of(T a, T b) {
    return vmax(a, b);
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const Windows v(*m.xd[0], m.attrs);
    if constexpr (is_thread_group<I>) {
      pool_by_group<I>(v, m.x[0], m.out());
      return;
    }
    for (size_t p = 0; p < v.planes; ++p)
      for (int64_t ow = 0; ow < v.w.y; ++ow)
        pool_column<I>(v, m.x[0] + p * v.x_plane, ow, m.out() + p * v.y_plane + ow * v.h.y);
  }

  // Where the largest element `top` of a window is; -1 if it is NaN. Small windows are read from the end on,
  // without branches.
  static DYC_INLINE int64_t first_maximum(const float* x, int64_t rows, int64_t r0, int64_t r1, int64_t c0,
                                          int64_t c1, float top) {
    if ((r1 - r0) * (c1 - c0) > tuning::kSmallWindow) {
      for (int64_t r = r0; r < r1; ++r)
        for (int64_t c = c0; c < c1; ++c)
          if (x[c * rows + r] == top) return c * rows + r;
      return -1;
    }
    int64_t found = -1;
    for (int64_t r = r1; r-- > r0;)
      for (int64_t c = c1, at = c1 * rows + r; c-- > c0;) {
        at -= rows;
        found = x[at] == top ? at : found;
      }
    return found;
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const Windows v(*m.xd[0], m.attrs);
    each_one<I>(v.planes, [&](size_t p) DYC_LAMBDA {  // windows of a plane may overlap
      const float *y = m.y + p * v.y_plane, *dy = m.dy + p * v.y_plane;
      const float* const x = m.x[0] + p * v.x_plane;
      float* const dx = m.dx + p * v.x_plane;
      for (int64_t ow = 0; ow < v.w.y; ++ow) {
        int64_t r0, r1, c0, c1;
        clip(v.w, ow, &c0, &c1);
        for (int64_t oh = 0; oh < v.h.y; ++oh, ++y, ++dy) {
          clip(v.h, oh, &r0, &r1);
          const int64_t at = first_maximum(x, v.h.x, r0, r1, c0, c1, *y);
          if (at >= 0) dx[at] += *dy;
        }
      }
    });
  }
};

// attrs {k, d}: along dimension d, the first k elements that are not below the k-th largest: the k largest in
// the order they have in x, and where some equal the k-th, the first ones, even before larger ones. A NaN
// counts as -inf. {..,n,..}xB -> {..,k,..}xB
struct KMaxPooling {
  static constexpr Meta meta = Meta::per_node("kmax_pooling", "kmax_pooling(x, k)", Reads::x_and_y);
  static constexpr Param params[] = {{"x"}, {"k", Param::uint}, {"d", Param::uint, 1}};
  static Dim shape(const ShapeArgs& s) {
    const uint32_t k = s.attrs[0], axis = s.attrs[1];
    check_axis(s, axis, 3);
    if (k < 1 || k > s[0].d[axis]) shape_error(s, text("1 <= k <= ", s[0].d[axis], ", not ", k));
    Dim r = s[0];
    r.d[axis] = k;
    return r;
  }

  // A template, so that compilers without the builtin can read it.
  template <class T>
  static DYC_INLINE T rank(T x) {
    return x != x ? -__builtin_inff() : x;
  }

  // Lets heap[at] down to its place among its children: heap[0] is the least of k.
  static DYC_INLINE void sink(float* heap, size_t k, size_t step, size_t at) {
    const float v = heap[at * step];
    for (size_t child; (child = 2 * at + 1) < k; at = child) {
      if (child + 1 < k && heap[(child + 1) * step] < heap[child * step]) ++child;
      if (!(heap[child * step] < v)) break;
      heap[at * step] = heap[child * step];
    }
    heap[at * step] = v;
  }
  // f(line of x, line of y) for the positions of their first elements.
  template <class I, class F>
  static DYC_INLINE void each_line(const AxisRuns& a, size_t k, F f) {
    each_one<I>(a.outer * a.inner, [&](size_t line) DYC_LAMBDA {
      const size_t o = line / a.inner, i = line - o * a.inner;
      f(o * a.inner * a.len + i, o * a.inner * k + i);
    });
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const AxisRuns a(*m.xd[0], m.attrs[1]);
    const size_t k = m.attrs[0], step = a.inner;
    each_line<I>(a, k, [&](size_t from, size_t to) DYC_LAMBDA {
      const float* const x = m.x[0] + from;
      float* const y = m.out() + to;
      for (size_t i = 0; i < k; ++i) y[i * step] = rank(x[i * step]);
      for (size_t i = k / 2; i-- > 0;) sink(y, k, step, i);
      for (size_t i = k; i < a.len; ++i) {
        if (!(x[i * step] > y[0])) continue;
        y[0] = x[i * step];
        sink(y, k, step, 0);
      }
      const float least = y[0];
      for (size_t i = 0, j = 0; j < k; ++i)
        if (rank(x[i * step]) >= least) y[j++ * step] = x[i * step];
    });
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const AxisRuns a(*m.xd[0], m.attrs[1]);
    const size_t k = m.attrs[0], step = a.inner;
    each_line<I>(a, k, [&](size_t from, size_t to) DYC_LAMBDA {
      float least = rank(m.y[to]);  // the k-th largest is always kept
      for (size_t i = 1; i < k; ++i) {
        const float r = rank(m.y[to + i * step]);
        least = r < least ? r : least;
      }
      for (size_t i = 0, j = 0; j < k; ++i)
        if (rank(m.x[0][from + i * step]) >= least) m.dx[from + i * step] += m.dy[to + j++ * step];
    });
  }
};

// attrs {v}: sums of v neighbouring columns. {r,c}xB -> {r,c-v+1}xB
struct KmhNgram {
  static constexpr Meta meta = Meta::per_node("kmh_ngram", "kmh_ngram(x, v)", Reads::none);
  static constexpr Param params[] = {{"x"}, {"v", Param::uint}};
  static Dim shape(const ShapeArgs& s) {
    const uint32_t v = s.attrs[0];
    if (s[0].nd != 2) shape_error(s, "a matrix");
    if (v < 1 || v > s[0].cols()) shape_error(s, text("1 <= v <= ", s[0].cols(), ", not ", v));
    return Dim({s[0].rows(), s[0].cols() - v + 1}, s[0].bd);
  }
  // Neighbouring columns are one column's length apart: a whole item is one run.
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t rows = m.xd[0]->rows();
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float* const x = m.xb(0, b);
      float* const y = m.yb(b);
      each<I>(m.ys(), [&](size_t i, auto c) DYC_LAMBDA {
        auto sum = c.get(x + i);
        for (uint32_t k = 1; k < m.attrs[0]; ++k) sum += c.get(x + i + k * rows);
        c.put(y + i, sum);
      });
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const size_t rows = m.xd[0]->rows();
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      for (uint32_t k = 0; k < m.attrs[0]; ++k) {
        sync<I>();  // parts of dx go to other threads with each k
        add_span<I>(m.dxb(0, b) + k * rows, m.dyb(b), m.ys());
      }
  }
};

// The ops of this file, in the order of their numbers.
using PoolingOps = OpList<MaxPooling2d, KMaxPooling, KmhNgram>;

}  // namespace dyc
