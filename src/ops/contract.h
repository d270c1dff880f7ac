// Contractions of a tensor of 3 dimensions with one or two vectors. The tensor is read as a matrix whose
// columns are contiguous: {d0*d1, d2} for the vector over its last dimension.
#pragma once
#include "ops/element_loops.h"
#include "ops/op.h"
#include "ops/reduce.h"
#include "ops/scratch.h"

namespace dyc {

namespace detail {

// y += A c: A {rows, columns}, c {columns}
template <class I>
DYC_INLINE void add_columns(float* y, const float* a, const float* c, size_t rows, size_t columns) {
  size_t k = 0;
  for (; k + 4 <= columns; k += 4, a += 4 * rows) {  // four at once: y is read and written less often
    const float c0 = c[k], c1 = c[k + 1], c2 = c[k + 2], c3 = c[k + 3];
    const float *a1 = a + rows, *a2 = a1 + rows, *a3 = a2 + rows;
    each<I>(rows, [&](size_t i, auto t) DYC_LAMBDA {
      t.add(y + i, (c0 * t.get(a + i) + c1 * t.get(a1 + i)) + (c2 * t.get(a2 + i) + c3 * t.get(a3 + i)));
    });
  }
  for (; k < columns; ++k, a += rows) add_scaled<I>(y, a, c[k], rows);
}
// c_k += y' A_k
template <class I>
DYC_INLINE void add_products(float* c, const float* a, const float* y, size_t rows, size_t columns) {
  for (size_t k = 0; k < columns; ++k, a += rows)
    add_as_leader<I>(
        c + k, sum_run<I>(rows, [&](size_t i, auto t) DYC_LAMBDA { return t.get(y + i) * t.get(a + i); }));
}
// A_k += c_k y
template <class I>
DYC_INLINE void add_outer(float* a, const float* y, const float* c, size_t rows, size_t columns) {
  for (size_t k = 0; k < columns; ++k, a += rows) add_scaled<I>(a, y, c[k], rows);
}
// to = from, or 0 where there is none
template <class I>
DYC_INLINE void start_from(float* to, const float* from, size_t n) {
  each<I>(n, [&](size_t i, auto t) DYC_LAMBDA { t.put(to + i, from ? t.get(from + i) : fill<I>(0.f)); });
}
template <class I>
DYC_INLINE void add_all(float* to, const float* from, size_t n) {
  each<I>(n, [&](size_t i, auto t) DYC_LAMBDA { t.add(to + i, t.get(from + i)); });
}

inline void check_tensor(const ShapeArgs& s) {
  if (s[0].nd != 3) shape_error(s, "x of 3 dimensions");
  if (!s[1].column_like() || s[1].rows() != s[0].d[2]) shape_error(s, "y with one element per x[i,j]");
}

}  // namespace detail

// z_ij = sum_k x_ijk y_k (+ b_ij). x {d0,d1,d2}, y {d2}, b {d0,d1} -> {d0,d1}; batch 1 or B each
template <bool bias>
struct Contract3D1DOf {
  static Dim shape(const ShapeArgs& s) {
    detail::check_tensor(s);
    Dim r({s[0].d[0], s[0].d[1]}, common_batch(s));
    if (bias && !s[2].same_sizes(r)) shape_error(s, "b of the shape of x[.,.,k]");
    return r;
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      detail::start_from<I>(m.yb(b), bias ? m.xb(2, b) : nullptr, m.ys());
      detail::add_columns<I>(m.yb(b), m.xb(0, b), m.xb(1, b), m.ys(), m.xd[0]->d[2]);
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    const size_t rows = m.ys(), columns = m.xd[0]->d[2];
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      float* dx = m.dxb(arg, b);
      if (arg == 0) detail::add_outer<I>(dx, m.dyb(b), m.xb(1, b), rows, columns);
      else if (arg == 1) detail::add_products<I>(dx, m.xb(0, b), m.dyb(b), rows, columns);
      else detail::add_all<I>(dx, m.dyb(b), rows);
    }
  }
};

struct Contract3D1D : Contract3D1DOf<false> {
  static constexpr Meta meta = Meta::per_node("contract3d_1d", "contract3d_1d(x, y)", Reads::x);
  static constexpr Param params[] = {{"x"}, {"y"}};
};
struct Contract3D1DBias : Contract3D1DOf<true> {
  static constexpr Meta meta = Meta::per_node("contract3d_1d_bias", "contract3d_1d(x, y) + b", Reads::x);
  static constexpr Param params[] = {{"x"}, {"y"}, {"b"}};
};

// t_i = sum_jk x_ijk y_k z_j (+ b_i). x {d0,d1,d2}, y {d2}, z {d1}, b {d0} -> {d0}; batch 1 or B each
template <bool bias>
struct Contract3D1D1DOf {
  static size_t scratch(const KernelArgs& m) {
    return scratch_bytes<float>(size_t{m.xd[0]->d[0]} * m.xd[0]->d[1]);
  }
  static Dim shape(const ShapeArgs& s) {
    detail::check_tensor(s);
    if (!s[2].column_like() || s[2].rows() != s[0].d[1]) shape_error(s, "z with one element per x[i,.,k]");
    if (bias && (s[3].nd != 1 || s[3].d[0] != s[0].d[0])) shape_error(s, "b a vector like x[.,j,k]");
    return Dim({s[0].d[0]}, common_batch(s));
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t d0 = m.xd[0]->d[0], d1 = m.xd[0]->d[1], d2 = m.xd[0]->d[2];
    ScratchArray<float> inner(d0 * d1);  // sum_k x_ijk y_k
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      detail::start_from<I>(inner.get(), nullptr, d0 * d1);
      detail::add_columns<I>(inner.get(), m.xb(0, b), m.xb(1, b), d0 * d1, d2);
      detail::start_from<I>(m.yb(b), bias ? m.xb(3, b) : nullptr, d0);
      sync<I>();
      detail::add_columns<I>(m.yb(b), inner.get(), m.xb(2, b), d0, d1);
      sync<I>();
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    const size_t d0 = m.xd[0]->d[0], d1 = m.xd[0]->d[1], d2 = m.xd[0]->d[2];
    ScratchArray<float> inner(d0 * d1);
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      float* dx = m.dxb(arg, b);
      if (arg == 3) {
        detail::add_all<I>(dx, m.dyb(b), d0);
        continue;
      }
      detail::start_from<I>(inner.get(), nullptr, d0 * d1);
      if (arg == 2) {
        detail::add_columns<I>(inner.get(), m.xb(0, b), m.xb(1, b), d0 * d1, d2);
        sync<I>();
        detail::add_products<I>(dx, inner.get(), m.dyb(b), d0, d1);
        continue;
      }
      sync<I>();
      detail::add_outer<I>(inner.get(), m.dyb(b), m.xb(2, b), d0, d1);  // dt_i z_j
      sync<I>();
      if (arg == 0) detail::add_outer<I>(dx, inner.get(), m.xb(1, b), d0 * d1, d2);
      else detail::add_products<I>(dx, m.xb(0, b), inner.get(), d0 * d1, d2);
    }
  }
};

struct Contract3D1D1D : Contract3D1D1DOf<false> {
  static constexpr Meta meta = Meta::per_node("contract3d_1d_1d", "contract3d_1d_1d(x, y, z)", Reads::x);
  static constexpr Param params[] = {{"x"}, {"y"}, {"z"}};
};
struct Contract3D1D1DBias : Contract3D1D1DOf<true> {
  static constexpr Meta meta =
      Meta::per_node("contract3d_1d_1d_bias", "contract3d_1d_1d(x, y, z) + b", Reads::x);
  static constexpr Param params[] = {{"x"}, {"y"}, {"z"}, {"b"}};
};

// The ops of this file, in the order of their numbers.
using ContractOps = OpList<Contract3D1D, Contract3D1DBias, Contract3D1D1D, Contract3D1D1DBias>;

}  // namespace dyc
