// Matrix products over columns that are stored anywhere: product<true, false> names the kernel for W x. For
// products of middling size; cuda/driver/matmul_variants.h says which those are.
//
// A product is cut into square tiles; a block makes one tile after the other. Groups of kGroup threads share
// the inner index of a tile, each with parts of both factors in shared memory; their sums are added up in
// order. How an element is summed depends on nothing but the block's size.
#include "cuda/device/prelude.h"

#include "cuda/device/product_tiles.h"

namespace dyc::cuda {

constexpr int kMicro = 4;                    // a thread makes kMicro x kMicro elements of a tile
constexpr int kAcross = kTile / kMicro;      // threads along each side of a group
constexpr int kGroup = kAcross * kAcross;    // threads of a group
constexpr int kMostGroups = 4;               // in a block
constexpr int kDepth = 16;                   // of the inner index that a group has in shared memory at once
constexpr int kPart = kDepth * (kTile + 1);  // floats of one factor

// Of each group: parts of both factors, later its sums.
static_assert(2 * kPart >= kTile * kTile);
constexpr int kProductFloats = kMostGroups * 2 * kPart;

// Part of a factor in shared memory, to[k * (kTile + 1) + i], zero beyond its ends. Inner: the factor's
// columns are counted by k, else by i.
template <bool Inner>
DYC_INLINE void load_part(float* to, int thread, const Matrix<const float>& from, int64_t i0, int64_t rows,
                          int64_t k0, int64_t inner) {
  for (int e = thread; e < kTile * kDepth; e += kGroup) {
    const int i = Inner ? e % kTile : e / kDepth, k = Inner ? e / kTile : e % kDepth;  // neighbours in memory
    float v = 0.f;
    if (i0 + i < rows && k0 + k < inner)
      v = Inner ? column(from, k0 + k)[i0 + i] : column(from, i0 + i)[k0 + k];
    to[k * (kTile + 1) + i] = v;
  }
}

// Where a tile begins, and who makes it.
struct TileWork {
  int64_t i0, j0;
  int group, groups, thread;  // thread: in the group
};

// Adds this group's share of a term to the thread's elements.
template <bool AInner, bool BInner>
DYC_INLINE void add_term(const Product& p, const Term& term, const TileWork& t, float* memory,
                         float (&sum)[kMicro][kMicro]) {
  float *const a = memory + t.group * 2 * kPart, *const b = a + kPart;
  const int x = t.thread % kAcross, y = t.thread / kAcross;
  for (int64_t k0 = 0; k0 < term.inner; k0 += kDepth * t.groups) {
    __syncthreads();  // the part before has been read
    load_part<AInner>(a, t.thread, term.a, t.i0, p.m, k0 + kDepth * t.group, term.inner);
    load_part<BInner>(b, t.thread, term.b, t.j0, p.n, k0 + kDepth * t.group, term.inner);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      float av[kMicro], bv[kMicro];
      for (int u = 0; u < kMicro; ++u) av[u] = a[k * (kTile + 1) + x + u * kAcross];
      for (int v = 0; v < kMicro; ++v) bv[v] = b[k * (kTile + 1) + y + v * kAcross];
      for (int v = 0; v < kMicro; ++v)
        for (int u = 0; u < kMicro; ++u) sum[v][u] = vfma(av[u], bv[v], sum[v][u]);
    }
  }
}

// Adds up what the groups have, and writes the tile.
DYC_INLINE void write_tile(const Product& p, const TileWork& t, float* memory,
                           const float (&sum)[kMicro][kMicro]) {
  const int x = t.thread % kAcross, y = t.thread / kAcross;
  __syncthreads();
  for (int v = 0; v < kMicro; ++v)
    for (int u = 0; u < kMicro; ++u)
      memory[t.group * 2 * kPart + (y + v * kAcross) * kTile + x + u * kAcross] = sum[v][u];
  __syncthreads();
  for (int e = t.group * kGroup + t.thread; e < kTile * kTile; e += t.groups * kGroup) {
    const int64_t i = t.i0 + e % kTile, j = t.j0 + e / kTile;
    if (i >= p.m || j >= p.n) continue;
    float all = 0.f;
    for (int g = 0; g < t.groups; ++g) all += memory[g * 2 * kPart + e];
    float* const c = column(p.c, j);
    c[i] = result_of(p, c, i, j, all);
  }
}

// AInner, BInner: columns of A (B) are counted by the inner index, else by the rows (columns) of the result:
//   W x     <true, false>    columns of W by inner, columns of x by column
//   W' dy   <false, false>   columns of W by row of dx
//   dy x'   <true, true>     columns of both by inner
// memory: kProductFloats of the block's.
template <bool AInner, bool BInner>
__device__ void run_product(const LaunchArgs& r, float* memory) {
  const Products& all = *static_cast<const Products*>(r.extra);
  TileWork t{};
  t.group = static_cast<int>(threadIdx.x) / kGroup;
  t.groups = static_cast<int>(blockDim.x) / kGroup;
  t.thread = static_cast<int>(threadIdx.x) % kGroup;
  for (uint32_t tile = blockIdx.x; tile < all.tiles; tile += gridDim.x) {
    const Product& p = product_of(all, tile);
    const int64_t high = (p.m + kTile - 1) / kTile;  // tiles above each other
    t.i0 = (tile - p.tile) % high * kTile;
    t.j0 = (tile - p.tile) / high * kTile;
    float sum[kMicro][kMicro] = {};
    for (uint32_t k = p.first; k < p.first + p.terms; ++k)
      add_term<AInner, BInner>(p, all.terms[k], t, memory, sum);
    write_tile(p, t, memory, sum);
  }
}

template <bool AInner, bool BInner>
__global__ void __launch_bounds__(kBlock, 3) product(const LaunchArgs* args) {
  DYC_SHARED(float, memory, kProductFloats);
  run_product<AInner, BInner>(*args, memory);
}

}  // namespace dyc::cuda
