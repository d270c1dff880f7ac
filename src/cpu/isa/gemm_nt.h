// dW += sum_j dy_j x_j^T. One chain in order of j per block of kNtBlock columns, blocks added in order.
// Pieces of kNtLong columns are added up by add_parts(). Where dW is unset, the first block is stored instead
// of added: clearing it before would write all of it once more.
#pragma once
#include "cpu/isa/gemm_common.h"

namespace dyc::DYC_ISA {

// Copying the operands pays from a few columns on, unless they are small enough to stay in the cache, or few
// tiles read the copies.
DYC_INLINE bool nt_packs(int64_t rows, int64_t ks, int64_t n) {
  if (kManyRegisters && ks < (rows > kPanelRows ? kNtPackKs : kNtPackKsOfPanel)) return false;
  return n > kNtBlock || (n >= kNtPackTerms && n * (rows + ks) > kNtInCache);
}

// Column j of the operands of a tile: copied, dy to a panel (dy[j][kPanelRows]), or read in place.
struct Packed {
  const float *dy, *x;
  int64_t x_step;
  DYC_INLINE const float* dy_at(int64_t j) const { return dy + j * kPanelRows; }
  DYC_INLINE const float* x_at(int64_t j) const { return x + j * x_step; }
};
struct Direct {
  const float* const* dys;
  const float* const* xs;
  int64_t row, k;
  DYC_INLINE const float* dy_at(int64_t j) const { return dys[j] + row; }
  DYC_INLINE const float* x_at(int64_t j) const { return xs[j] + k; }
};

template <int R, int C, bool kTail, class Source>
DYC_TILE nt_tile(int64_t n, const Source& source_ref, float* dw, int64_t ld, int last, bool unset) {
  const Source source = source_ref;
  V acc[R][C];
  DYC_UNROLL for (int c = 0; c < C; c++) { DYC_UNROLL for (int r = 0; r < R; r++) acc[r][c] = V{}; }
  for (int64_t j = 0; j < n; j++) {
    const float* dy = source.dy_at(j);
    const float* x = source.x_at(j);
    V a[R];
    DYC_UNROLL for (int r = 0; r < R; r++) {
      a[r] = kTail && r == R - 1 ? load_n(dy + r * kLanes, last) : load<V>(dy + r * kLanes);
    }
    DYC_UNROLL for (int c = 0; c < C; c++) {
      const V b = splat<V>(x[c]);
      DYC_UNROLL for (int r = 0; r < R; r++) acc[r][c] = vfma(a[r], b, acc[r][c]);
    }
  }
  // Vectors that end short columns reach into the next ones, whose loads would wait for the stores.
  constexpr bool kLoadsFirst = kManyRegisters && kTail && R <= 2;
  const auto put = [&](int r, int c) __attribute__((always_inline)) {
    float* p = dw + c * ld + r * kLanes;
    if (kTail && r == R - 1) store_n(p, acc[r][c], last);
    else store(p, acc[r][c]);
  };
  DYC_UNROLL for (int c = 0; c < C; c++) {
    DYC_UNROLL for (int r = 0; r < R; r++) {
      const float* p = dw + c * ld + r * kLanes;
      acc[r][c] = (unset ? V{} : kTail && r == R - 1 ? load_n(p, last) : load<V>(p)) + acc[r][c];
      if constexpr (!kLoadsFirst) put(r, c);
    }
  }
  DYC_UNROLL for (int c = 0; kLoadsFirst && c < C; c++) { DYC_UNROLL for (int r = 0; r < R; r++) put(r, c); }
}

// Rows [0, height) of a panel and columns [0, width) of a tile; dw points at its corner.
template <class Source>
DYC_INLINE void nt_dispatch(int64_t n, const Source& source, float* dw, int64_t ld, int64_t height,
                            int64_t width, bool unset) {
  const int64_t vectors = ceil_div(height, kLanes);
  const int last = static_cast<int>(height - (vectors - 1) * kLanes);
  with_constant<kPanel>(vectors, [&](auto r) {
    with_constant<kTileCols>(width, [&](auto c) {
      constexpr int R = decltype(r)::value, C = decltype(c)::value;
      if (last == kLanes) nt_tile<R, C, false>(n, source, dw, ld, last, unset);
      else nt_tile<R, C, true>(n, source, dw, ld, last, unset);
    });
  });
}

struct NtArgs {
  Range rows, ks;
  ConstCols dy, x;
  float* dw;
  int64_t ld;
  bool unset;
};

// K whole columns of dW at a time, from top to bottom.
template <int N, int K>
DYC_TILE nt_stream_block(int64_t rows, const float* const* dys, const float* const* xs, int64_t k, float* dw,
                         int64_t ld, bool unset) {
  const float* dy[N];
  V b[N][K];
  DYC_UNROLL for (int j = 0; j < N; j++) {
    dy[j] = dys[j];
    DYC_UNROLL for (int c = 0; c < K; c++) b[j][c] = splat<V>(xs[j][k + c]);
  }
  each_vector(rows, [&](int64_t r, auto get, auto far, auto put) __attribute__((always_inline)) {
    V a[N];
    DYC_UNROLL for (int j = 0; j < N; j++) a[j] = get(dy[j] + r);
    V sums[K];
    DYC_UNROLL for (int c = 0; c < K; c++) {
      sums[c] = V{};
      DYC_UNROLL for (int j = 0; j < N; j++) sums[c] = vfma(a[j], b[j][c], sums[c]);
      float* p = dw + c * ld + r;
      sums[c] = (unset ? V{} : far(p)) + sums[c];
      if constexpr (!kManyRegisters || N > 4) put(p, sums[c]);
    }
    if constexpr (kManyRegisters && N <= 4) {  // all loads before the stores, which they might wait for
      DYC_UNROLL for (int c = 0; c < K; c++) put(dw + c * ld + r, sums[c]);
    }
  });
}

template <int N> DYC_INLINE void nt_stream(const NtArgs& a) {
  const float *dys[N], *xs[N];
  constexpr int kMost = kNtStreamK<N>;
  // Blocks of kMost columns, one every `step` columns from `begin` on.
  const auto run = [&](Range rows, int64_t begin, int64_t step) {
    for (int j = 0; j < N; j++) dys[j] = col(a.dy, j) + rows.begin, xs[j] = col(a.x, j);
    for (int64_t k = begin; k < a.ks.end; k += step) {
      with_constant<kMost>(min_of(kMost, a.ks.end - k), [&](auto count) {
        nt_stream_block<N, decltype(count)::value>(rows.end - rows.begin, dys, xs, k,
                                                   a.dw + k * a.ld + rows.begin, a.ld, a.unset);
      });
    }
  };
  const int64_t height = a.rows.end - a.rows.begin, whole = height / kLanes * kLanes;
  if (whole == height || height > kNtShortRows || a.unset || (N > 2 && whole > 0))
    return run(a.rows, a.ks.begin, kMost);
  // Where the last vectors are apart, every second block comes later: its loads would wait for the stores.
  const Range last{a.rows.begin + whole, a.rows.end};
  if (whole > 0) run({a.rows.begin, last.begin}, a.ks.begin, kMost);
  run(last, a.ks.begin, 2 * kMost);
  run(last, a.ks.begin + kMost, 2 * kMost);
}

// Fetches the columns after a block, a part with each of its tiles: the processor itself fetches only along
// long runs, and a column is short.
class NtFetch {
 public:
  NtFetch(const NtArgs& a, Range js, int64_t end) : a_(a), j_(js.end), end_(min_of(end, js.end + kNtBlock)) {
    const int64_t rows = a.rows.end - a.rows.begin, ks = a.ks.end - a.ks.begin;
    const int64_t tiles = ceil_div(rows, kPanelRows) * ceil_div(ks, kTileCols);
    if (end * (rows + ks) < kNtStreamed || kNtBlock * (rows + ks) > kNtFetched) end_ = j_;
    each_tile_ = ceil_div(kNtBlock, tiles);
  }
  DYC_INLINE bool left() const { return j_ < end_; }
  __attribute__((noinline)) void step() {
    for (int64_t q = 0; q < each_tile_ && j_ < end_; q++, j_++) {
      const float *dy = col(a_.dy, j_), *x = col(a_.x, j_);
      for (int64_t r = a_.rows.begin; r < a_.rows.end; r += kLine) __builtin_prefetch(dy + r);
      for (int64_t k = a_.ks.begin; k < a_.ks.end; k += kLine) __builtin_prefetch(x + k);
    }
  }

 private:
  const NtArgs& a_;
  int64_t j_, end_, each_tile_;
};

static void nt_direct(const NtArgs& a, Range js, int64_t next) {
  const int64_t n = js.end - js.begin;
  const float* dys[kNtBlock];
  const float* xs[kNtBlock];
  for (int64_t j = 0; j < n; j++) dys[j] = col(a.dy, js.begin + j), xs[j] = col(a.x, js.begin + j);
  NtFetch fetch(a, js, next);
  for (int64_t k = a.ks.begin; k < a.ks.end; k += kTileCols) {
    for (int64_t r = a.rows.begin; r < a.rows.end; r += kPanelRows) {
      if (fetch.left()) fetch.step();
      const Direct source{dys, xs, r, k};
      nt_dispatch(n, source, a.dw + k * a.ld + r, a.ld, min_of(kPanelRows, a.rows.end - r),
                  min_of(kTileCols, a.ks.end - k), a.unset);
    }
  }
}

static void nt_pack_dy(const NtArgs& a, Range js, int64_t row, int64_t height, float* packed) {
  const int vectors = static_cast<int>(ceil_div(height, kLanes));
  const int last = static_cast<int>(height - (vectors - 1) * kLanes);
  for (int64_t j = js.begin; j < js.end; j++, packed += kPanelRows) {
    const float* dy = col(a.dy, j) + row;
    for (int v = 0; v + 1 < vectors; v++) store(packed + v * kLanes, load<V>(dy + v * kLanes));
    store(packed + (vectors - 1) * kLanes, load_n(dy + (vectors - 1) * kLanes, last));
  }
}

// Columns of x one after the other, `step` apart: from all over the memory, each would be on a page of its
// own.
static void nt_pack_x(const NtArgs& a, Range js, float* to, int64_t step) {
  for (int64_t j = js.begin; j < js.end; j++, to += step) {
    const float* x = col(a.x, j) + a.ks.begin;
    each_vector(a.ks.end - a.ks.begin, [&](int64_t k, auto get, auto, auto put)
                                           __attribute__((always_inline)) { put(to + k, get(x + k)); });
  }
}

static void nt_packed(const NtArgs& a, Range js, int64_t next) {
  const int64_t n = js.end - js.begin;
  // An odd number of cache lines, as what a tile reads of columns must not fall into the same few of them.
  const int64_t step = (ceil_div(a.ks.end - a.ks.begin, kLine) | 1) * kLine;
  static thread_local Scratch scratch;
  float *const dy = scratch.get(kNtBlock * (kPanelRows + step)), *const x = dy + kNtBlock * kPanelRows;
  nt_pack_x(a, js, x, step);
  NtFetch fetch(a, js, next);
  for (int64_t r = a.rows.begin; r < a.rows.end; r += kPanelRows) {
    const int64_t height = min_of(kPanelRows, a.rows.end - r);
    nt_pack_dy(a, js, r, height, dy);
    for (int64_t k = a.ks.begin; k < a.ks.end; k += kTileCols) {
      if (fetch.left()) fetch.step();
      const Packed source{dy, x + k - a.ks.begin, step};
      nt_dispatch(n, source, a.dw + k * a.ld + r, a.ld, height, min_of(kTileCols, a.ks.end - k), a.unset);
    }
  }
}

static void nt_short(NtArgs args, Range js, int64_t next, bool packs) {
  for (int64_t j = js.begin; j < js.end; j += kNtBlock) {
    const Range block{j, min_of(js.end, j + kNtBlock)};
    if (packs) nt_packed(args, block, next);
    else nt_direct(args, block, next);
    args.unset = false;
  }
}

static void nt_long(const NtArgs& args, int64_t n, bool packs) {
  static thread_local Scratch scratch;
  const int64_t height = args.rows.end - args.rows.begin, width = args.ks.end - args.ks.begin;
  const int64_t size = height * width;
  float *piece = scratch.get(2 * size), *low = piece + size;
  clear(low, size);
  NtArgs part = args;
  part.dw = piece - args.rows.begin - args.ks.begin * height;
  part.ld = height;
  part.unset = true;
  const auto to = [&](int64_t k) { return args.dw + (args.ks.begin + k) * args.ld + args.rows.begin; };
  for (int64_t k = 0; args.unset && k < width; k++) clear(to(k), height);
  for (int64_t j = 0; j < n; j += kNtLong) {
    nt_short(part, {j, min_of(n, j + kNtLong)}, n, packs);
    for (int64_t k = 0; k < width; k++) add_parts(to(k), low + k * height, piece + k * height, height);
  }
  for (int64_t k = 0; k < width; k++) join_parts(to(k), low + k * height, height);
}

static void gemm_nt(Range rows, Range ks, int64_t n, ConstCols dy, ConstCols x, float* dw, int64_t ld,
                    bool unset) {
  const NtArgs args{rows, ks, dy, x, dw, ld, unset};
  if (rows.begin >= rows.end || ks.begin >= ks.end || n <= 0) return;
  if (n <= kNtStreamCols) {
    with_constant<kNtStreamCols>(n, [&](auto count) { nt_stream<decltype(count)::value>(args); });
    return;
  }
  const bool packs = nt_packs(rows.end - rows.begin, ks.end - ks.begin, n);
  if (n > kNtLong) nt_long(args, n, packs);
  else nt_short(args, {0, n}, n, packs);
}

}  // namespace dyc::DYC_ISA
