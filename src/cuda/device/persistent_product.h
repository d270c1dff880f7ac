// Products with few columns, in a persistent kernel that makes many of them with the same weights: each block
// has its rows of the weights in shared memory and reads nothing but the columns. For kernels only.
//
// Rows are counted within the block: of each period those of its own slice (cuda/device/row_slices.h). An
// element is summed as in kernels/few_columns.cu, whatever the grid and its block.
#pragma once
#include "cuda/abi/persistent.h"
#include "cuda/device/followers.h"
#include "cuda/device/product_tiles.h"
#include "cuda/device/row_slices.h"
#include "cuda/device/worker.h"

namespace dyc::cuda {

// Where a row of the block is in the whole result.
DYC_INLINE int64_t row_of(const RowSlice& own, int64_t period, int i) {
  const int count = static_cast<int>(own.count);
  return i < count ? own.first + i : i / count * period + own.first + i % count;
}
DYC_INLINE int rows_of(const RowSlice& own, int64_t m, int64_t period) {
  return static_cast<int>(own.count) * static_cast<int>(m / period);
}

// The block's rows of weights, where neighbouring threads copy neighbours in memory.
template <bool AInner>
DYC_INLINE void load_weight(float* to, const WeightLoad& load) {
  const RowSlice own(load.period);
  const int rows = rows_of(own, load.rows, load.period), inner = static_cast<int>(load.inner);
  if (rows == 0) return;
  const int stride = static_cast<int>(weight_stride(inner)), fast = AInner ? rows : inner;
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  int near = thread % fast, far = thread / fast;
  for (; far < (AInner ? inner : rows); near += threads % fast, far += threads / fast) {
    if (near >= fast) {
      near -= fast;
      if (++far == (AInner ? inner : rows)) break;
    }
    const int i = AInner ? near : far, k = AInner ? far : near;
    const int64_t row = row_of(own, load.period, i);
    copy_async(to + i * stride + k, AInner ? column(load.a, k) + row : column(load.a, row) + k);
  }
}

// Begins to copy those from `next` on that are loaded before a step; returns the first of those that are not.
__device__ inline uint32_t load_weights(const PersistentArgs& all, uint32_t next, uint32_t step) {
  for (; next < all.load_count && all.loads[next].step == step; ++next) {
    const WeightLoad& load = all.loads[next];
    float* const to = dynamic_shared<float>() + load.offset;
    if (load.forward) load_weight<true>(to, load);
    else load_weight<false>(to, load);
  }
  return next;
}

// Elements k to k + 3 of each column. Aligned: each of the columns is.
template <bool Aligned>
DYC_INLINE void read_columns(const float* const (&columns)[kWarpColumns], int k, Four (&x)[kWarpColumns]) {
  for (int v = 0; v < kWarpColumns; ++v) {
    if constexpr (Aligned) x[v] = four(columns[v] + k);
    else
      for (int u = 0; u < 4; ++u) x[v].at[u] = columns[v][k + u];
  }
}

// The lane's fours of inner indices; of those at the end of the row less than four may be left.
template <bool Aligned>
DYC_INLINE void add_fours(const float* const (&row)[kWarpRows], const float* const (&columns)[kWarpColumns],
                          int inner, float (&sum)[kWarpColumns][kWarpRows]) {
  int k = 4 * static_cast<int>(lane());
  DYC_UNROLL(2)
  for (; k + 4 <= inner; k += 4 * static_cast<int>(kWarp)) {
    Four x[kWarpColumns];
    read_columns<Aligned>(columns, k, x);
    for (int u = 0; u < kWarpRows; ++u) {
      const Four w = four(row[u] + k);
      for (int v = 0; v < kWarpColumns; ++v)
        for (int q = 0; q < 4; ++q) sum[v][u] = vfma(w.at[q], x[v].at[q], sum[v][u]);
    }
  }
  DYC_UNROLL(1)
  for (; k < inner; ++k)
    for (int u = 0; u < kWarpRows; ++u)
      for (int v = 0; v < kWarpColumns; ++v) sum[v][u] = vfma(row[u][k], columns[v][k], sum[v][u]);
}

// Adds the lane's share of a term to the elements of rows i, i + 1... of the block and columns j, j + 1...
// Beyond the ends it takes the last row or column again.
DYC_INLINE void add_term(const Term& term, const float* a, int i, int rows, int64_t j, int64_t columns,
                         float (&sum)[kWarpColumns][kWarpRows]) {
  const int inner = static_cast<int>(term.inner), stride = static_cast<int>(weight_stride(inner));
  const float *row[kWarpRows], *columns_of[kWarpColumns];
  for (int u = 0; u < kWarpRows; ++u) row[u] = a + (i + u < rows ? i + u : rows - 1) * stride;
  bool whole = true;
  for (int v = 0; v < kWarpColumns; ++v) {
    columns_of[v] = column(term.b, j + v < columns ? j + v : columns - 1);
    whole = whole && aligned(columns_of[v]);
  }
  if (whole) add_fours<true>(row, columns_of, inner, sum);
  else add_fours<false>(row, columns_of, inner, sum);
}

// All lanes together: the sum of lanes' elements e in lane e, and 0 in lanes that have none.
DYC_INLINE float own_sum(const float (&sum)[kWarpColumns][kWarpRows]) {
  float mine = 0.f;
  for (int v = 0; v < kWarpColumns; ++v)
    for (int u = 0; u < kWarpRows; ++u) {
      const float element = sum_of_shares(sum[v][u]);
      if (lane() == static_cast<uint32_t>(v * kWarpRows + u)) mine = element;
    }
  return mine;
}

__device__ inline void run_persistent_product(const LaunchArgs& r) {
  float* const memory = dynamic_shared<float>();
  const PersistentProduct& all = extra_of<PersistentProduct>(r);
  const Product& p = all.product;
  const PersistentTerm* const terms = in_device_memory(all.terms);
  const RowSlice own(all.period);
  const int rows = rows_of(own, p.m, all.period);
  const int high = (rows + kWarpRows - 1) / kWarpRows;
  const int wide = static_cast<int>((p.n + kWarpColumns - 1) / kWarpColumns);
  const int warps = static_cast<int>(blockDim.x / kWarp);
  for (int part = static_cast<int>(threadIdx.x / kWarp); part < high * wide; part += warps) {
    const int i = part % high * kWarpRows;
    const int64_t j = part / high * kWarpColumns;
    float sum[kWarpColumns][kWarpRows] = {};
    for (uint32_t t = 0; t < all.count; ++t)
      add_term(terms[t].term, memory + terms[t].offset, i, rows, j, p.n, sum);
    const float element = own_sum(sum);
    const int u = static_cast<int>(lane()) % kWarpRows, v = static_cast<int>(lane()) / kWarpRows;
    if (v >= kWarpColumns || i + u >= rows || j + v >= p.n) continue;
    float* const c = column(p.c, j + v);
    const int64_t row = row_of(own, all.period, i + u);
    MadeElements<1> made{{row}, {j + v}, {result_of(p, c, row, j + v, element)}};
    c[row] = made.value[0];
    follow<true, true>(in_device_memory(p.followers), p.follower_count, made);
  }
}

}  // namespace dyc::cuda
