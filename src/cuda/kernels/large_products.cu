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

// A thread's share of what is copied of one factor to shared memory: fours that are stored side by side in a
// column. Inner: the factor's columns are counted by the inner index, else by the rows (columns) of the
// result.
template <bool Inner, int kRows>
class Loader {
 public:
  DYC_INLINE Loader(const Matrix<const float>& from, int64_t i0, int64_t rows, int64_t inner)
      : from_(from), i0_(i0), rows_(rows), inner_(inner) {
    if constexpr (!Inner)
      for (int f = 0; f < kFours; ++f)
        columns_[f] = i0 + across(f) < rows ? column(from, i0 + across(f)) : nullptr;
  }

  // Reads the part from inner index k0 on; zero beyond the factor's ends.
  DYC_INLINE void fetch(int64_t k0) {
    for (int f = 0; f < kFours; ++f) {
      if constexpr (Inner) {
        const int64_t k = k0 + across(f), i = i0_ + along(f), left = k < inner_ ? rows_ - i : 0;
        read(left > 0 ? column(from_, k) + i : nullptr, left, held_[f]);
      } else {
        const int64_t k = k0 + along(f), left = columns_[f] ? inner_ - k : 0;
        read(columns_[f] ? columns_[f] + k : nullptr, left, held_[f]);
      }
    }
  }

  // Puts it at to[k * step + i].
  DYC_INLINE void store(float* to, int step) const {
    for (int f = 0; f < kFours; ++f) {
      if constexpr (Inner) {
        *reinterpret_cast<Four*>(to + across(f) * step + along(f)) = held_[f];
      } else {
        for (int u = 0; u < 4; ++u) to[(along(f) + u) * step + across(f)] = held_[f].at[u];
      }
    }
  }

 private:
  static constexpr int kFours = kRows * kLargeDepth / 4 / static_cast<int>(kBlock);
  static constexpr int kAlong = (Inner ? kRows : kLargeDepth) / 4;  // fours of the part of a column
  static_assert(kFours * 4 * static_cast<int>(kBlock) == kRows * kLargeDepth);
  static DYC_INLINE int number(int f) { return static_cast<int>(threadIdx.x) + f * static_cast<int>(kBlock); }
  static DYC_INLINE int along(int f) { return number(f) % kAlong * 4; }
  static DYC_INLINE int across(int f) { return number(f) / kAlong; }
  static DYC_INLINE void read(const float* p, int64_t left, Four& to) {
    if (left >= 4 && aligned(p)) {
      to = four(p);
    } else {
      for (int u = 0; u < 4; ++u) to.at[u] = u < left ? p[u] : 0.f;
    }
  }

  const Matrix<const float>& from_;
  const int64_t i0_, rows_, inner_;
  const float* columns_[kFours];
  Four held_[kFours];
};

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
  Loader<AInner, kHigh> a(term.a, i0, p.m, term.inner);
  Loader<BInner, kWide> b(term.b, j0, p.n, term.inner);
  if (term.inner == 0) return;
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

// memory: kLargeFloats of the block's.
template <bool AInner, bool BInner>
__device__ void run_large_product(const LaunchArgs& r, float* memory) {
  const Products& all = *static_cast<const Products*>(r.extra);
  for (uint32_t tile = blockIdx.x; tile < all.tiles; tile += gridDim.x) {
    const Product& p = product_of(all, tile);
    const int64_t high = (p.m + kHigh - 1) / kHigh;  // tiles above each other
    const int64_t i0 = (tile - p.tile) % high * kHigh, j0 = (tile - p.tile) / high * kWide;
    LargeSums sums;
    for (uint32_t k = p.first; k < p.first + p.terms; ++k)
      add_large<AInner, BInner>(p, all.terms[k], i0, j0, memory, sums);
    DYC_UNROLL(4)  // or the sums would be in memory
    for (int v = 0; v < 4; ++v) {
      const int64_t i = i0 + 4 * sums.x, j = j0 + 4 * sums.y + v;
      write_rows(p, i, j, sums.upper[v]);
      write_rows(p, i + kHigh / 2, j, sums.lower[v]);
    }
  }
}

template <bool AInner, bool BInner>
__global__ void __launch_bounds__(kBlock, 2) large_product(const LaunchArgs* args) {
  DYC_SHARED(float, memory, kLargeFloats);
  run_large_product<AInner, BInner>(*args, memory);
}

}  // namespace dyc::cuda
