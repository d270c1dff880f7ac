// Large matrix products over columns that are stored anywhere: large_product<true, false> is W x, as in
// kernels/matmul.cu; large_product<true, false, TensorSums<Tf32>> by tensor cores.
//
// A block makes one tile after the other, a thread 8 x 4 elements of it in registers. While parts of both
// factors in shared memory are multiplied, the next parts come from device memory: there are two buffers, and
// one barrier for each part. An element is summed by one thread, in the order of the inner index, or by the
// tensor core, in an order that is the same for each element.
#include "cuda/device/prelude.h"

#include "cuda/device/followers.h"
#include "cuda/device/product_head.h"
#include "cuda/device/product_tiles.h"
#include "cuda/device/tensor_cores.h"

namespace dyc::cuda {

constexpr int kSide = large_side(kBlock);  // threads along each side of a tile
constexpr int kHigh = large_rows(kBlock), kWide = large_columns(kBlock);
constexpr int kHighStep = shared_step(kHigh), kWideStep = shared_step(kWide);  // in shared memory
static_assert(kSide * kSide == kBlock);

// A thread has fours of rows: 0 to 3 of the upper half of the tile, 4 to 7 of the lower half, from row 4 x
// on, of columns 4 y to 4 y + 3.
struct LargeSums {
  int x, y;
  Four at[8] = {};
  DYC_INLINE LargeSums() { place(threadIdx.x); }
  DYC_INLINE void place(uint32_t thread) {
    x = static_cast<int>(thread) % kSide;
    y = static_cast<int>(thread) / kSide;
  }
  DYC_INLINE int row(int f) const { return 4 * x + f / 4 * (kHigh / 2); }
  DYC_INLINE int column(int f) const { return 4 * y + f % 4; }
  static DYC_INLINE float to_shared(float a) { return a; }

  // Adds the product of the parts in a buffer.
  DYC_INLINE void add(const float* a, const float* b) {
    DYC_UNROLL(4)
    for (int k = 0; k < kLargeDepth; ++k) {
      const int place = place_of_index<kLargeDepth>(k);
      const Four high = four(a + place * kHighStep + 4 * x),
                 low = four(a + place * kHighStep + kHigh / 2 + 4 * x),
                 right = four(b + place * kWideStep + 4 * y);
      for (int v = 0; v < 4; ++v)
        for (int u = 0; u < 4; ++u) {
          at[v].at[u] = vfma(high.at[u], right.at[v], at[v].at[u]);
          at[4 + v].at[u] = vfma(low.at[u], right.at[v], at[4 + v].at[u]);
        }
    }
  }
};

// By tensor cores: 32 threads have 32 x 32 elements, of which thread t has rows 4 (t / 4) to 4 (t / 4) + 3 of
// eight columns. Rows g and g + 8 of what one instruction makes are neighbours in the tile, and so are the
// same columns of four instructions: fours are read and written at once.
template <class Number>
struct TensorSums {
  static constexpr int kPart = 32, kPartsHigh = kHigh / kPart;
  static_assert(kHigh % kPart == 0 && kWide % kPart == 0 && kLargeDepth == 16);
  int first_row, first_column, quad, turn;
  Four at[8] = {};
  DYC_INLINE TensorSums() { place(threadIdx.x); }
  DYC_INLINE void place(uint32_t thread) {
    const int group = static_cast<int>(thread) / kTensorThreads;
    first_row = group % kPartsHigh * kPart;
    first_column = group / kPartsHigh * kPart;
    turn = static_cast<int>(thread) % 4;
    quad = static_cast<int>(thread) % kTensorThreads / 4 * 4;
  }
  DYC_INLINE int row(int) const { return first_row + quad; }
  DYC_INLINE int column(int f) const { return first_column + 8 * turn + f; }
  static DYC_INLINE float to_shared(float a) { return Number::to_shared(a); }

  DYC_INLINE void add(const float* a, const float* b) {
    constexpr int apart = 4 * Number::kIndices;  // inner indices of a thread's words
    const float *left = a + turn * kHighStep + first_row + quad,
                *right = b + turn * kWideStep + first_column + quad;
    __syncwarp();  // reading the next parts may have parted the threads
    for (int k = 0; k < kLargeDepth; k += 2 * apart) {
      Words x[2], y[2];
      for (int w = 0; w < 2; ++w) {
        x[w] = Number::words(left + (k + w * apart) * kHighStep, kHighStep);
        y[w] = Number::words(right + (k + w * apart) * kWideStep, kWideStep);
      }
      for (int v = 0; v < 4; ++v)
        for (int u = 0; u < 4; u += 2) {
          float c[] = {at[v].at[u], at[4 + v].at[u], at[v].at[u + 1], at[4 + v].at[u + 1]};
          Number::multiply(c, {x[0].at[u], x[0].at[u + 1], x[1].at[u], x[1].at[u + 1]},
                           {y[0].at[v], y[1].at[v]});
          at[v].at[u] = c[0];
          at[4 + v].at[u] = c[1];
          at[v].at[u + 1] = c[2];
          at[4 + v].at[u + 1] = c[3];
        }
    }
  }
};

constexpr int kLargeBuffer = kLargeDepth * (kHighStep + kWideStep);
constexpr int kLargeFloats = 2 * kLargeBuffer;

template <bool AInner, bool BInner, class Sums>
DYC_INLINE void add_large(const Product& p, const Term& term, int64_t i0, int64_t j0, float* memory,
                          Sums& sums) {
  if (term.inner == 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  Loader<AInner, kHigh, kLargeDepth, kBlock> a(term.a, thread, i0, p.m, term.inner);
  Loader<BInner, kWide, kLargeDepth, kBlock> b(term.b, thread, j0, p.n, term.inner);
  const auto store = [&](float* buffer) {
    const auto change = [](float x) { return Sums::to_shared(x); };
    a.store(buffer, kHighStep, change);
    b.store(buffer + kLargeDepth * kHighStep, kWideStep, change);
  };
  int now = 0;  // where the buffer is that is read
  a.fetch(0);
  b.fetch(0);
  store(memory);
  __syncthreads();
  for (int64_t k0 = 0; k0 < term.inner; k0 += kLargeDepth) {
    const bool more = k0 + kLargeDepth < term.inner;
    if (more) {
      a.fetch(k0 + kLargeDepth);
      b.fetch(k0 + kLargeDepth);
    }
    sums.add(memory + now, memory + now + kLargeDepth * kHighStep);
    now = kLargeBuffer - now;
    if (more) store(memory + now);
    __syncthreads();  // the one has been read, the other is there
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

// What follows the thread's elements, which it has written.
template <bool Forward, class Sums>
DYC_INLINE void follow_large(const ProductHead& head, const Product& p, int64_t i0, int64_t j0,
                             const Sums& sums) {
  const Follower* const followers = head.wait_for_followers();
  DYC_UNROLL(1)
  for (int f = 0; f < 8; ++f) {
    MadeElements<4> made;
    const int64_t i = i0 + sums.row(f), j = j0 + sums.column(f);
    for (int u = 0; u < 4; ++u) {
      made.i[u] = i + u;
      made.j[u] = i + u < p.m && j < p.n ? j : -1;
      made.value[u] = made.j[u] < 0 ? 0.f : column(p.c, j)[i + u];
    }
    follow<Forward, !Forward>(followers, p.follower_count, made);
  }
}

// memory: kLargeFloats of the block's.
template <bool AInner, bool BInner, class Sums = LargeSums>
__device__ void run_large_product(const Products* record, float* memory) {
  constexpr bool one_by_one = !AInner && !BInner;
  ProductHead& head = read_head(record);
  for (uint32_t tile = blockIdx.x; tile < head.all().tiles; tile += gridDim.x) {
    const Product& p = head.product(tile);
    if constexpr (!BInner) head.fetch_followers(p);
    const uint32_t high = static_cast<uint32_t>((p.m + kHigh - 1) / kHigh);  // tiles above each other
    const int64_t i0 = int64_t{(tile - p.tile) % high} * kHigh, j0 = int64_t{(tile - p.tile) / high} * kWide;
    uint32_t k = p.first;
    do {
      Sums sums;
      for (const uint32_t end = k + terms_at_once<one_by_one>(p); k < end; ++k)
        add_large<AInner, BInner>(p, head.term(k), i0, j0, memory, sums);
      sums.place(thread_now());
      DYC_UNROLL(8)  // or the sums would be in memory
      for (int f = 0; f < 8; ++f) write_rows(p, i0 + sums.row(f), j0 + sums.column(f), sums.at[f]);
      if constexpr (!BInner)
        if (p.follower_count && k == p.first + p.terms) follow_large<AInner>(head, p, i0, j0, sums);
    } while (one_by_one && k < p.first + p.terms);
  }
}

template <bool AInner, bool BInner, class Sums = LargeSums>
__global__ void __launch_bounds__(kBlock, 2) large_product(const LaunchArgs* args) {
  DYC_SHARED(float, memory, kLargeFloats);
  run_large_product<AInner, BInner, Sums>(products_of(args), memory);
}

}  // namespace dyc::cuda
