// Matrix products over columns that lie anywhere: product<true, false, 16> names the kernel for W x.
//
// A product is cut into square tiles; a block makes one tile after the other, with both factors in shared
// memory. No sum is split, so results do not depend on the grid.
#include "cuda/prelude.h"

#include "cuda/products.h"
#include "cuda/record.h"
#include "cuda/worker.h"

namespace dyc::cuda {

constexpr int kMicro = kTilePerThread;
constexpr int kDepth = 16;  // of the inner index that are in shared memory at once

template <class F>
DYC_INLINE F* column(const Matrix<F>& m, int64_t j) {
  return m.base + (m.index ? m.index[j] : j * m.stride);
}

// The product that a tile belongs to.
DYC_INLINE const Product& product_of(const Products& all, uint32_t tile) {
  uint32_t low = 0, high = all.count;  // products[low].tile <= tile < products[high].tile
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (all.products[middle].tile <= tile) low = middle;
    else high = middle;
  }
  return all.products[low];
}

// Part of a factor in shared memory, to[k * (Side + 1) + i], zero beyond its ends. Inner: the factor's
// columns are counted by k, else by i.
template <bool Inner, int Side>
DYC_INLINE void load_part(float* to, const Matrix<const float>& from, int64_t i0, int64_t rows, int64_t k0,
                          int64_t inner) {
  for (int e = static_cast<int>(threadIdx.x); e < Side * kDepth; e += static_cast<int>(blockDim.x)) {
    const int i = Inner ? e % Side : e / kDepth, k = Inner ? e / Side : e % kDepth;  // neighbours in memory
    float v = 0.f;
    if (i0 + i < rows && k0 + k < inner)
      v = Inner ? column(from, k0 + k)[i0 + i] : column(from, i0 + i)[k0 + k];
    to[k * (Side + 1) + i] = v;
  }
}

// Blocks of Threads x Threads threads, tiles of Threads * kMicro squared. AInner, BInner: columns of A (B)
// are counted by the inner index, else by the rows (columns) of the result:
//   W x     <true, false>    columns of W by inner, columns of x by column
//   W' dy   <false, false>   columns of W by row of dx
//   dy x'   <true, true>     columns of both by inner
template <bool AInner, bool BInner, int Threads>
__device__ void run_product(const Record& r) {
  constexpr int Side = Threads * kMicro;
  DYC_SHARED(float, a, kDepth * (Side + 1));
  DYC_SHARED(float, b, kDepth * (Side + 1));
  const Products& all = *static_cast<const Products*>(r.more);
  const int x = static_cast<int>(threadIdx.x) % Threads, y = static_cast<int>(threadIdx.x) / Threads;
  for (uint32_t tile = blockIdx.x; tile < all.tiles; tile += gridDim.x) {
    const Product& p = product_of(all, tile);
    const int64_t high = (p.m + Side - 1) / Side;  // tiles above each other
    const int64_t i0 = (tile - p.tile) % high * Side, j0 = (tile - p.tile) / high * Side;
    float sum[kMicro][kMicro] = {};
    for (uint32_t t = p.first; t < p.first + p.terms; ++t) {
      const Term term = all.terms[t];
      for (int64_t k0 = 0; k0 < term.inner; k0 += kDepth) {
        __syncthreads();  // the part before has been read
        load_part<AInner, Side>(a, term.a, i0, p.m, k0, term.inner);
        load_part<BInner, Side>(b, term.b, j0, p.n, k0, term.inner);
        __syncthreads();
        for (int k = 0; k < kDepth; ++k) {
          float av[kMicro], bv[kMicro];
          for (int u = 0; u < kMicro; ++u) av[u] = a[k * (Side + 1) + x + u * Threads];
          for (int v = 0; v < kMicro; ++v) bv[v] = b[k * (Side + 1) + y + v * Threads];
          for (int v = 0; v < kMicro; ++v)
            for (int u = 0; u < kMicro; ++u) sum[v][u] = vfma(av[u], bv[v], sum[v][u]);
        }
      }
    }
    for (int v = 0; v < kMicro; ++v)
      for (int u = 0; u < kMicro; ++u) {
        const int64_t i = i0 + x + u * Threads, j = j0 + y + v * Threads;
        if (i >= p.m || j >= p.n) continue;
        float* const c = column(p.c, j) + i;
        if (p.begin == Product::zero) *c = sum[v][u];
        else *c = (p.begin == Product::add ? *c : column(p.start, j)[i]) + sum[v][u];
      }
  }
}

template <bool AInner, bool BInner, int Threads>
__global__ void product(const Record* record) {
  run_product<AInner, BInner, Threads>(*record);
}

}  // namespace dyc::cuda
