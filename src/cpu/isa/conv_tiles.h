// The two inner loops of convolutions on planes (conv_planes.h). Both run along the positions of a plane;
// a tap is the same plane, shifted. As in the matrix products, an element is one chain of additions per block
// of taps (or one chain per lane and a fixed tree) that does not depend on the tile.
#pragma once
#include "cpu/isa/gemm_common.h"

namespace dyc::DYC_ISA {

// One term of a sum: the input's offset, and the offset of its coefficient in each column of coefficients.
struct Tap {
  int32_t in, coef;
};

// out_c[i] = start_c + sum over taps of in[tap.in + i] * coef_c[tap.coef]
struct TapSums {
  const Tap* taps;
  int64_t n_taps;
  const float* in;
  const float* coef;
  int64_t coef_stride;
  const float* start;  // per column; null: zeros
  float* out;
  int64_t out_stride;
};

template <int R, int C, bool kTail>
DYC_TILE taps_tile(const TapSums& s, int64_t column, int64_t at, int last) {
  const float* b[C];
  DYC_UNROLL for (int c = 0; c < C; c++) b[c] = s.coef + (column + c) * s.coef_stride;
  const Tap* tap = s.taps;
  const Tap* const end = tap + s.n_taps;
  const float* in = s.in + at;
  bool first = true;
  do {
    V acc[R][C];
    DYC_UNROLL for (int c = 0; c < C; c++) { DYC_UNROLL for (int r = 0; r < R; r++) acc[r][c] = V{}; }
    for (int64_t t = min_of(kTapBlock, end - tap); t > 0; t--, tap++) {
      const float* p = in + tap->in;
      const int64_t q = tap->coef;
      V a[R];
      DYC_UNROLL for (int r = 0; r < R; r++) {
        a[r] = kTail && r == R - 1 ? load_n(p + r * kLanes, last) : load<V>(p + r * kLanes);
      }
      DYC_UNROLL for (int c = 0; c < C; c++) {
        const V v = splat<V>(b[c][q]);
        DYC_UNROLL for (int r = 0; r < R; r++) acc[r][c] = vfma(a[r], v, acc[r][c]);
      }
    }
    DYC_UNROLL for (int c = 0; c < C; c++) {
      float* y = s.out + (column + c) * s.out_stride + at;
      const V start = splat<V>(s.start ? s.start[column + c] : 0.f);
      DYC_UNROLL for (int r = 0; r < R; r++, y += kLanes) {
        if (kTail && r == R - 1) store_n(y, (first ? start : load_n(y, last)) + acc[r][c], last);
        else store(y, (first ? start : load<V>(y)) + acc[r][c]);
      }
    }
    first = false;
  } while (tap < end);
}

// Columns [column, column + C) at positions [0, n).
template <int C> DYC_INLINE void taps_columns(const TapSums& s, int64_t column, int64_t n) {
  int64_t at = 0, vectors = ceil_div(n, kLanes);
  for (int64_t tiles = ceil_div(vectors, kTileRows<C>); tiles > 0; tiles--) {  // even sizes
    const int64_t height = ceil_div(vectors, tiles);
    const int64_t left = min_of(n - at, height * kLanes);
    const int last = static_cast<int>(left - (height - 1) * kLanes);
    with_constant<kTileRows<C>>(height, [&](auto r) {
      constexpr int R = decltype(r)::value;
      if (last == kLanes) taps_tile<R, C, false>(s, column, at, last);
      else taps_tile<R, C, true>(s, column, at, last);
    });
    at += left;
    vectors -= height;
  }
}

// f(first column, number of columns as a constant) for columns [begin, end), in tiles of even sizes.
template <class F> DYC_INLINE void each_column_tile(int64_t begin, int64_t end, F f) {
  for (int64_t t = ceil_div(end - begin, kTileCols); t > 0; t--) {
    const int64_t width = ceil_div(end - begin, t);
    with_constant<kTileCols>(width, [&](auto c) { f(begin, c); });
    begin += width;
  }
}

DYC_INLINE void tap_sums(const TapSums& s, int64_t columns, int64_t n) {
  each_column_tile(0, columns,
                   [&](int64_t column, auto c) { taps_columns<decltype(c)::value>(s, column, n); });
}

// out[c * ld + r] += sum over i of rows_r[i] * cols_c[i]; r < count <= kDotRows, rows past it repeat one.
template <int C>
DYC_TILE dots_tile(int64_t n, const float* const* rows, const float* const* cols, float* out, int64_t ld,
                   int count) {
  V acc[kDotRows][C];
  const float *a[kDotRows], *b[C];
  DYC_UNROLL for (int r = 0; r < kDotRows; r++) {
    a[r] = rows[r];
    DYC_UNROLL for (int c = 0; c < C; c++) acc[r][c] = V{};
  }
  DYC_UNROLL for (int c = 0; c < C; c++) b[c] = cols[c];
  const auto step = [&](auto get) __attribute__((always_inline)) {
    V bv[C];
    DYC_UNROLL for (int c = 0; c < C; c++) bv[c] = get(b[c]);
    DYC_UNROLL for (int r = 0; r < kDotRows; r++) {
      const V av = get(a[r]);
      DYC_UNROLL for (int c = 0; c < C; c++) acc[r][c] = vfma(av, bv[c], acc[r][c]);
    }
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    step([i](const float* p) __attribute__((always_inline)) { return load<V>(p + i); });
  }
  if (i < n) {
    const int last = static_cast<int>(n - i);
    step([i, last](const float* p) __attribute__((always_inline)) { return load_n(p + i, last); });
  }
  DYC_UNROLL for (int c = 0; c < C; c++) {
    const V4 sum = hsum4(acc[0][c], acc[1][c], acc[2][c], acc[3][c]);
    float* p = out + c * ld;
    if (count == kDotRows) {
      *reinterpret_cast<V4Loose*>(p) += sum;
    } else {
      for (int r = 0; r < count; r++) p[r] += sum[r];
    }
  }
}

// out[c * ld + t] += sum over i of in[taps[t].in + i] * cols[c * col_stride + i]
struct TapDots {
  const Tap* taps;
  int64_t n_taps;
  const float* in;
  const float* cols;
  int64_t col_stride;
  float* out;
  int64_t ld;
};

DYC_INLINE void tap_dots(const TapDots& d, int64_t columns, int64_t n) {
  for (int64_t c = 0; c < columns; c += kDotCols) {
    with_constant<kDotCols>(min_of(kDotCols, columns - c), [&](auto width) {
      constexpr int C = decltype(width)::value;
      const float *cols[C], *rows[kDotRows];
      for (int j = 0; j < C; j++) cols[j] = d.cols + (c + j) * d.col_stride;
      for (int64_t t = 0; t < d.n_taps; t += kDotRows) {
        const int64_t count = min_of(kDotRows, d.n_taps - t);
        for (int64_t r = 0; r < kDotRows; r++) rows[r] = d.in + d.taps[t + (r < count ? r : 0)].in;
        dots_tile<C>(n, rows, cols, d.out + c * d.ld + t, d.ld, static_cast<int>(count));
      }
    });
  }
}

}  // namespace dyc::DYC_ISA
