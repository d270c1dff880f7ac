// Large matrix products over columns that are stored anywhere: large_product<true, false> is W x, as in
// kernels/matmul.cu.
//
// A block makes one tile after the other, a thread 8 x 4 elements of it in registers. While parts of both
// factors in shared memory are multiplied, the next parts come from device memory: there are two buffers, and
// one barrier for each part. An element is summed by one thread, in the order of the inner index.
#include "cuda/device/prelude.h"

#include "cuda/device/product_tiles.h"

namespace dyc::cuda {

constexpr int kSide = large_side(kBlock);  // threads along each side of a tile
constexpr int kHigh = large_rows(kBlock), kWide = large_columns(kBlock);
constexpr int kHighStep = kHigh + 4, kWideStep = kWide + 4;  // apart in shared memory: other banks
constexpr int kBuffer = kLargeDepth * (kHighStep + kWideStep);
constexpr int kLargeFloats = 2 * kBuffer;
static_assert(kSide * kSide == kBlock);

// The thread's elements of the tile: rows 4 x to 4 x + 3 of the upper and of the lower half, columns 4 y to
// 4 y + 3.
struct LargeSums {
  int x, y;
  Four upper[4] = {}, lower[4] = {};  // by column
  DYC_INLINE LargeSums()
      : x(static_cast<int>(threadIdx.x) % kSide), y(static_cast<int>(threadIdx.x) / kSide) {}

  // Adds the product of the parts in a buffer.
  DYC_INLINE void add(const float* a, const float* b) {
    DYC_UNROLL(4)
    for (int k = 0; k < kLargeDepth; ++k) {
      const Four high = four(a + k * kHighStep + 4 * x), low = four(a + k * kHighStep + kHigh / 2 + 4 * x),
                 right = four(b + k * kWideStep + 4 * y);
      for (int v = 0; v < 4; ++v)
        for (int u = 0; u < 4; ++u) {
          upper[v].at[u] = vfma(high.at[u], right.at[v], upper[v].at[u]);
          lower[v].at[u] = vfma(low.at[u], right.at[v], lower[v].at[u]);
        }
    }
  }
};

template <bool AInner, bool BInner>
DYC_INLINE void add_large(const Product& p, const Term& term, int64_t i0, int64_t j0, float* memory,
                          LargeSums& sums) {
  if (term.inner == 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  Loader<AInner, kHigh, kLargeDepth, kBlock> a(term.a, thread, i0, p.m, term.inner);
  Loader<BInner, kWide, kLargeDepth, kBlock> b(term.b, thread, j0, p.n, term.inner);
  const auto store = [&](float* buffer) {
    a.store(buffer, kHighStep);
    b.store(buffer + kLargeDepth * kHighStep, kWideStep);
  };
  float *now = memory, *next = memory + kBuffer;
  a.fetch(0);
  b.fetch(0);
  store(now);
  __syncthreads();
  for (int64_t k0 = 0; k0 < term.inner; k0 += kLargeDepth) {
    const bool more = k0 + kLargeDepth < term.inner;
    if (more) {
      a.fetch(k0 + kLargeDepth);
      b.fetch(k0 + kLargeDepth);
    }
    sums.add(now, now + kLargeDepth * kHighStep);
    if (more) store(next);
    __syncthreads();  // `now` has been read, `next` is there
    float* const read = now;
    now = next;
    next = read;
  }
}

// Four elements of a column from row i on, as far as there are rows.
DYC_INLINE void write_rows(const Product& p, int64_t i, int64_t j, Four sum) {
  if (i >= p.m || j >= p.n) return;
  float* const c = column(p.c, j);
  const bool whole = i + 4 <= p.m;
  for (int u = 0; u < 4; ++u)
    if (whole || i + u < p.m) sum.at[u] = result_of(p, c, i + u, j, sum.at[u]);
  if (whole && aligned(c + i)) {
    *reinterpret_cast<Four*>(c + i) = sum;
  } else {
    for (int u = 0; u < 4; ++u)
      if (whole || i + u < p.m) c[i + u] = sum.at[u];
  }
}

// What an activation makes of the thread's elements, which it has written.
DYC_INLINE void activate_large(const Product& p, int64_t i0, int64_t j0, const LargeSums& sums) {
  DYC_UNROLL(1)
  for (int e = 0; e < 32; ++e) {
    const int64_t i = i0 + 4 * sums.x + e % 4 + (e / 4 % 2 ? kHigh / 2 : 0), j = j0 + 4 * sums.y + e / 8;
    if (i < p.m && j < p.n) write_result<true>(p, column(p.c, j), i, column(p.c, j)[i]);
  }
}

// memory: kLargeFloats of the block's.
template <bool AInner, bool BInner>
__device__ void run_large_product(const LaunchArgs& r, float* memory) {
  constexpr bool one_by_one = !AInner && !BInner;
  const Products& all = extra_of<Products>(r);
  for (uint32_t tile = blockIdx.x; tile < all.tiles; tile += gridDim.x) {
    const Product& p = product_of(all, tile);
    const uint32_t high = static_cast<uint32_t>((p.m + kHigh - 1) / kHigh);  // tiles above each other
    const int64_t i0 = int64_t{(tile - p.tile) % high} * kHigh, j0 = int64_t{(tile - p.tile) / high} * kWide;
    uint32_t k = p.first;
    do {
      LargeSums sums;
      for (const uint32_t end = k + terms_at_once<one_by_one>(p); k < end; ++k)
        add_large<AInner, BInner>(p, in_device_memory(all.terms)[k], i0, j0, memory, sums);
      DYC_UNROLL(4)  // or the sums would be in memory
      for (int v = 0; v < 4; ++v) {
        const int64_t i = i0 + 4 * sums.x, j = j0 + 4 * sums.y + v;
        write_rows(p, i, j, sums.upper[v]);
        write_rows(p, i + kHigh / 2, j, sums.lower[v]);
      }
      if constexpr (AInner && !BInner)
        if (p.activation) activate_large(p, i0, j0, sums);
    } while (one_by_one && k < p.first + p.terms);
  }
}

template <bool AInner, bool BInner>
__global__ void __launch_bounds__(kBlock, 2) large_product(const LaunchArgs* args) {
  DYC_SHARED(float, memory, kLargeFloats);
  run_large_product<AInner, BInner>(*args, memory);
}

}  // namespace dyc::cuda
