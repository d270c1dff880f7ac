// Products of few columns, as in decoding and online learning: few_columns<true> is W x, few_columns<false>
// is W' dy. The work is to read W, once: neighbouring threads read neighbouring elements of it.
//
// A tile is kFewRows rows and at most kFewColumns columns. A thread has four rows and each kWarp-th four of
// inner indices, sums for all columns in registers. What threads have of the same rows is added up as
// sum_of_shares() does, so that device/persistent_product.h makes the same bits.
#include "cuda/device/prelude.h"

#include "cuda/device/followers.h"
#include "cuda/device/product_head.h"
#include "cuda/device/product_tiles.h"

namespace dyc::cuda {

constexpr int kBlockWarps = kBlock / kWarp;
constexpr int kFewFloats = kBlockWarps * kFewRows * kFewColumns;
static_assert(kFewRows == kBlockWarps * kRowsEach && kMostFewColumns == 2 * kFewColumns);

// Which share of a tile a thread has. Neighbours have, of W x, neighbouring rows, and of W' dy neighbouring
// inner indices: these are stored side by side in a column of W.
template <bool AInner>
struct FewWork {
  int quad, share, j0;  // quad of rows
  uint32_t i0;
  DYC_INLINE FewWork(const Product& p, uint32_t tile) {
    const auto t = static_cast<int>(thread_now()), warp = static_cast<int>(kWarp);
    const auto high = static_cast<uint32_t>((p.m + kFewRows - 1) / kFewRows);  // tiles above each other
    quad = AInner ? t % kBlockWarps : t / warp;
    share = AInner ? t / kBlockWarps : t % warp;
    const bool second = tile >= high;
    i0 = (second ? tile - high : tile) * kFewRows;
    j0 = second ? kFewColumns : 0;
  }
  // Row u of the thread's; of those beyond the last row there is nothing to write.
  DYC_INLINE int64_t row(int u, int64_t rows) const {
    const int64_t i = int64_t{i0} + quad * kRowsEach + u;
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
    b[j] = column(term.b, w.j0 + j < p.n ? w.j0 + j : p.n - 1);
    wide = wide && aligned(b[j]);
  }
  const int64_t last = p.m - kRowsEach, mine = int64_t{w.i0} + w.quad * kRowsEach;
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
  const int inner = static_cast<int>(term.inner), step = 4 * static_cast<int>(kWarp);
  int k = 4 * w.share;
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

// Adds up what the threads have, and writes the tile. Of W x, kTogether shares of a row are in each warp; of
// W' dy all are.
template <bool AInner, int N>
DYC_INLINE void write_few(const Product& p, const FewWork<AInner>& w, float* memory,
                          float (&sum)[N][kRowsEach]) {
  constexpr int parts = AInner ? kBlockWarps : 1, of_part = kWarp / parts;
  for (int j = 0; j < N; ++j)
    for (int u = 0; u < kRowsEach; ++u)
      sum[j][u] = AInner ? sum_of_neighbours(sum[j][u], kBlockWarps) : sum_of_shares(sum[j][u]);
  __syncthreads();  // the tile before has been read
  if (w.share % of_part == 0)
    for (int j = 0; j < N; ++j)
      for (int u = 0; u < kRowsEach; ++u)
        memory[(w.share / of_part * N + j) * kFewRows + w.quad * kRowsEach + u] = sum[j][u];
  __syncthreads();
  for (int e = static_cast<int>(thread_now()); e < kFewRows * N; e += kBlock) {
    const int64_t i = int64_t{w.i0} + e % kFewRows, j = w.j0 + e / kFewRows;
    if (i >= p.m || j >= p.n) continue;
    float all[parts];
    for (int part = 0; part < parts; ++part) all[part] = memory[part * N * kFewRows + e];
    for (int half = parts / 2; half > 0; half /= 2)
      for (int part = 0; part < half; ++part) all[part] += all[part + half];
    float* const c = column(p.c, j);
    c[i] = result_of(p, c, i, j, all[0]);
  }
}

// Each thread goes on with the elements that it wrote.
template <bool AInner>
DYC_INLINE void follow_few(const ProductHead& head, const Product& p, uint32_t tile) {
  const FewWork<AInner> w(p, tile);  // again: it takes no registers before
  const int left = static_cast<int>(p.n) - w.j0, columns = left < kFewColumns ? left : kFewColumns;
  const Follower* const followers = head.wait_for_followers();
  DYC_UNROLL(1)
  for (int e = static_cast<int>(thread_now()); e < kFewRows * columns; e += kBlock) {
    MadeElements<1> made{{int64_t{w.i0} + e % kFewRows}, {w.j0 + e / kFewRows}, {}};
    if (made.i[0] >= p.m) continue;
    made.value[0] = column(p.c, made.j[0])[made.i[0]];
    follow<AInner, !AInner>(followers, p.follower_count, made);
  }
}

template <bool AInner, int N>
__device__ void few_tile(ProductHead& head, uint32_t first, const Product& p, const FewWork<AInner>& w,
                         float* memory) {
  float sum[N][kRowsEach] = {};
  DYC_UNROLL(1)
  for (uint32_t k = first, end = first + terms_at_once<!AInner>(p); k < end; ++k)
    add_few_term(p, head.term(k), w, sum);
  write_few(p, w, memory, sum);
}

// memory: kFewFloats of the block's.
template <bool AInner>
__device__ void run_few_columns(const Products* record, float* memory) {
  ProductHead& head = read_head(record);
  for (uint32_t tile = blockIdx.x, term = 0; tile < head.all().tiles;) {
    const Product& p = head.product(tile);
    if (term == 0) head.fetch_followers(p);
    const FewWork<AInner> w(p, tile - p.tile);
    const uint32_t first = p.first + term;
    const auto columns = static_cast<int>(p.n) - w.j0;
    if (columns == 1) few_tile<AInner, 1>(head, first, p, w, memory);
    else if (columns == 2) few_tile<AInner, 2>(head, first, p, w, memory);
    else if (columns <= 4) few_tile<AInner, 4>(head, first, p, w, memory);
    else few_tile<AInner, kFewColumns>(head, first, p, w, memory);
    term += terms_at_once<!AInner>(p);
    if (!AInner && term < p.terms) continue;
    if (p.follower_count) follow_few<AInner>(head, p, tile - p.tile);
    tile += gridDim.x;
    term = 0;
  }
}

template <bool AInner>
__global__ void __launch_bounds__(kBlock, 2) few_columns(const LaunchArgs* args) {
  DYC_SHARED(float, memory, kFewFloats);
  run_few_columns<AInner>(products_of(args), memory);
}

}  // namespace dyc::cuda
