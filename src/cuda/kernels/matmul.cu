// Matrix products over columns that are stored anywhere: product<true, false> names the kernel for W x. For
// products of middling size; cuda/driver/matmul_variants.h says which those are.
//
// A product is cut into square tiles; a block makes one tile after the other. Groups of kGroup threads share
// the inner index of a tile, each with parts of both factors in shared memory; their sums are added up in
// order. How an element is summed depends on nothing but the block's size: not on the size of tiles.
#include "cuda/device/prelude.h"

#include "cuda/device/followers.h"
#include "cuda/device/product_head.h"
#include "cuda/device/product_tiles.h"
#include "cuda/device/small_tiles.h"

namespace dyc::cuda {

constexpr int kAcross = kTile / 4;         // threads along each side of a group; each makes 4 x 4 elements
constexpr int kGroup = kAcross * kAcross;  // threads of a group
constexpr int kGroups = static_cast<int>(kBlock) / kGroup;
constexpr int kStep = shared_step(kTile);
constexpr int kPart = kDepth * kStep;  // floats of one factor

// Parts of both factors for each group, later sums of all groups.
template <int Side>
constexpr int kProductFloats = Side == kSmallTile ? kSmallFloats : kGroups * 2 * kPart;
static_assert(kTile * kTile <= 2 * kPart && kGroups * kSmallTile * kSmallTile <= kSmallFloats);
static_assert(kGroup == kSmallGroup);

// Where a tile begins, and what of it a thread of a group makes: rows 4 x to 4 x + 3, columns 4 y to 4 y + 3.
struct TileWork {
  uint32_t i0, j0;
  int group, thread, x, y;  // thread: in the group
};

// Adds this group's share of a term to the thread's elements. While a part is multiplied, the next comes.
template <bool AInner, bool BInner>
DYC_INLINE void add_term(const Product& p, const Term& term, const TileWork& t, float* memory,
                         Four (&sum)[4]) {
  float *const a = memory + t.group * 2 * kPart, *const b = a + kPart;
  const int64_t inner = term.inner;
  Loader<AInner, kTile, kDepth, kGroup> from_a(term.a, t.thread, t.i0, p.m, inner);
  Loader<BInner, kTile, kDepth, kGroup> from_b(term.b, t.thread, t.j0, p.n, inner);
  const int64_t first = kDepth * t.group, step = kDepth * kGroups;
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

DYC_INLINE void put_tile(float* memory, const Four (&sum)[4]) {
  const auto thread = static_cast<int>(thread_now());
  const int x = thread % kAcross, y = thread % kGroup / kAcross;
  float* const to = memory + thread / kGroup * kTile * kTile + 4 * y * kTile + 4 * x;
  for (int v = 0; v < 4; ++v) *reinterpret_cast<Four*>(to + v * kTile) = sum[v];
}

// Sums of terms [first, end) by each group: memory[group * elements of the tile + e].
template <bool AInner, bool BInner, int Side>
DYC_INLINE void sum_tile(ProductHead& head, const Product& p, uint32_t i0, uint32_t j0, uint32_t first,
                         uint32_t end, float* memory) {
  if constexpr (Side == kSmallTile) {
    Two sum[2] = {};
    SmallStages<AInner, BInner> stages(head, p, i0, j0, memory);
    stages.run(first, end,
               [&](const float* a, const float* b) { multiply_small<AInner, BInner>(a, b, sum); });
    __syncthreads();
    put_small(memory, sum);
  } else {
    const auto thread = static_cast<int>(thread_now());
    const TileWork t{i0, j0, thread / kGroup, thread % kGroup, thread % kAcross, thread % kGroup / kAcross};
    Four sum[4] = {};
    for (uint32_t k = first; k < end; ++k) add_term<AInner, BInner>(p, head.term(k), t, memory, sum);
    __syncthreads();
    put_tile(memory, sum);
  }
}

// The elements that a thread finishes.
template <int Side>
constexpr int kEach = Side * Side / static_cast<int>(kBlock);
template <bool AInner, bool BInner, int Side>
DYC_INLINE void place_elements(const Product& p, uint32_t i0, uint32_t j0, MadeElements<kEach<Side>>& made) {
  for (int u = 0; u < kEach<Side>; ++u) {
    const int e = static_cast<int>(thread_now() + u * kBlock);
    int row = e % Side, column = e / Side;
    if constexpr (Side == kSmallTile) small_element<AInner, BInner>(e, row, column);
    made.i[u] = int64_t{i0} + row;
    made.j[u] = int64_t{j0} + column;
    if (made.i[u] >= p.m || made.j[u] >= p.n) made.j[u] = -1;
  }
}

// Their values before terms are added.
template <int N>
DYC_INLINE void read_beginnings(const Product& p, MadeElements<N>& made) {
  for (int u = 0; u < N; ++u) {
    made.value[u] = 0.f;
    if (p.begin == Product::zero || made.j[u] < 0) continue;
    made.value[u] = p.begin == Product::begin_at ? column(p.start, made.j[u])[made.i[u]]
                                                 : column(p.c, made.j[u])[made.i[u]];
  }
}

// AInner, BInner: columns of A (B) are counted by the inner index, else by the rows (columns) of the result:
//   W x     <true, false>    columns of W by inner, columns of x by column
//   W' dy   <false, false>   columns of W by row of dx
//   dy x'   <true, true>     columns of both by inner
// memory: kProductFloats<Side> of the block's.
template <bool AInner, bool BInner, int Side>
__device__ void run_product(const Products* record, float* memory) {
  constexpr bool one_by_one = !AInner && !BInner, early = Side == kSmallTile;
  ProductHead& head = read_head(record);
  for (uint32_t tile = blockIdx.x; tile < head.all().tiles; tile += gridDim.x) {
    const Product& p = head.product(tile);
    const uint32_t high = static_cast<uint32_t>((p.m + Side - 1) / Side);  // tiles above each other
    const uint32_t i0 = (tile - p.tile) % high * Side, j0 = (tile - p.tile) / high * Side;
    if constexpr (!BInner) head.fetch_followers(p);
    MadeElements<kEach<Side>> made;
    if constexpr (early) {  // they come while terms are multiplied
      place_elements<AInner, BInner, Side>(p, i0, j0, made);
      read_beginnings(p, made);
    }
    uint32_t k = p.first;
    do {
      const uint32_t first = k;
      k += terms_at_once<one_by_one>(p);
      sum_tile<AInner, BInner, Side>(head, p, i0, j0, first, k, memory);
      __syncthreads();
      if (!early && first == p.first) {
        place_elements<AInner, BInner, Side>(p, i0, j0, made);
        read_beginnings(p, made);
      }
      for (int u = 0; u < kEach<Side>; ++u) {
        float all = 0.f;
        for (int g = 0; g < kGroups; ++g)
          all += memory[g * Side * Side + static_cast<int>(thread_now() + u * kBlock)];
        made.value[u] = p.begin == Product::zero ? all : made.value[u] + all;
      }
    } while (one_by_one && k < p.first + p.terms);
    for (int u = 0; u < kEach<Side>; ++u)
      if (made.j[u] >= 0) column(p.c, made.j[u])[made.i[u]] = made.value[u];
    if constexpr (!BInner)
      if (p.follower_count) follow<AInner, !AInner>(head.wait_for_followers(), p.follower_count, made);
  }
}

// Small tiles have the side kSmallTile.
template <bool AInner, bool BInner, int Side = kTile>
__global__ void __launch_bounds__(kBlock, 2) product(const LaunchArgs* args) {
  DYC_SHARED(float, memory, kProductFloats<Side>);
  run_product<AInner, BInner, Side>(products_of(args), memory);
}

}  // namespace dyc::cuda
