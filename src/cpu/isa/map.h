// Loops that run the element-wise ops (ops/elementwise.h, ops/arithmetic.h). For sources compiled per
// instruction set only; they include this header before any other header of ops/, because the ops look up
// vexp, select ... by plain name where they are defined.
//
// Bitwise rule: the value of an element must not depend on where in a launch it stands. Every loop is one
// function that is never inlined or cloned and sees whole vectors only; a tail is copied to a padded buffer
// and goes through the same machine code, so that FMA contraction cannot differ between body and tail.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cpu/isa/tuning.h"

namespace dyc {
using namespace DYC_ISA;
}

#include "ops/kernel_args.h"
#include "ops/long_sum.h"
#include "ops/op.h"
#include "ops/scratch.h"

#if defined(__has_attribute) && __has_attribute(noipa)
#define DYC_ONE_BODY __attribute__((noipa))
#else
#define DYC_ONE_BODY __attribute__((noinline))
#endif

namespace dyc::DYC_ISA {

struct Isa;

// The attribute words, copied to locals: through a pointer every store to the result might change them.
template <class Op> struct Attrs {
  static constexpr int count() {
    int n = 0;
    for (const Param& p : Op::params)
      n += p.kind == Param::real || p.kind == Param::uint || p.kind == Param::flag;
    return n;
  }
  float a[count() > 0 ? count() : 1];
  DYC_INLINE explicit Attrs(const float* words) {
    if constexpr (count() > 0) __builtin_memcpy(a, words, sizeof a);
  }
  DYC_INLINE operator const float*() const { return a; }
};

// One vector of a tail: the first n floats of p, then zeros.
struct Tail {
  alignas(64) float v[kLanes];
  DYC_INLINE Tail() {}
  DYC_INLINE Tail(const float* p, int n) { store(v, load_n(p, n)); }
  DYC_INLINE void put(float* p, int n) const { store_n(p, load<V>(v), n); }
};

// ---- y = f(x)

template <class Op> DYC_ONE_BODY void loop1(const float* x, float* y, size_t n, const float* attrs) {
  const Attrs<Op> a(attrs);
  for (size_t i = 0; i < n; i += kLanes) store(y + i, Op::f(load<V>(x + i), a));
}

template <class Op> inline void map1(const float* x, float* y, size_t n, const float* attrs) {
  const size_t whole = n / kLanes * kLanes;
  const int rest = static_cast<int>(n - whole);
  if (whole) loop1<Op>(x, y, whole, attrs);
  if (!rest) return;
  Tail in(x + whole, rest), out;
  loop1<Op>(in.v, out.v, kLanes, attrs);
  out.put(y + whole, rest);
}

template <class Op>
DYC_ONE_BODY void loop1_back(const float* x, const float* y, const float* dy, float* dx, size_t n,
                             const float* attrs) {
  const Attrs<Op> a(attrs);
  for (size_t i = 0; i < n; i += kLanes) {
    V xv{}, yv{};
    if constexpr (Op::meta.reads_x) xv = load<V>(x + i);
    if constexpr (Op::meta.reads_y) yv = load<V>(y + i);
    store(dx + i, vfma(load<V>(dy + i), Op::df(xv, yv, a), load<V>(dx + i)));
  }
}

// dx += dy * df. x is read only with Meta::reads_x, y only with Meta::reads_y: either may be null otherwise.
template <class Op>
inline void map1_back(const float* x, const float* y, const float* dy, float* dx, size_t n,
                      const float* attrs) {
  const size_t whole = n / kLanes * kLanes;
  const int rest = static_cast<int>(n - whole);
  if (whole) loop1_back<Op>(x, y, dy, dx, whole, attrs);
  if (!rest) return;
  Tail xt, yt, dyt(dy + whole, rest), dxt(dx + whole, rest);
  if constexpr (Op::meta.reads_x) xt = Tail(x + whole, rest);
  if constexpr (Op::meta.reads_y) yt = Tail(y + whole, rest);
  loop1_back<Op>(xt.v, yt.v, dyt.v, dxt.v, kLanes, attrs);
  dxt.put(dx + whole, rest);
}

// ---- z = f(x, y) over one row: an operand is a row of n floats, or one float for the whole row (X1, Y1)

template <bool One> DYC_INLINE V operand(const float* p, size_t i) {
  if constexpr (One) return splat<V>(*p);
  return load<V>(p + i);
}

template <class Op, bool X1, bool Y1>
DYC_ONE_BODY void loop2(const float* x, const float* y, float* z, size_t n, const float* attrs) {
  const Attrs<Op> a(attrs);
  const V x1 = operand<true>(x, 0), y1 = operand<true>(y, 0);
  for (size_t i = 0; i < n; i += kLanes)
    store(z + i, Op::f(X1 ? x1 : load<V>(x + i), Y1 ? y1 : load<V>(y + i), a));
}

template <class Op, bool X1, bool Y1>
inline void row2(const float* x, const float* y, float* z, size_t n, const float* attrs) {
  const size_t whole = n / kLanes * kLanes;
  const int rest = static_cast<int>(n - whole);
  if (whole) loop2<Op, X1, Y1>(x, y, z, whole, attrs);
  if (!rest) return;
  Tail xt, yt, zt;
  if constexpr (!X1) xt = Tail(x + whole, rest);
  if constexpr (!Y1) yt = Tail(y + whole, rest);
  loop2<Op, X1, Y1>(X1 ? x : xt.v, Y1 ? y : yt.v, zt.v, kLanes, attrs);
  zt.put(z + whole, rest);
}

// x and y may be the same memory, z may be that of x or y.
template <class Op> inline void map2(const float* x, const float* y, float* z, size_t n, const float* attrs) {
  row2<Op, false, false>(x, y, z, n, attrs);
}

// dz/dx (Arg 0) or dz/dy (Arg 1) of one vector.
template <class Op, int Arg> DYC_INLINE V slope(V x, V y, V z, const float* a) {
  if constexpr (Arg == 0) return Op::dx(x, y, z, a);
  else return Op::dy(x, y, z, a);
}

// Sum: the products of dz and the slope go to g; otherwise they are added to g.
template <class Op, int Arg, bool X1, bool Y1, bool Sum>
DYC_ONE_BODY void loop2_back(const float* x, const float* y, const float* z, const float* dz, float* g,
                             size_t n, const float* attrs) {
  const Attrs<Op> a(attrs);
  V x1{}, y1{};
  if constexpr (Op::meta.reads_x) x1 = operand<true>(x, 0), y1 = operand<true>(y, 0);
  for (size_t i = 0; i < n; i += kLanes) {
    V xv = x1, yv = y1, zv{};
    if constexpr (Op::meta.reads_x && !X1) xv = load<V>(x + i);
    if constexpr (Op::meta.reads_x && !Y1) yv = load<V>(y + i);
    if constexpr (Op::meta.reads_y) zv = load<V>(z + i);
    const V s = slope<Op, Arg>(xv, yv, zv, a);
    if constexpr (Sum) store(g + i, load<V>(dz + i) * s);
    else store(g + i, vfma(load<V>(dz + i), s, load<V>(g + i)));
  }
}

// The tail of a row from place `at`: one vector through loop2_back, g in and out through a buffer.
template <class Op, int Arg, bool X1, bool Y1, bool Sum>
inline Tail tail2_back(const float* x, const float* y, const float* z, const float* dz, const float* g,
                       size_t at, int rest, const float* attrs) {
  Tail xt, yt, zt, dzt(dz + at, rest), gt;
  if constexpr (Op::meta.reads_x && !X1) xt = Tail(x + at, rest);
  if constexpr (Op::meta.reads_x && !Y1) yt = Tail(y + at, rest);
  if constexpr (Op::meta.reads_y) zt = Tail(z + at, rest);
  if constexpr (!Sum) gt = Tail(g + at, rest);
  loop2_back<Op, Arg, X1, Y1, Sum>(X1 ? x : xt.v, Y1 ? y : yt.v, zt.v, dzt.v, gt.v, kLanes, attrs);
  return gt;
}

// g += dz * slope, for an argument that has a row of its own.
template <class Op, int Arg, bool X1, bool Y1>
inline void row2_back(const float* x, const float* y, const float* z, const float* dz, float* g, size_t n,
                      const float* attrs) {
  const size_t whole = n / kLanes * kLanes;
  const int rest = static_cast<int>(n - whole);
  if (whole) loop2_back<Op, Arg, X1, Y1, false>(x, y, z, dz, g, whole, attrs);
  if (rest) tail2_back<Op, Arg, X1, Y1, false>(x, y, z, dz, g, whole, rest, attrs).put(g + whole, rest);
}

// Sum over the row of dz * slope, for an argument that is one float per row.
template <class Op, int Arg>
inline float row2_sum(const float* x, const float* y, const float* z, const float* dz, size_t n,
                      const float* attrs) {
  constexpr bool X1 = Arg == 0, Y1 = Arg == 1;
  alignas(64) float g[kSlopeBlock];
  const size_t whole = n / kLanes * kLanes;
  const int rest = static_cast<int>(n - whole);
  LongSum<V> sum;
  for (size_t at = 0; at < whole; at += kSlopeBlock) {
    const size_t m = whole - at < kSlopeBlock ? whole - at : kSlopeBlock;
    const auto from = [at](const float* p, bool read) { return read ? p + at : p; };
    loop2_back<Op, Arg, X1, Y1, true>(from(x, Op::meta.reads_x && !X1), from(y, Op::meta.reads_x && !Y1),
                                      from(z, Op::meta.reads_y), dz + at, g, m, attrs);
    for (size_t i = 0; i < m; i += kLanes) sum.add(load<V>(g + i));
  }
  if (rest) {
    const Tail t = tail2_back<Op, Arg, X1, Y1, true>(x, y, z, dz, nullptr, whole, rest, attrs);
    sum.add(load_n(t.v, rest));
  }
  return hsum(sum.total());
}

// dx += dz * dz/dx and dy += dz * dz/dy over n elements; dx and dy may be null and may be the same memory.
template <class Op>
inline void map2_back(const float* x, const float* y, const float* z, const float* dz, float* dx, float* dy,
                      size_t n, const float* attrs) {
  if (dx) row2_back<Op, 0, false, false>(x, y, z, dz, dx, n, attrs);
  if (dy) row2_back<Op, 1, false, false>(x, y, z, dz, dy, n, attrs);
}

// ---- broadcasting

// The dimensions of z, batch last, with neighbours merged where x and y both go on or both repeat: equal
// dimensions become one row, and so does anything with a scalar.
struct Broadcast {
  struct Axis {
    size_t extent, x, y;  // x, y: steps of the operands; 0 = repeated
  };
  Axis axis[kMaxDims + 1];
  int n = 0;
  size_t x_size = 1, y_size = 1;

  DYC_INLINE Broadcast(const Dim& x, const Dim& y, const Dim& z) {
    for (uint32_t i = 0; i < z.nd; ++i) add(z.d[i], x[i], y[i]);
    add(z.bd, x.bd, y.bd);
    if (n == 0) axis[n++] = {1, 1, 1};
  }
  DYC_INLINE void add(size_t extent, size_t x, size_t y) {
    if (extent == 1) return;
    const bool x_on = x != 1, y_on = y != 1;
    if (n > 0 && (axis[n - 1].x != 0) == x_on && (axis[n - 1].y != 0) == y_on) axis[n - 1].extent *= extent;
    else axis[n++] = {extent, x_on ? x_size : 0, y_on ? y_size : 0};
    if (x_on) x_size *= extent;
    if (y_on) y_size *= extent;
  }

  // row(x offset, y offset, z offset) for each row (first axis) in memory order.
  template <class Row> DYC_INLINE void rows(Row row) const {
    size_t at[kMaxDims + 1] = {}, xo = 0, yo = 0, zo = 0;
    for (;;) {
      row(xo, yo, zo);
      zo += axis[0].extent;
      int k = 1;
      for (; k < n; ++k) {
        xo += axis[k].x;
        yo += axis[k].y;
        if (++at[k] < axis[k].extent) break;
        at[k] = 0;
        xo -= axis[k].x * axis[k].extent;
        yo -= axis[k].y * axis[k].extent;
      }
      if (k >= n) return;
    }
  }
};

// Not Dim's own operators: what several instruction sets share must be inlined for certain.
DYC_INLINE bool same_dims(const Dim& a, const Dim& b) {
  if (&a == &b) return true;
  bool same = a.nd == b.nd && a.bd == b.bd;
  for (uint32_t i = 0; i < a.nd; ++i) same = same && a.d[i] == b.d[i];
  return same;
}

DYC_INLINE const float* attrs_of(const KernelArgs& m) { return reinterpret_cast<const float*>(m.attrs); }

template <class Op, class I = Isa> inline void broadcast_forward(const KernelArgs& m) {
  if (same_dims(*m.xd[0], *m.xd[1])) return map2<Op>(m.x[0], m.x[1], m.out(), m.yd->size(), attrs_of(m));
  const Broadcast b(*m.xd[0], *m.xd[1], *m.yd);
  const float* attrs = attrs_of(m);
  const size_t n = b.axis[0].extent;
  const auto rows = [&](auto row) {
    b.rows([&](size_t xo, size_t yo, size_t zo) { row(m.x[0] + xo, m.x[1] + yo, m.out() + zo); });
  };
  using P = const float*;
  if (b.axis[0].x == 0) rows([&](P xr, P yr, float* zr) { row2<Op, true, false>(xr, yr, zr, n, attrs); });
  else if (b.axis[0].y == 0)
    rows([&](P xr, P yr, float* zr) { row2<Op, false, true>(xr, yr, zr, n, attrs); });
  else rows([&](P xr, P yr, float* zr) { row2<Op, false, false>(xr, yr, zr, n, attrs); });
}

// The rows of b, where the operands begin at x, y, z; adds to g.
template <class Op, int Arg>
inline void broadcast_backward_rows(const Broadcast& b, const float* x, const float* y, const float* z,
                                    const float* dz, float* g, const float* attrs) {
  const size_t n = b.axis[0].extent;
  const size_t own = Arg == 0 ? b.axis[0].x : b.axis[0].y, other = Arg == 0 ? b.axis[0].y : b.axis[0].x;
  const auto rows = [&](auto row) {
    b.rows([&](size_t xo, size_t yo, size_t zo) {
      row(x + xo, y + yo, z + zo, dz + zo, g + (Arg == 0 ? xo : yo));
    });
  };
  using P = const float*;
  if (own == 0)
    rows([&](P xr, P yr, P zr, P dz, float* dx) { *dx += row2_sum<Op, Arg>(xr, yr, zr, dz, n, attrs); });
  else if (other == 0)
    rows([&](P xr, P yr, P zr, P dz, float* dx) {
      row2_back<Op, Arg, Arg == 1, Arg == 0>(xr, yr, zr, dz, dx, n, attrs);
    });
  else
    rows([&](P xr, P yr, P zr, P dz, float* dx) {
      row2_back<Op, Arg, false, false>(xr, yr, zr, dz, dx, n, attrs);
    });
}

// g + low += part, which is then 0.
inline void close_part(float* part, float* g, float* low, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    add_exactly(g[i], low[i], part[i]);
    part[i] = 0;
  }
}

// Where the last axis repeats the operand many times, its repetitions are summed in blocks.
template <class Op, int Arg> inline void broadcast_backward_of(const KernelArgs& m) {
  if (same_dims(*m.xd[0], *m.xd[1]))
    return row2_back<Op, Arg, false, false>(m.x[0], m.x[1], m.y, m.dy, m.dx, m.yd->size(), attrs_of(m));
  Broadcast b(*m.xd[0], *m.xd[1], *m.yd);
  Broadcast::Axis& last = b.axis[b.n - 1];
  const size_t repeats = last.extent;
  if (b.n == 1 || repeats <= kSumBlock || (Arg == 0 ? last.x : last.y) != 0)
    return broadcast_backward_rows<Op, Arg>(b, m.x[0], m.x[1], m.y, m.dy, m.dx, attrs_of(m));
  const size_t n = Arg == 0 ? b.x_size : b.y_size, step = m.yd->size() / repeats;
  ScratchArray<float> part(n), low(n);
  __builtin_memset(part.get(), 0, n * sizeof(float));
  __builtin_memset(low.get(), 0, n * sizeof(float));
  for (size_t at = 0; at < repeats; at += kSumBlock) {
    last.extent = repeats - at < kSumBlock ? repeats - at : kSumBlock;
    const auto from = [at](const float* p, size_t each) { return p ? p + at * each : p; };
    broadcast_backward_rows<Op, Arg>(b, from(m.x[0], last.x), from(m.x[1], last.y), from(m.y, step),
                                     m.dy + at * step, part.get(), attrs_of(m));
    close_part(part.get(), m.dx, low.get(), n);
  }
  for (size_t i = 0; i < n; ++i) m.dx[i] += low[i];
}

// Adds the gradient of argument `arg` to m.dx; what a repeated operand gets is summed in memory order of z.
template <class Op, class I = Isa> inline void broadcast_backward(const KernelArgs& m, uint32_t arg) {
  if (arg == 0) broadcast_backward_of<Op, 0>(m);
  else broadcast_backward_of<Op, 1>(m);
}

}  // namespace dyc::DYC_ISA
