// Products of few columns, as in decoding and online learning: few_columns<true> is W x, few_columns<false>
// is W' dy. The work is to read W, once: neighbouring threads read neighbouring elements of it.
//
// A block makes some rows of all columns. A thread has four rows and each `splits`-th four of inner indices,
// sums for all columns in registers; what threads have of the same rows is added up in a fixed order, which
// depends on the block's size and on the rows of a tile.
#include "cuda/device/prelude.h"

#include "cuda/device/product_tiles.h"

namespace dyc::cuda {

constexpr int kBlockWarps = kBlock / kWarp;
// Sums of all warps, where each has all rows and columns of the tile.
constexpr int kFewFloats = kBlockWarps * kMostFewRows * kFewColumns;

// Which share of a tile a thread has. Neighbours have, of W x, neighbouring rows, and of W' dy neighbouring
// inner indices: these are stored side by side in a column of W.
template <bool AInner>
struct FewWork {
  int quads, splits, quad, split;  // quads of rows
  int64_t i0;
  DYC_INLINE FewWork(int rows, int64_t first) : quads(rows / kRowsEach), splits(kBlock / quads), i0(first) {
    const int t = static_cast<int>(threadIdx.x);
    quad = AInner ? t % quads : t / splits;
    split = AInner ? t / quads : t % splits;
  }
  // Row u of the thread's; of those beyond the last row there is nothing to write.
  DYC_INLINE int64_t row(int u, int64_t rows) const {
    const int64_t i = i0 + quad * kRowsEach + u;
    return i < rows ? i : rows - 1;
  }
};

// Adds the thread's share of a term to its sums: fours of inner indices. Columns beyond the last one repeat
// it.
template <bool AInner, int N>
DYC_INLINE void add_few_term(const Product& p, const Term& term, const FewWork<AInner>& w,
                             float (&sum)[N][kRowsEach]) {
  const float *a[kRowsEach], *b[N];
  bool wide = true;  // fours can be read at once
  for (int j = 0; j < N; ++j) {
    b[j] = column(term.b, j < p.n ? j : p.n - 1);
    wide = wide && aligned(b[j]);
  }
  const int64_t last = p.m - kRowsEach, mine = w.i0 + w.quad * kRowsEach;
  if constexpr (AInner) {
    wide = wide && !term.a.index && term.a.stride % kRowsEach == 0 && p.m % kRowsEach == 0;
    a[0] = in_device_memory(term.a.base) + (mine < last ? mine : last);
    wide = wide && aligned(a[0]);
  } else {
    for (int u = 0; u < kRowsEach; ++u) {
      a[u] = column(term.a, w.row(u, p.m));
      wide = wide && aligned(a[u]);
    }
  }
  const int inner = static_cast<int>(term.inner), step = 4 * w.splits;
  int k = 4 * w.split;
  const int64_t stride = term.a.stride;
  for (; wide && k + 4 <= inner; k += step) {
    float x[kRowsEach][4];  // four rows of A at four inner indices
    for (int q = 0; q < 4; ++q) {
      const Four part = four(in_device_memory(AInner ? a[0] + (k + q) * stride : a[q] + k));
      for (int u = 0; u < 4; ++u) x[AInner ? u : q][AInner ? q : u] = part.at[u];
    }
    for (int j = 0; j < N; ++j) {
      const Four y = four(in_device_memory(b[j] + k));
      for (int q = 0; q < 4; ++q)
        for (int u = 0; u < kRowsEach; ++u) sum[j][u] = vfma(x[u][q], y.at[q], sum[j][u]);
    }
  }
  DYC_UNROLL(1)
  for (; k < inner; k += step) {
    DYC_UNROLL(1)
    for (int at = k; at < k + 4 && at < inner; ++at) {
      const float* const of = AInner ? column(term.a, at) : nullptr;
      float x[kRowsEach];
      for (int u = 0; u < kRowsEach; ++u)
        x[u] = AInner ? *in_device_memory(of + w.row(u, p.m)) : *in_device_memory(a[u] + at);
      for (int j = 0; j < N; ++j)
        for (int u = 0; u < kRowsEach; ++u) sum[j][u] = vfma(x[u], *in_device_memory(b[j] + at), sum[j][u]);
    }
  }
}

// Adds up what the threads have, and writes the tile.
template <bool AInner, int N>
DYC_INLINE void write_few(const Product& p, const FewWork<AInner>& w, float* memory,
                          float (&sum)[N][kRowsEach]) {
  constexpr int warp = kWarp;
  // In a warp, the threads of the same rows are so many lanes apart, and there are so many.
  const int apart = AInner ? w.quads : 1,
            beside = AInner ? warp / w.quads : (w.splits < warp ? w.splits : warp);
  for (int d = beside / 2 * apart; d >= apart && beside > 1; d /= 2)
    for (int j = 0; j < N; ++j)
      for (int u = 0; u < kRowsEach; ++u) sum[j][u] += __shfl_xor_sync(kAllLanes, sum[j][u], d);
  const int cooperative = beside > 1 ? beside : 1, parts = w.splits / cooperative;
  const int rows = w.quads * kRowsEach;
  __syncthreads();  // the tile before has been read
  if (w.split % cooperative == 0)
    for (int j = 0; j < N; ++j)
      for (int u = 0; u < kRowsEach; ++u)
        memory[(w.split / cooperative * N + j) * rows + w.quad * kRowsEach + u] = sum[j][u];
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < rows * N; e += kBlock) {
    const int64_t i = w.i0 + e % rows, j = e / rows;
    if (i >= p.m || j >= p.n) continue;
    float all = 0.f;
    for (int part = 0; part < parts; ++part) all += memory[part * N * rows + e];
    float* const c = column(p.c, j);
    c[i] = result_of(p, c, i, j, all);
  }
}

template <bool AInner, int N>
__device__ void few_tile(const Products& all, const Product& p, uint32_t tile, float* memory) {
  const FewWork<AInner> w(static_cast<int>(all.rows), int64_t{tile} * all.rows);
  float sum[N][kRowsEach] = {};
  for (uint32_t k = p.first; k < p.first + p.terms; ++k)
    add_few_term(p, in_device_memory(all.terms)[k], w, sum);
  write_few(p, w, memory, sum);
}

// memory: kFewFloats of the block's.
template <bool AInner>
__device__ void run_few_columns(const LaunchArgs& r, float* memory) {
  const Products& all = extra_of<Products>(r);
  for (uint32_t tile = blockIdx.x; tile < all.tiles; tile += gridDim.x) {
    const Product& p = product_of(all, tile);
    const uint32_t mine = tile - p.tile;
    if (p.n == 1) few_tile<AInner, 1>(all, p, mine, memory);
    else if (p.n == 2) few_tile<AInner, 2>(all, p, mine, memory);
    else if (p.n <= 4) few_tile<AInner, 4>(all, p, mine, memory);
    else few_tile<AInner, kFewColumns>(all, p, mine, memory);
  }
}

template <bool AInner>
__global__ void __launch_bounds__(kBlock, 2) few_columns(const LaunchArgs* args) {
  DYC_SHARED(float, memory, kFewFloats);
  run_few_columns<AInner>(*args, memory);
}

}  // namespace dyc::cuda
