// y_j = start_j + W x_j. One chain of additions in order of k per block of kNnBlock; tiles differ in shape,
// not in results.
#pragma once
#include "cpu/isa/gemm_common.h"

namespace dyc::DYC_ISA {

// Are short runs of rows slow, as they are all over the memory, or fall into the same few cache lines?
DYC_INLINE bool nn_slow_runs(int64_t rows, int64_t cols, int64_t k, int64_t ld) {
  if (!kManyRegisters) return rows * k > kNnLarge || ld % kNnCrowded == 0;
  return cols > kTileCols && ld % kNnCrowded == 0 && ld * k >= kNnCrowdedFloats;
}
// Up to so many columns, the first tile that reads a block of W copies it, into the first-level cache.
DYC_INLINE int64_t nn_copy_cols(int64_t k) { return k <= kNnCopyShort ? kNnCopyCols : kNnCopyLong; }
// For more, W is copied to panels beforehand, if runs are slow or it is large and read many times.
DYC_INLINE bool nn_packs(int64_t rows, int64_t cols, int64_t k, int64_t ld) {
  return nn_slow_runs(rows, cols, k, ld) || (!kLongRuns && rows * k > kNnPacked && cols >= kNnPackedCols);
}
// Columns and rows of W per pass: both should stay in the second-level cache.
DYC_INLINE int64_t nn_pass_cols(int64_t k) {
  const int64_t fit = kNnCacheFloats / k / kTileCols * kTileCols;
  return fit < kNnPassCols ? kNnPassCols : fit;
}
DYC_INLINE int64_t nn_pass_rows(int64_t k) {
  const int64_t fit = min_of(kNnMostRows, kNnCacheFloats / k) / kPanelRows * kPanelRows;
  return fit < kNnPassRows ? kNnPassRows : fit;
}

// What a tile does with columns of W beside reading them. `fetches`: those that follow are fetched, as the
// processor does so only along long runs. `copies`: they are stored to a panel, and the next panel is
// fetched.
enum class NnReads { plain, fetches, copies };

template <int R, int C, bool kTail, NnReads kReads>
DYC_TILE nn_tile(int64_t k, const float* w, int64_t ld, const float* const* xs, const float* const* starts,
                 float* const* ys, int last, float* panel = nullptr) {
  const float* x[C];
  DYC_UNROLL for (int c = 0; c < C; c++) x[c] = xs[c];
  int64_t i = 0;
  do {
    V acc[R][C];
    DYC_UNROLL for (int c = 0; c < C; c++) { DYC_UNROLL for (int r = 0; r < R; r++) acc[r][c] = V{}; }
    for (const int64_t end = min_of(k, i + kNnBlock); i < end; i++, w += ld) {
      if constexpr (kReads == NnReads::fetches) {
        DYC_UNROLL for (int r = 0; r < R * kLanes; r += kLine) __builtin_prefetch(w + kNnAhead * ld + r);
      }
      // With few registers only the shorter side of the tile is held, the longer one passes through one more.
      if constexpr (R > C && !kManyRegisters) {
        V b[C];
        DYC_UNROLL for (int c = 0; c < C; c++) b[c] = splat<V>(x[c][i]);
        DYC_UNROLL for (int r = 0; r < R; r++) {
          const V a = kTail && r == R - 1 ? load_n(w + r * kLanes, last) : load<V>(w + r * kLanes);
          DYC_UNROLL for (int c = 0; c < C; c++) acc[r][c] = vfma(a, b[c], acc[r][c]);
        }
      } else {
        V a[R];
        DYC_UNROLL for (int r = 0; r < R; r++) {
          a[r] = kTail && r == R - 1 ? load_n(w + r * kLanes, last) : load<V>(w + r * kLanes);
          if constexpr (kReads == NnReads::copies) store(panel + i * kPanelRows + r * kLanes, a[r]);
        }
        if constexpr (kReads == NnReads::copies) __builtin_prefetch(w + kPanelRows, 0, 2);
        DYC_UNROLL for (int c = 0; c < C; c++) {
          const V b = splat<V>(x[c][i]);
          DYC_UNROLL for (int r = 0; r < R; r++) acc[r][c] = vfma(a[r], b, acc[r][c]);
        }
      }
    }
    DYC_UNROLL for (int c = 0; c < C; c++) {
      DYC_UNROLL for (int r = 0; r < R; r++) {
        const float* from = starts ? starts[c] + r * kLanes : nullptr;
        float* y = ys[c] + r * kLanes;
        V sum = acc[r][c];
        if (kTail && r == R - 1) {
          if (from) sum = load_n(from, last) + sum;
          store_n(y, sum, last);
        } else {
          if (from) sum = load<V>(from) + sum;
          store(y, sum);
        }
      }
    }
    starts = ys;
  } while (i < k);
}

struct NnArgs {
  int64_t k;
  const float* w;
  int64_t ld;
  ConstCols x, start;
  Cols y;
};

// Columns [j, j + C) from a row on.
template <int C> struct NnColumns {
  const float *xs[C], *starts[C];
  float* ys[C];
  bool started;
  DYC_INLINE NnColumns(const NnArgs& a, int64_t row, int64_t j) : started(a.start.base) {
    for (int c = 0; c < C; c++) {
      xs[c] = col(a.x, j + c);
      ys[c] = col(a.y, j + c) + row;
      starts[c] = started ? col(a.start, j + c) + row : nullptr;
    }
  }
  DYC_INLINE const float* const* from() const { return started ? starts : nullptr; }
};

struct NnFetch {
  int64_t x;  // columns below it are fetched
  bool y;     // and where their results go
};

// Columns [j, j + C) of rows [begin, end); w points at row `begin`. The next columns are fetched meanwhile.
template <int C, NnReads kReads>
DYC_INLINE void nn_columns(const NnArgs& a, const float* w, int64_t ld, Range rows, int64_t j,
                           NnFetch fetch) {
  NnColumns<C> columns(a, rows.begin, j);
  constexpr int kMost = kTileRows<C>;
  const float *next[C], *next_y[C];
  int64_t fetched = a.k, each_tile = 0, y_end = rows.begin;
  if (j + C < fetch.x) {
    for (int c = 0; c < C; c++) {
      next[c] = col(a.x, min_of(j + C + c, fetch.x - 1));
      next_y[c] = col(a.y, min_of(j + C + c, fetch.x - 1));
    }
    const int64_t tiles = ceil_div(rows.end - rows.begin, kMost * kLanes);
    each_tile = min_of(kNnFetch, ceil_div(ceil_div(a.k, kLine), tiles));
    fetched = 0;
    if (fetch.y) y_end = rows.end;
  }
  for (int64_t r = rows.begin; r < rows.end; r += kMost * kLanes) {
    for (int64_t q = 0; q < each_tile && fetched < a.k; q++, fetched += kLine) {
      for (int c = 0; c < C; c++) __builtin_prefetch(next[c] + fetched);
    }
    for (int64_t y = r; y < min_of(y_end, r + kMost * kLanes); y += kLine) {
      for (int c = 0; c < C; c++) __builtin_prefetch(next_y[c] + y, 1);
    }
    const int64_t left = min_of(rows.end - r, kMost * kLanes), vectors = ceil_div(left, kLanes);
    const int last = static_cast<int>(left - (vectors - 1) * kLanes);
    with_constant<kMost>(vectors, [&](auto v) {
      constexpr int R = decltype(v)::value;
      if (last == kLanes)
        nn_tile<R, C, false, kReads>(a.k, w, ld, columns.xs, columns.from(), columns.ys, last);
      else nn_tile<R, C, true, kReads>(a.k, w, ld, columns.xs, columns.from(), columns.ys, last);
    });
    w += left;
    for (int c = 0; c < C; c++) {
      columns.ys[c] += left;
      if (columns.started) columns.starts[c] += left;
    }
  }
}

template <NnReads kReads>
DYC_INLINE void nn_tiles(const NnArgs& a, const float* w, int64_t ld, Range rows, Range cols) {
  const int64_t tiles = ceil_div(cols.end - cols.begin, kTileCols);
  const int64_t n = cols.end - cols.begin, height = rows.end - rows.begin;
  const NnFetch fetch{n * a.k > kNnCacheFloats ? cols.end : 0, kNnFetchesY && n * (a.k + height) > kStreamed};
  int64_t j = cols.begin;
  for (int64_t t = tiles; t > 0; t--) {  // even sizes: 8 columns are 4 + 4, not 6 + 2
    const int64_t width = ceil_div(cols.end - j, t);
    with_constant<kTileCols>(
        width, [&](auto c) { nn_columns<decltype(c)::value, kReads>(a, w, ld, rows, j, fetch); });
    j += width;
  }
}

// A few columns, by blocks of kNnBlock columns of W. Their tiles share what the first one copies.
static void nn_blocks(const NnArgs& all, Range rows, Range cols) {
  const int64_t width = cols.end - cols.begin, first = ceil_div(width, ceil_div(width, kTileCols));
  alignas(64) float panel[kPanelRows * kNnBlock];
  NnArgs a = all;
  for (int64_t i = 0; i < all.k; i += kNnBlock) {
    a.k = min_of(kNnBlock, all.k - i);
    int64_t r = rows.begin;
    for (; width > kTileCols && r + kPanelRows <= rows.end; r += kPanelRows) {
      with_constant<kTileCols / 2>(first - kTileCols / 2, [&](auto c) {
        constexpr int C = decltype(c)::value + kTileCols / 2;
        const NnColumns<C> to(a, r, cols.begin);
        nn_tile<kPanel, C, false, NnReads::copies>(a.k, a.w + r, a.ld, to.xs, to.from(), to.ys, kLanes,
                                                   panel);
      });
      nn_tiles<NnReads::plain>(a, panel, kPanelRows, {r, r + kPanelRows}, {cols.begin + first, cols.end});
    }
    if (r < rows.end) nn_tiles<NnReads::plain>(a, a.w + r, a.ld, {r, rows.end}, cols);
    a.w += kNnBlock * a.ld;
    a.x.base += kNnBlock;
    a.start = {a.y.base, a.y.stride, a.y.index};
  }
}

// For few columns W is read once and its streaming is all that counts: kStreamK whole columns of W at a time,
// the sums waiting in the first-level cache. Each element has the same chains as in a tile.

// What a pass over some columns of W goes on from, what it is added to in the end, and where it goes; null:
// 0.
template <int C> struct NnStream {
  const float *begun[C], *start[C];
  float* y[C];
};

template <int K, int C>
DYC_TILE nn_stream_block(int64_t rows, const float* w, int64_t ld, const float* const* xs,
                         const NnStream<C>& stream) {
  V b[K][C];
  const NnStream<C> s = stream;
  DYC_UNROLL for (int c = 0; c < C; c++) {
    DYC_UNROLL for (int q = 0; q < K; q++) b[q][c] = splat<V>(xs[c][q]);
  }
  each_vector(rows, [&](int64_t r, auto get, auto far, auto put) __attribute__((always_inline)) {
    V acc[C];
    DYC_UNROLL for (int c = 0; c < C; c++) acc[c] = s.begun[c] ? get(s.begun[c] + r) : V{};
    DYC_UNROLL for (int q = 0; q < K; q++) {
      const V a = far(w + q * ld + r);
      DYC_UNROLL for (int c = 0; c < C; c++) acc[c] = vfma(a, b[q][c], acc[c]);
    }
    DYC_UNROLL for (int c = 0; c < C; c++)
        put(s.y[c] + r, s.start[c] ? get(s.start[c] + r) + acc[c] : acc[c]);
  });
}

template <int C> DYC_INLINE void nn_stream(const NnArgs& a, Range rows, int64_t j) {
  static thread_local Scratch scratch;
  const int64_t height = rows.end - rows.begin;
  float* sums = scratch.get(C * height);
  const float *xs[C], *starts[C];
  for (int c = 0; c < C; c++) {
    xs[c] = col(a.x, j + c);
    starts[c] = a.start.base ? col(a.start, j + c) + rows.begin : nullptr;
  }
  constexpr int kMost = kStreamK<C>;
  for (int64_t k = 0, block = 0; k < a.k;) {
    const int64_t end = min_of(a.k, block + kNnBlock), count = min_of(kMost, end - k);
    NnStream<C> stream;
    for (int c = 0; c < C; c++) {
      float* const y = col(a.y, j + c) + rows.begin;
      stream.begun[c] = k > block ? sums + c * height : nullptr;
      stream.start[c] = k + count < end ? nullptr : starts[c];
      stream.y[c] = k + count < end ? sums + c * height : y;
      if (k + count == end) starts[c] = y;
    }
    with_constant<kMost>(count, [&](auto q) {
      nn_stream_block<decltype(q)::value, C>(height, a.w + rows.begin + k * a.ld, a.ld, xs, stream);
    });
    for (int c = 0; c < C; c++) xs[c] += count;
    k += count;
    if (k == end) block = k;
  }
}

// W[0..rows) -> packed[panel][k][kPanelRows], zeros below the last row. Runs down the columns: long runs of
// memory.
static void nn_pack(const float* w, int64_t ld, int64_t rows, int64_t k, float* packed) {
  for (int64_t i = 0; i < k; i++, w += ld, packed += kPanelRows) {
    float* to = packed;
    int64_t r = 0;
    for (; r + kPanelRows <= rows; r += kPanelRows, to += k * kPanelRows) {
      DYC_UNROLL for (int v = 0; v < kPanel; v++) store(to + v * kLanes, load<V>(w + r + v * kLanes));
    }
    for (int v = 0; r < rows && v < kPanel; v++) {
      const int64_t left = rows - r - v * kLanes;
      const int lanes = static_cast<int>(left < 0 ? 0 : min_of(left, kLanes));
      store(to + v * kLanes, load_n(w + r + v * kLanes, lanes));
    }
  }
}

static void nn_short(Range rows, Range cols, int64_t k, const float* w, int64_t ld, ConstCols x,
                     ConstCols start, Cols y) {
  const NnArgs args{k, w, ld, x, start, y};
  const int64_t width = cols.end - cols.begin;
  if (width <= 0 || rows.end <= rows.begin) return;
  if (k <= 0) {  // an empty sum; one pass of a tile writes it
    nn_tiles<NnReads::plain>(args, w, ld, rows, cols);
    return;
  }
  // One tile of so few rows reads W in long runs, too.
  if (width <= kStreamCols && ld > min_of(kTileRows<1> * kLanes, nn_pass_rows(k))) {
    with_constant<kStreamCols>(width, [&](auto c) { nn_stream<decltype(c)::value>(args, rows, cols.begin); });
    return;
  }
  const int64_t height = rows.end - rows.begin, pass_rows = nn_pass_rows(k);
  if (width <= nn_copy_cols(k) && nn_slow_runs(height, width, k, ld)) return nn_blocks(args, rows, cols);
  if (!nn_packs(height, width, k, ld)) {
    for (int64_t r = rows.begin; r < rows.end; r += pass_rows) {
      const Range pass{r, min_of(rows.end, r + pass_rows)};
      if (height * k >= kNnFetched) nn_tiles<NnReads::fetches>(args, w + r, ld, pass, cols);
      else nn_tiles<NnReads::plain>(args, w + r, ld, pass, cols);
    }
    return;
  }
  static thread_local Scratch scratch;
  const int64_t pass_cols = nn_pass_cols(k);
  float* packed = scratch.get(pass_rows * k);
  for (int64_t r = rows.begin; r < rows.end; r += pass_rows) {
    const int64_t part = min_of(pass_rows, rows.end - r);
    nn_pack(w + r, ld, part, k, packed);
    for (int64_t j = cols.begin; j < cols.end; j += pass_cols) {
      const Range pass{j, min_of(cols.end, j + pass_cols)};
      for (int64_t p = 0; p < part; p += kPanelRows) {
        const Range panel{r + p, r + min_of(part, p + kPanelRows)};
        nn_tiles<NnReads::plain>(args, packed + p * k, kPanelRows, panel, pass);
      }
    }
  }
}

// Some columns at a time: y holds the sum, scratch memory a piece and what rounding y has lost.
static void nn_long(Range rows, Range cols, int64_t k, const float* w, int64_t ld, ConstCols x,
                    ConstCols start, Cols y) {
  static thread_local Scratch scratch;
  const int64_t height = rows.end - rows.begin;
  for (int64_t begin = cols.begin; begin < cols.end; begin += kNnLongColumns) {
    const Range part{begin, min_of(cols.end, begin + kNnLongColumns)};
    const int64_t size = height * (part.end - part.begin);
    float *piece = scratch.get(2 * size), *low = piece + size;
    clear(low, size);
    const auto each_column = [&](auto f) {
      for (int64_t j = part.begin; j < part.end; j++) f(j, (j - begin) * height, col(y, j) + rows.begin);
    };
    each_column([&](int64_t j, int64_t, float* to) {
      if (start.base) __builtin_memmove(to, col(start, j) + rows.begin, height * sizeof(float));
      else clear(to, height);
    });
    const Cols out{piece - rows.begin - begin * height, height, nullptr};
    for (int64_t i = 0; i < k; i += kNnLong) {
      ConstCols from = x;
      from.base += i;
      nn_short(rows, part, min_of(kNnLong, k - i), w + i * ld, ld, from, ConstCols{}, out);
      each_column([&](int64_t, int64_t at, float* to) { add_parts(to, low + at, piece + at, height); });
    }
    each_column([&](int64_t, int64_t at, float* to) { join_parts(to, low + at, height); });
  }
}

static void gemm_nn(Range rows, Range cols, int64_t k, const float* w, int64_t ld, ConstCols x,
                    ConstCols start, Cols y) {
  if (k > kNnLong) nn_long(rows, cols, k, w, ld, x, start, y);
  else nn_short(rows, cols, k, w, ld, x, start, y);
}

}  // namespace dyc::DYC_ISA
