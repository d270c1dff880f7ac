// dx_j += W^T dy_j. Both operands run along m, so an element is kLanes chains over m and one fixed tree at
// the end.
#pragma once
#include "cpu/isa/gemm_common.h"

namespace dyc::DYC_ISA {

// Columns of one product as a tile reads them: W at row 0 of the tile's first column, dy_j at row 0.
struct TnSource {
  int64_t m;
  const float* w;
  int64_t ld;
  const float* const* dys;
};

// acc[r][c] += a_r . b_c, lane by lane.
template <int R, int C>
DYC_INLINE void tn_multiply(int64_t m, int64_t ld, const float* const (&a)[R], const float* const (&b)[C],
                            V (&acc)[R][C]) {
  const auto step = [&](auto get) __attribute__((always_inline)) {
    V bv[C];
    DYC_UNROLL for (int c = 0; c < C; c++) bv[c] = get(b[c]);
    DYC_UNROLL for (int r = 0; r < R; r++) {
      const V av = get(a[r]);
      DYC_UNROLL for (int c = 0; c < C; c++) acc[r][c] = vfma(av, bv[c], acc[r][c]);
    }
  };
  int64_t i = 0;
  if constexpr (C == 1 && kHalves) {
    if (ld % kLanes != 0) {  // columns that begin anywhere, and nothing to do but to read them
      for (; i + kLanes <= m; i += kLanes) {
        step([i](const float* p) __attribute__((always_inline)) { return load_halves(p + i); });
      }
    }
  }
  const auto load_at = [&i](const float* p) __attribute__((always_inline)) { return load<V>(p + i); };
  if constexpr (kLanes == kLine && R == 4) {
    // The next R columns, as the processor fetches only along long runs.
    if (m >= kTnFetchedLeast && m <= kTnFetchedMost) {
      for (; i + kLanes <= m; i += kLanes) {
        step(load_at);
        DYC_UNROLL for (int r = 0; r < R; r++) __builtin_prefetch(a[r] + R * ld + i);
      }
    }
  }
  for (; i + kLanes <= m; i += kLanes) step(load_at);
  if (i < m) {
    const int last = static_cast<int>(m - i);
    step([i, last](const float* p) __attribute__((always_inline)) { return load_n(p + i, last); });
  }
}

// out_c[r] += the lanes of acc[r][c], for r < count, column by column: a repeated dx_j gets all its terms.
template <int R, int C>
DYC_INLINE void tn_add(const V (&acc)[R][C], float* const (&outs)[C], int count) {
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

struct TnArgs {
  const Product* products;
  int n;
  Cols out;
};

// Fetches what the next columns read and add to, a part with each tile. The processor itself fetches only
// along long runs, and a column is short.
template <int C> class TnFetch {
 public:
  DYC_INLINE TnFetch(const TnArgs& args, int64_t begin, int64_t end, int64_t tiles)
      : a_(args), begin_(begin), last_(end - 1) {
    int64_t lines = 0;
    for (int s = 0; s < a_.n; s++) lines += ceil_div(a_.products[s].m, kLine);
    each_tile_ = ceil_div(lines, tiles);
    for (int c = 0; c < C; c++) outs_[c] = col(a_.out, min_of(begin + c, last_));
  }
  // With the tile for k.
  __attribute__((noinline)) void step(int64_t k) {
    if (k % kLine < kTnRows<C>) {
      for (int c = 0; c < C; c++) __builtin_prefetch(outs_[c] + k, 1);
    }
    for (int64_t q = 0; q < each_tile_ && (row_ < m_ || next_source()); q++, row_ += kLine) {
      for (int c = 0; c < C; c++) __builtin_prefetch(dys_[c] + row_);
    }
  }

 private:
  DYC_INLINE bool next_source() {
    if (source_ == a_.n) return false;
    const Product& p = a_.products[source_++];
    for (int c = 0; c < C; c++) dys_[c] = col(p.dy, min_of(begin_ + c, last_));
    m_ = p.m, row_ = 0;
    return true;
  }

  const TnArgs& a_;
  const int64_t begin_, last_;  // columns
  int64_t each_tile_;           // lines of each column
  int source_ = 0;
  int64_t m_ = 0, row_ = 0;
  const float *dys_[C], *outs_[C];
};

// All tiles of R columns of W, of one product: a call for each would take as long as a sixth of sums of 64
// terms.
template <int R, int C>
DYC_TILE tn_strip(const TnSource& source, int64_t height, float* const (&outs)[C], TnFetch<C>* next,
                  int64_t begin) {
  const float* w = source.w;
  const float* b[C];
  float* to[C];
  const int64_t ld = source.ld, m = source.m;
  DYC_UNROLL for (int c = 0; c < C; c++) b[c] = source.dys[c], to[c] = outs[c];
  for (int64_t k = R; k <= height; k += R, w += R * ld) {
    if (next) next->step(begin + k - R);
    const float* a[R];
    V acc[R][C];
    DYC_UNROLL for (int r = 0; r < R; r++) a[r] = w + r * ld;
    DYC_UNROLL for (int r = 0; r < R; r++) { DYC_UNROLL for (int c = 0; c < C; c++) acc[r][c] = V{}; }
    tn_multiply(m, ld, a, b, acc);
    tn_add(acc, to, R);
    DYC_UNROLL for (int c = 0; c < C; c++) to[c] += R;
  }
}

// A leg: the same of several products that have few rows together, so that what tiles read of dy stays in the
// first-level cache. Sums wait in memory from leg to leg. Columns of W past `height` repeat the last one.
struct TnLeg {
  const TnSource* sources;
  int n;
  bool first, last;
};

template <int R, int C>
DYC_TILE tn_leg(const TnLeg& leg, int64_t height, float* const (&outs)[C], V* sums, TnFetch<C>* next,
                int64_t begin) {
  const bool alone = leg.first && leg.last;
  for (int64_t k = 0; k < height; k += R) {
    V* const waiting = alone ? nullptr : sums + k * C;
    if (next) next->step(begin + k);
    const int count = static_cast<int>(min_of(R, height - k));
    V acc[R][C];
    DYC_UNROLL for (int r = 0; r < R; r++) {
      DYC_UNROLL for (int c = 0; c < C; c++) acc[r][c] = leg.first ? V{} : waiting[r * C + c];
    }
    for (int s = 0; s < leg.n; s++) {
      const TnSource& source = leg.sources[s];
      const float* a[R];
      const float* b[C];
      a[0] = source.w + k * source.ld;
      DYC_UNROLL for (int r = 1; r < R; r++) a[r] = a[r - 1] + (r < count ? source.ld : 0);
      DYC_UNROLL for (int c = 0; c < C; c++) b[c] = source.dys[c];
      tn_multiply(source.m, source.ld, a, b, acc);
    }
    if (leg.last) {
      float* to[C];
      DYC_UNROLL for (int c = 0; c < C; c++) to[c] = outs[c] + k;
      tn_add(acc, to, count);
      continue;
    }
    DYC_UNROLL for (int r = 0; r < R; r++) {
      DYC_UNROLL for (int c = 0; c < C; c++) waiting[r * C + c] = acc[r][c];
    }
  }
}

// All legs of the products.
template <int R, int C>
DYC_TILE tn_legs(const TnSource* sources, int n, int64_t height, float* const (&outs)[C], TnFetch<C>* next,
                 int64_t begin) {
  alignas(64) V sums[kTnPassCols * C];  // of a pass with several legs
  for (int s = 0; s < n;) {
    int64_t m = sources[s].m;
    int end = s + 1;
    while (end < n && m + sources[end].m <= kTnLegRows) m += sources[end++].m;
    tn_leg<R, C>({sources + s, end - s, s == 0, end == n}, height, outs, sums, s == 0 ? next : nullptr,
                 begin);
    s = end;
  }
}

// Columns [j, j + C); those after them, below `fetch`, are fetched.
template <int C> DYC_INLINE void tn_columns(const TnArgs& a, Range ks, int64_t j, int64_t fetch) {
  TnSource sources[kMostProducts];
  const float* dys[kMostProducts][C];
  float* outs[C];
  for (int s = 0; s < a.n; s++) {
    const Product& p = a.products[s];
    for (int c = 0; c < C; c++) dys[s][c] = col(p.dy, j + c);
    sources[s] = {p.m, p.w + ks.begin * p.ld, p.ld, dys[s]};
  }
  for (int c = 0; c < C; c++) outs[c] = col(a.out, j + c) + ks.begin;
  constexpr int R = kTnRows<C>;
  const int64_t height = ks.end - ks.begin;
  const auto run = [&](TnFetch<C>* next) __attribute__((always_inline)) {
    if (a.n > 1 || height < R) return tn_legs<R, C>(sources, a.n, height, outs, next, ks.begin);
    tn_strip<R, C>(sources[0], height, outs, next, ks.begin);
    const int64_t k = height / R * R;
    if (k == height) return;
    for (int c = 0; c < C; c++) outs[c] += k;
    sources[0].w += k * sources[0].ld;
    tn_legs<R, C>(sources, 1, height - k, outs, next, ks.begin + k);
  };
  if (j + C >= fetch) return run(nullptr);
  TnFetch<C> next(a, j + C, fetch, ceil_div(height, R));
  run(&next);
}

static void tn_passes(const TnArgs& a, Range ks, Range cols) {
  int64_t m = 0;
  for (int s = 0; s < a.n; s++) m += a.products[s].m;
  const int64_t fit = a.n > 1 && m > kTnLegRows ? 0 : kTnCacheFloats / (m + 1) / 8 * 8;
  const int64_t pass = fit < kTnPassCols ? kTnPassCols : fit;
  const int64_t height = ks.end - ks.begin;
  const bool fetches = m * height >= kTnSlow && (cols.end - cols.begin) * (m + height) > kStreamed;
  const int64_t fetch = fetches ? cols.end : 0;
  for (int64_t k = ks.begin; k < ks.end; k += pass) {
    const Range part{k, min_of(ks.end, k + pass)};
    int64_t j = cols.begin;
    for (int64_t t = ceil_div(cols.end - cols.begin, kTnCols); t > 0; t--) {
      const int64_t width = ceil_div(cols.end - j, t);
      with_constant<kTnCols>(width, [&](auto c) { tn_columns<decltype(c)::value>(a, part, j, fetch); });
      j += width;
    }
  }
}

// A product whose m is longer than kTnChunk. Its pieces are summed first: adding each to dx would interleave
// the terms of a column that repeats.
static void tn_long(const Product& p, Range ks, Range cols, Cols dx) {
  static thread_local Scratch scratch;
  const int64_t height = ks.end - ks.begin;
  for (int64_t begin = cols.begin; begin < cols.end; begin += kTnSumCols) {
    const Range part{begin, min_of(cols.end, begin + kTnSumCols)};
    const int64_t size = height * (part.end - part.begin);
    float *sums = scratch.get(3 * size), *low = sums + size, *last = low + size;
    clear(sums, 2 * size);
    const Cols out{last - ks.begin - begin * height, height, nullptr};
    for (int64_t i = 0; i < p.m; i += kTnPiece) {
      Product piece{min_of(kTnPiece, p.m - i), p.w + i, p.ld, p.dy};
      piece.dy.base += i;
      clear(last, size);
      tn_passes({&piece, 1, out}, ks, part);
      add_parts(sums, low, last, size);
    }
    join_parts(sums, low, size);
    for (int64_t j = part.begin; j < part.end; j++) {
      float* to = col(dx, j) + ks.begin;
      const float* from = sums + (j - begin) * height;
      for (int64_t i = 0; i < height; i++) to[i] += from[i];
    }
  }
}

// As many products at a time as are not longer than kTnChunk together.
static void gemm_tn_sum(Range ks, Range cols, const Product* products, int n, Cols dx) {
  if (ks.begin >= ks.end) return;
  for (int i = 0; i < n;) {
    int64_t m = products[i].m;
    int end = i + 1;
    while (end < n && end - i < kMostProducts && m + products[end].m <= kTnChunk) m += products[end++].m;
    if (m > kTnChunk) tn_long(products[i], ks, cols, dx);
    else tn_passes({products + i, end - i, dx}, ks, cols);
    i = end;
  }
}

}  // namespace dyc::DYC_ISA
