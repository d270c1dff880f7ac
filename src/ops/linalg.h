// Square matrices: inverse and log determinant, by LU decomposition with partial pivoting. Everything between
// the floats read and the floats written is double: a result is as good as its matrix allows.
// And circular convolution and correlation of vectors.
#pragma once
#include "ops/element_loops.h"
#include "ops/op.h"
#include "ops/reduce.h"
#include "ops/scratch.h"
#include "ops/tuning.h"

namespace dyc {

namespace detail {

using tuning::kPanelColumns;

DYC_INLINE size_t panel_width(size_t begin, size_t n) {
  return n - begin < kPanelColumns ? n - begin : kPanelColumns;
}

// c -= A b for `width` columns of A at distance n, over `rows` rows. c is no column of A.
DYC_INLINE void subtract_product(double* __restrict c, const double* __restrict a, size_t n, const double* b,
                                 size_t width, size_t rows) {
  if (width == kPanelColumns) {
    const double *a1 = a + n, *a2 = a1 + n, *a3 = a2 + n, *a4 = a3 + n, *a5 = a4 + n, *a6 = a5 + n,
                 *a7 = a6 + n;
    const double b0 = b[0], b1 = b[1], b2 = b[2], b3 = b[3], b4 = b[4], b5 = b[5], b6 = b[6], b7 = b[7];
    for (size_t i = 0; i < rows; ++i)
      c[i] -= ((a[i] * b0 + a1[i] * b1) + (a2[i] * b2 + a3[i] * b3)) +
              ((a4[i] * b4 + a5[i] * b5) + (a6[i] * b6 + a7[i] * b7));
    return;
  }
  for (size_t k = 0; k < width; ++k)
    for (size_t i = 0; i < rows; ++i) c[i] -= a[k * n + i] * b[k];
}

// PA = LU in place: L below the diagonal (its own is 1), U on and above it. Each function is a template on
// the instruction set, so that every set has its own copy.
template <class I>
struct Lu {
  size_t n;
  double* a;         // {n,n}, column-major
  uint32_t* row;     // row i of PA is row row[i] of A
  bool odd = false;  // P swaps an odd number of times

  DYC_INLINE double& at(size_t i, size_t j) const { return a[j * n + i]; }

  void factor() {
    for (size_t i = 0; i < n; ++i) row[i] = static_cast<uint32_t>(i);
    for (size_t p = 0; p < n; p += kPanelColumns) {
      const size_t end = p + panel_width(p, n);
      for (size_t j = p; j < end; ++j) eliminate(j, end);
      for (size_t j = end; j < n; ++j) {
        for (size_t k = p; k < end; ++k)
          for (size_t i = k + 1; i < end; ++i) at(i, j) -= at(i, k) * at(k, j);
        subtract_product(&at(end, j), &at(end, p), n, &at(p, j), end - p, n - end);
      }
    }
  }

  // X {n,n} = inverse of A. Singular: infinite or NaN.
  void invert(double* x) const {
    ScratchArray<size_t> first(n);  // row of the 1 in column j of PI: nothing above it
    for (size_t i = 0; i < n * n; ++i) x[i] = 0;
    for (size_t i = 0; i < n; ++i) x[row[i] * n + i] = 1, first[row[i]] = i;
    for (size_t p = 0; p < n; p += kPanelColumns) {
      const size_t end = p + panel_width(p, n);
      for (size_t j = 0; j < n; ++j) {
        if (first[j] >= end) continue;
        double* c = x + j * n;
        for (size_t k = p; k < end; ++k)
          for (size_t i = k + 1; i < end; ++i) c[i] -= at(i, k) * c[k];
        subtract_product(c + end, &at(end, p), n, c + p, end - p, n - end);
      }
    }
    for (size_t p = (n - 1) / kPanelColumns * kPanelColumns + kPanelColumns; p > 0;) {
      p -= kPanelColumns;
      const size_t end = p + panel_width(p, n);
      for (size_t j = 0; j < n; ++j) {
        double* c = x + j * n;
        for (size_t k = end; k-- > p;) {
          c[k] /= at(k, k);
          for (size_t i = p; i < k; ++i) c[i] -= at(i, k) * c[k];
        }
        subtract_product(c, &at(0, p), n, c + p, end - p, p);
      }
    }
  }

  // NaN for a negative determinant. A zero on the diagonal counts as positive, as in the reference.
  double log_determinant() const {
    double sum = 0;
    bool negative = odd;
    for (size_t i = 0; i < n; ++i) {
      sum += __builtin_log(__builtin_fabs(at(i, i)));
      negative ^= at(i, i) < 0;
    }
    return negative ? __builtin_nan("") : sum;
  }

 private:
  // Column j, and what it does to the columns of its panel, which ends at `end`.
  DYC_INLINE void eliminate(size_t j, size_t end) {
    size_t best = j;
    for (size_t i = j + 1; i < n; ++i)
      if (__builtin_fabs(at(i, j)) > __builtin_fabs(at(best, j))) best = i;
    if (best != j) swap_rows(j, best);
    const double pivot = at(j, j);
    if (pivot == 0) return;  // so is all of the column below
    for (size_t i = j + 1; i < n; ++i) at(i, j) /= pivot;
    for (size_t k = j + 1; k < end; ++k)
      for (size_t i = j + 1; i < n; ++i) at(i, k) -= at(i, j) * at(j, k);
  }
  DYC_INLINE void swap_rows(size_t i, size_t k) {
    for (size_t j = 0; j < n; ++j) {
      const double kept = at(i, j);
      at(i, j) = at(k, j);
      at(k, j) = kept;
    }
    const uint32_t kept = row[i];
    row[i] = row[k];
    row[k] = kept;
    odd = !odd;
  }
};

// The decomposition of the floats at x, with its memory. One NaN makes it NaN throughout: what elimination
// leaves out because a pivot is 0 must not hide it.
template <class I>
struct LuOf {
  ScratchArray<double> memory;
  ScratchArray<uint32_t> rows;
  Lu<I> lu;
  DYC_INLINE LuOf(const float* x, size_t n) : memory(n * n), rows(n), lu{n, memory.get(), rows.get()} {
    bool nan = false;
    for (size_t i = 0; i < n * n; ++i) {
      memory[i] = static_cast<double>(x[i]);
      nan |= x[i] != x[i];
    }
    for (size_t i = 0; nan && i < n * n; ++i) memory[i] = __builtin_nan("");
    lu.factor();
  }
};

// For a decomposition, its inverse and as much again.
inline size_t lu_scratch(const KernelArgs& m) {
  const size_t n = m.xd[0]->rows();
  return 5 * scratch_bytes<double>(n * n) + scratch_bytes<uint32_t>(n) + scratch_bytes<size_t>(n);
}

// C -= A B, all {n,n}.
template <class I>
void subtract_matrix_product(double* c, const double* a, const double* b, size_t n) {
  for (size_t p = 0; p < n; p += kPanelColumns)
    for (size_t j = 0; j < n; ++j)
      subtract_product(c + j * n, a + p * n, n, b + j * n + p, panel_width(p, n), n);
}

// {n,n}xB, or {1}xB
inline void check_square(const ShapeArgs& s) {
  const Dim& x = s[0];
  if (x.nd > 2 || x.rows() != x.cols()) shape_error(s, "a square matrix");
}

}  // namespace detail

// x {n,n}xB -> {n,n}xB
struct Inverse {
  static constexpr Meta meta = Meta::per_node("inverse", "inverse(x)", Reads::y).by_one_thread();
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) {
    detail::check_square(s);
    return s[0];
  }
  static size_t scratch(const KernelArgs& m) { return detail::lu_scratch(m); }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t n = m.xd[0]->rows();
    ScratchArray<double> x(n * n);
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      float* y = m.yb(b);
      detail::LuOf<I>(m.xb(0, b), n).lu.invert(x.get());
      for (size_t i = 0; i < n * n; ++i) y[i] = static_cast<float>(x[i]);
    }
  }
  template <class I>  // dx = -y^T dy y^T
  static void backward(const KernelArgs& m, uint32_t) {
    const size_t n = m.xd[0]->rows(), size = n * n;
    ScratchArray<double> memory(4 * size);
    double *yt = memory.get(), *dy = yt + size, *t = dy + size, *g = t + size;
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float *y = m.yb(b), *d = m.dyb(b);
      float* dx = m.dxb(0, b);
      for (size_t j = 0; j < n; ++j)
        for (size_t i = 0; i < n; ++i) yt[j * n + i] = static_cast<double>(y[i * n + j]);
      for (size_t i = 0; i < size; ++i) dy[i] = static_cast<double>(d[i]), t[i] = g[i] = 0;
      detail::subtract_matrix_product<I>(t, dy, yt, n);
      detail::subtract_matrix_product<I>(g, yt, t, n);  // two signs: g = y^T dy y^T
      for (size_t i = 0; i < size; ++i) dx[i] -= static_cast<float>(g[i]);
    }
  }
};

// x {n,n}xB -> {1}xB
struct LogDet {
  static constexpr Meta meta = Meta::per_node("logdet", "log(det(x))", Reads::x).by_one_thread();
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) {
    detail::check_square(s);
    return scalar_per_batch(s);
  }
  static size_t scratch(const KernelArgs& m) { return detail::lu_scratch(m); }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t n = m.xd[0]->rows();
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      *m.yb(b) = static_cast<float>(detail::LuOf<I>(m.xb(0, b), n).lu.log_determinant());
  }
  template <class I>  // dx = dy * x^-T
  static void backward(const KernelArgs& m, uint32_t) {
    const size_t n = m.xd[0]->rows();
    ScratchArray<double> inverse(n * n);
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const double dy = static_cast<double>(*m.dyb(b));
      float* dx = m.dxb(0, b);
      detail::LuOf<I>(m.xb(0, b), n).lu.invert(inverse.get());
      for (size_t j = 0; j < n; ++j)
        for (size_t i = 0; i < n; ++i) dx[j * n + i] += static_cast<float>(dy * inverse[i * n + j]);
    }
  }
};

// ---- circular convolution and correlation: u, v {n}xB -> {n}xB

namespace detail {

// y_k += sum_i u_i v_((k-i) mod n)
template <class I>
DYC_INLINE void add_circ_conv(float* y, const float* u, const float* v, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    sync<I>();  // parts of y go to other threads with each i
    add_scaled<I>(y + i, v, u[i], n - i);
    add_scaled<I>(y, v + (n - i), u[i], i);
  }
}
// y_k += sum_i u_i v_((i+k) mod n)
template <class I>
DYC_INLINE void add_circ_corr(float* y, const float* u, const float* v, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    sync<I>();
    add_scaled<I>(y, v + i, u[i], n - i);
    add_scaled<I>(y + (n - i), v, u[i], i);
  }
}
template <class I>
DYC_INLINE void set_zero(float* y, size_t n) {
  each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { c.put(y + i, fill<I>(0.f)); });
}

struct OfTwoVectors {
  static constexpr Param params[] = {{"u"}, {"v"}};
  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd != 1 || s[1].nd != 1 || s[0].rows() != s[1].rows())
      shape_error(s, "two vectors of equal length and 1 dimension");
    return Dim({s[0].rows()}, common_batch(s));
  }
};

}  // namespace detail

struct CircConv : detail::OfTwoVectors {
  static constexpr Meta meta = Meta::per_node("circ_conv", "circ_conv(u, v)", Reads::x);
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t n = m.ys();
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      detail::set_zero<I>(m.yb(b), n);
      detail::add_circ_conv<I>(m.yb(b), m.xb(0, b), m.xb(1, b), n);
    }
  }
  template <class I>  // correlation of the other argument with dy
  static void backward(const KernelArgs& m, uint32_t arg) {
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      detail::add_circ_corr<I>(m.dxb(arg, b), m.xb(1 - arg, b), m.dyb(b), m.ys());
  }
};

struct CircCorr : detail::OfTwoVectors {
  static constexpr Meta meta = Meta::per_node("circ_corr", "circ_corr(u, v)", Reads::x);
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t n = m.ys();
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      detail::set_zero<I>(m.yb(b), n);
      detail::add_circ_corr<I>(m.yb(b), m.xb(0, b), m.xb(1, b), n);
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      if (arg == 0) detail::add_circ_corr<I>(m.dxb(0, b), m.dyb(b), m.xb(1, b), m.ys());
      else detail::add_circ_conv<I>(m.dxb(1, b), m.dyb(b), m.xb(0, b), m.ys());
    }
  }
};

// The ops of this file, in the order of their numbers.
using LinalgOps = OpList<Inverse, LogDet, CircConv, CircCorr>;

}  // namespace dyc
