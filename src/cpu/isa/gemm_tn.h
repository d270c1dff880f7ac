// dx_j += W^T dy_j. Both operands run along m, so an element is kLanes chains over m and one fixed tree at
// the end.
#pragma once
#include <string.h>

#include "cpu/isa/gemm_common.h"

namespace dyc::DYC_ISA {

// A longer m is summed in pieces of this length, so that a tile's columns stay in the cache.
inline constexpr int64_t kTnChunk = 2048;
inline constexpr int64_t kTnSumCols = 96;  // columns whose sums over the pieces are kept at a time
inline constexpr int kTnCols = kManyRegisters ? 6 : 3;
template <int Cols> inline constexpr int kTnRows = Cols == 1 || (kManyRegisters && Cols == 2) ? 8 : 4;

// out_c[0..count) += W_0..W_{R-1} . dy_c; count <= R, columns of W past count repeat the last one.
template <int R, int C>
DYC_TILE tn_tile(int64_t m, const float* w, int64_t ld, const float* const* dys, float* const* outs,
                 int count) {
  V acc[R][C];
  const float* a[R];
  const float* b[C];
  DYC_UNROLL for (int r = 0; r < R; r++) {
    a[r] = w + ld * (r < count ? r : count - 1);
    DYC_UNROLL for (int c = 0; c < C; c++) acc[r][c] = V{};
  }
  DYC_UNROLL for (int c = 0; c < C; c++) b[c] = dys[c];
  const auto step = [&](auto get) {
    V bv[C];
    DYC_UNROLL for (int c = 0; c < C; c++) bv[c] = get(b[c]);
    DYC_UNROLL for (int r = 0; r < R; r++) {
      const V av = get(a[r]);
      DYC_UNROLL for (int c = 0; c < C; c++) acc[r][c] = vfma(av, bv[c], acc[r][c]);
    }
  };
  int64_t i = 0;
  for (; i + kLanes <= m; i += kLanes) {
    step([i](const float* p) __attribute__((always_inline)) { return load<V>(p + i); });
  }
  if (i < m) {
    const int last = static_cast<int>(m - i);
    step([i, last](const float* p) __attribute__((always_inline)) { return load_n(p + i, last); });
  }
  // Read, add, store column by column: a repeated dx_j gets all its terms.
  DYC_UNROLL for (int c = 0; c < C; c++) {
    DYC_UNROLL for (int r = 0; r < R; r += 4) {
      const V4 sum = hsum4(acc[r][c], acc[r + 1][c], acc[r + 2][c], acc[r + 3][c]);
      float* out = outs[c] + r;
      if (r + 4 <= count) {
        *reinterpret_cast<V4Loose*>(out) += sum;
      } else {
        for (int q = 0; q < 4 && r + q < count; q++) out[q] += sum[q];
      }
    }
  }
}

template <int C>
DYC_INLINE void tn_columns(Range ks, int64_t j, Range ms, const float* w, int64_t ld, const ConstCols& dy,
                           const Cols& out) {
  const float* dys[C];
  float* outs[C];
  for (int c = 0; c < C; c++) dys[c] = col(dy, j + c) + ms.begin, outs[c] = col(out, j + c) + ks.begin;
  constexpr int R = kTnRows<C>;
  const float* p = w + ms.begin + ks.begin * ld;
  for (int64_t i = ks.begin; i < ks.end; i += R, p += R * ld) {
    const int count = static_cast<int>(min_of(R, ks.end - i));
    tn_tile<R, C>(ms.end - ms.begin, p, ld, dys, outs, count);
    for (int c = 0; c < C; c++) outs[c] += R;
  }
}

static void tn_chunk(Range ks, Range cols, Range ms, const float* w, int64_t ld, const ConstCols& dy,
                     const Cols& out) {
  int64_t j = cols.begin;
  for (int64_t t = ceil_div(cols.end - cols.begin, kTnCols); t > 0; t--) {
    const int64_t width = ceil_div(cols.end - j, t);
    with_constant<kTnCols>(width, [&](auto c) { tn_columns<decltype(c)::value>(ks, j, ms, w, ld, dy, out); });
    j += width;
  }
}

static void gemm_tn(Range ks, Range cols, int64_t m, const float* w, int64_t ld, ConstCols dy, Cols dx) {
  if (m <= kTnChunk) {
    tn_chunk(ks, cols, {0, m}, w, ld, dy, dx);
    return;
  }
  // Sum the pieces first: adding each to dx would interleave the terms of a column that repeats.
  static thread_local Scratch scratch;
  const int64_t height = ks.end - ks.begin;
  if (height <= 0) return;
  for (int64_t begin = cols.begin; begin < cols.end; begin += kTnSumCols) {
    const Range part{begin, min_of(cols.end, begin + kTnSumCols)};
    const int64_t size = height * (part.end - part.begin);
    float* sums = scratch.get(size);
    memset(sums, 0, static_cast<size_t>(size) * sizeof(float));
    const Cols out{sums - ks.begin - begin * height, height, nullptr};
    for (int64_t i = 0; i < m; i += kTnChunk) {
      tn_chunk(ks, part, {i, min_of(m, i + kTnChunk)}, w, ld, dy, out);
    }
    for (int64_t j = part.begin; j < part.end; j++) {
      float* to = col(dx, j) + ks.begin;
      const float* from = sums + (j - begin) * height;
      for (int64_t i = 0; i < height; i++) to[i] += from[i];
    }
  }
}

}  // namespace dyc::DYC_ISA
