// Matrix products over columns that are stored anywhere: product<true, false> names the kernel for W x. For
// products of middling size; cuda/driver/matmul_variants.h says which those are.
//
// A product is cut into square tiles; a block makes one tile after the other. Groups of kGroup threads share
// the inner index of a tile, each with parts of both factors in shared memory; their sums are added up in
// order. How an element is summed depends on nothing but the block's size.
#include "cuda/device/prelude.h"

#include "cuda/device/followers.h"
#include "cuda/device/product_tiles.h"

namespace dyc::cuda {

constexpr int kAcross = kTile / 4;         // threads along each side of a group; each makes 4 x 4 elements
constexpr int kGroup = kAcross * kAcross;  // threads of a group
constexpr int kStep = shared_step(kTile);
constexpr int kPart = kDepth * kStep;  // floats of one factor

// Of each group: parts of both factors, later its sums.
static_assert(2 * kPart >= kTile * kTile);
constexpr int kProductFloats = kMostGroups * 2 * kPart;

// Where a tile begins, and who makes it: rows 4 x to 4 x + 3 and columns 4 y to 4 y + 3 are this thread's.
struct TileWork {
  int64_t i0, j0;
  int group, groups, thread, x, y;  // thread: in the group
};

// Adds this group's share of a term to the thread's elements. While a part is multiplied, the next comes.
template <bool AInner, bool BInner>
DYC_INLINE void add_term(const Product& p, const Term& term, const TileWork& t, float* memory,
                         Four (&sum)[4]) {
  float *const a = memory + t.group * 2 * kPart, *const b = a + kPart;
  const int64_t inner = term.inner;
  Loader<AInner, kTile, kDepth, kGroup> from_a(term.a, t.thread, t.i0, p.m, inner);
  Loader<BInner, kTile, kDepth, kGroup> from_b(term.b, t.thread, t.j0, p.n, inner);
  const int64_t first = kDepth * t.group, step = kDepth * t.groups;
  from_a.fetch(first);
  from_b.fetch(first);
  for (int64_t k0 = first; k0 - first < inner; k0 += step) {
    __syncthreads();  // the part before has been read
    from_a.store(a, kStep);
    from_b.store(b, kStep);
    __syncthreads();
    from_a.fetch(k0 + step);
    from_b.fetch(k0 + step);
    const float *const rows = a + 4 * t.x, *const columns = b + 4 * t.y;
    DYC_UNROLL(8)
    for (int k = 0; k < kDepth; ++k) {
      const int place = place_of_index<kDepth>(k);
      const Four x = four(rows + place * kStep), y = four(columns + place * kStep);
      for (int v = 0; v < 4; ++v)
        for (int u = 0; u < 4; ++u) sum[v].at[u] = vfma(x.at[u], y.at[v], sum[v].at[u]);
    }
  }
}

// Adds up what the groups have, and writes the tile.
DYC_INLINE void write_tile(const Product& p, const TileWork& t, float* memory, const Four (&sum)[4]) {
  __syncthreads();
  for (int v = 0; v < 4; ++v)
    *reinterpret_cast<Four*>(memory + t.group * 2 * kPart + (4 * t.y + v) * kTile + 4 * t.x) = sum[v];
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

// Each thread goes on with the elements that it wrote.
template <bool Forward>
DYC_INLINE void follow_tile(const Product& p, const TileWork& t) {
  constexpr int at_once = 4;
  const int step = t.groups * kGroup;
  DYC_UNROLL(1)
  for (int first = t.group * kGroup + t.thread; first < kTile * kTile; first += at_once * step) {
    MadeElements<at_once> made;
    for (int u = 0; u < at_once; ++u) {
      const int e = first + u * step;
      made.i[u] = t.i0 + e % kTile;
      made.j[u] = t.j0 + e / kTile;
      if (e >= kTile * kTile || made.i[u] >= p.m || made.j[u] >= p.n) made.j[u] = -1;
      made.value[u] = made.j[u] < 0 ? 0.f : column(p.c, made.j[u])[made.i[u]];
    }
    follow<Forward, !Forward>(p, made);
  }
}

// AInner, BInner: columns of A (B) are counted by the inner index, else by the rows (columns) of the result:
//   W x     <true, false>    columns of W by inner, columns of x by column
//   W' dy   <false, false>   columns of W by row of dx
//   dy x'   <true, true>     columns of both by inner
// memory: kProductFloats of the block's.
template <bool AInner, bool BInner>
__device__ void run_product(const LaunchArgs& r, float* memory) {
  constexpr bool one_by_one = !AInner && !BInner;
  const Products& all = extra_of<Products>(r);
  TileWork t{};
  t.group = static_cast<int>(threadIdx.x) / kGroup;
  t.groups = static_cast<int>(blockDim.x) / kGroup;
  t.thread = static_cast<int>(threadIdx.x) % kGroup;
  t.x = t.thread % kAcross;
  t.y = t.thread / kAcross;
  for (uint32_t tile = blockIdx.x; tile < all.tiles; tile += gridDim.x) {
    const Product& p = product_of(all, tile);
    const uint32_t high = static_cast<uint32_t>((p.m + kTile - 1) / kTile);  // tiles above each other
    t.i0 = int64_t{(tile - p.tile) % high} * kTile;
    t.j0 = int64_t{(tile - p.tile) / high} * kTile;
    uint32_t k = p.first;
    do {
      Four sum[4] = {};
      for (const uint32_t end = k + terms_at_once<one_by_one>(p); k < end; ++k)
        add_term<AInner, BInner>(p, in_device_memory(all.terms)[k], t, memory, sum);
      write_tile(p, t, memory, sum);
    } while (one_by_one && k < p.first + p.terms);
    if constexpr (!BInner)
      if (p.follower_count) follow_tile<AInner>(p, t);
  }
}

template <bool AInner, bool BInner>
__global__ void __launch_bounds__(kBlock, 2) product(const LaunchArgs* args) {
  DYC_SHARED(float, memory, kProductFloats);
  run_product<AInner, BInner>(*args, memory);
}

}  // namespace dyc::cuda
