// Products with few columns, in a persistent kernel that makes many of them with the same weights: each block
// has its rows of the weights in shared memory and reads nothing but the columns. persistent_product<true> is
// for W x, persistent_product<false> for W' dy.
//
// Rows are counted within the block: of each period those of its own slice (cuda/device/row_slices.h). How
// an element is summed does not depend on grid or block.
#include "cuda/device/prelude.h"

#include "cuda/device/product_tiles.h"
#include "cuda/abi/persistent_weights.h"
#include "cuda/device/row_slices.h"
#include "cuda/device/worker.h"

namespace dyc::cuda {

constexpr int kWarpRows = 2, kWarpColumns = 4;

// Where a row of the block is in the whole result.
DYC_INLINE int64_t row_of(const RowSlice& own, int64_t period, int i) {
  return i / own.count * period + own.first + i % own.count;
}

// The block's rows of A, where neighbouring threads read neighbours in memory. AInner: columns of A are
// counted by the inner index, else by the rows.
template <bool AInner>
DYC_INLINE void load_weights(float* to, const Term& term, const RowSlice& own, int64_t period, int rows) {
  const int inner = static_cast<int>(term.inner), stride = static_cast<int>(weight_stride(inner));
  for (int e = static_cast<int>(threadIdx.x); e < rows * inner; e += static_cast<int>(blockDim.x)) {
    const int i = AInner ? e % rows : e / inner, k = AInner ? e / rows : e % inner;
    const int64_t row = row_of(own, period, i);
    to[i * stride + k] = AInner ? column(term.a, k)[row] : column(term.a, row)[k];
  }
}

// Adds the lane's share of a term to the elements of rows i, i + 1... of the block and columns j, j + 1...
// Beyond the ends it takes the last row or column again.
DYC_INLINE void add_term(const Term& term, const float* a, int i, int rows, int64_t j, int64_t columns,
                         float (&sum)[kWarpColumns][kWarpRows]) {
  const int inner = static_cast<int>(term.inner), stride = static_cast<int>(weight_stride(inner));
  const float *row[kWarpRows], *columns_of[kWarpColumns];
  for (int u = 0; u < kWarpRows; ++u) row[u] = a + (i + u < rows ? i + u : rows - 1) * stride;
  for (int v = 0; v < kWarpColumns; ++v)
    columns_of[v] = column(term.b, j + v < columns ? j + v : columns - 1);
  for (int k = static_cast<int>(lane()); k < inner; k += static_cast<int>(kWarp)) {
    float x[kWarpColumns];
    for (int v = 0; v < kWarpColumns; ++v) x[v] = columns_of[v][k];
    for (int u = 0; u < kWarpRows; ++u) {
      const float w = row[u][k];
      for (int v = 0; v < kWarpColumns; ++v) sum[v][u] = vfma(w, x[v], sum[v][u]);
    }
  }
}

template <bool AInner>
__device__ void run_persistent_product(const LaunchArgs& r) {
  float* const memory = dynamic_shared<float>();
  const PersistentProduct& all = *static_cast<const PersistentProduct*>(r.extra);
  const Product& p = all.product;
  const RowSlice own(all.period);
  const int rows = static_cast<int>(own.count * (p.m / all.period));
  if (rows == 0) return;  // the whole block
  bool fresh = false;
  for (uint32_t t = 0; t < all.count; ++t) {
    if (!all.terms[t].first) continue;
    load_weights<AInner>(memory + all.terms[t].offset, all.terms[t].term, own, all.period, rows);
    fresh = true;
  }
  if (fresh) __syncthreads();
  const int high = (rows + kWarpRows - 1) / kWarpRows;
  const int wide = static_cast<int>((p.n + kWarpColumns - 1) / kWarpColumns);
  const int warps = static_cast<int>(blockDim.x / kWarp);
  for (int part = static_cast<int>(threadIdx.x / kWarp); part < high * wide; part += warps) {
    const int i = part % high * kWarpRows;
    const int64_t j = part / high * kWarpColumns;
    float sum[kWarpColumns][kWarpRows] = {};
    for (uint32_t t = 0; t < all.count; ++t)
      add_term(all.terms[t].term, memory + all.terms[t].offset, i, rows, j, p.n, sum);
    for (int v = 0; v < kWarpColumns; ++v)
      for (int u = 0; u < kWarpRows; ++u) {
        const float element = warp_sum(sum[v][u]);
        const bool mine = lane() == static_cast<uint32_t>(v * kWarpRows + u);
        if (!mine || i + u >= rows || j + v >= p.n) continue;
        float* const c = column(p.c, j + v);
        const int64_t row = row_of(own, all.period, i + u);
        c[row] = result_of(p, c, row, j + v, element);
      }
  }
}

template <bool AInner>
__global__ void persistent_product(const LaunchArgs* args) {
  run_persistent_product<AInner>(*args);
}

}  // namespace dyc::cuda
