// What the kernels for products have in common. For kernels only.
#pragma once
#include "cuda/abi/launch_args.h"
#include "cuda/abi/products.h"
#include "cuda/device/grid.h"

namespace dyc::cuda {

// Four floats that move at once.
struct alignas(16) Four {
  float at[4];
};
DYC_INLINE bool aligned(const float* p) { return reinterpret_cast<uint64_t>(p) % sizeof(Four) == 0; }
DYC_INLINE Four four(const float* p) { return *reinterpret_cast<const Four*>(p); }  // aligned

template <class F>
DYC_INLINE F* column(const Matrix<F>& m, int64_t j) {
  return in_device_memory(m.base) + (m.index ? in_device_memory(m.index)[j] : j * m.stride);
}

// Parts of factors in shared memory: kDepth inner indices of some rows (columns) of the result. Threads of a
// warp that write four indices of eight rows, or that read 128 bits each, use all banks once: so the indices
// 0, 4, 8, .. are neighbours, then 1, 5, 9, .., at distances that differ from multiples of 32 floats by
// eight.
template <int kDepth>
constexpr int place_of_index(int k) {
  return k % 4 * (kDepth / 4) + k / 4;
}
constexpr int shared_step(int rows) { return (rows + 31) / 32 * 32 + 8; }

// A thread's share of what `kThreads` threads copy of one factor to shared memory, kRows x kDepth elements:
// fours that are stored side by side in a column. Inner: the factor's columns are counted by the inner index,
// else by the rows (columns) of the result.
template <bool Inner, int kRows, int kDepth, int kThreads>
class Loader {
 public:
  DYC_INLINE Loader(const Matrix<const float>& from, int thread, int64_t i0, int64_t rows, int64_t inner)
      : from_(from),
        thread_(thread),
        i0_(static_cast<uint32_t>(i0)),
        rows_(static_cast<int>(rows - i0 < kRows ? rows - i0 : kRows)),
        inner_(inner) {
    if constexpr (!Inner)
      for (int f = 0; f < kFours; ++f)
        columns_[f] = column(from, i0 + (across(f) < rows_ ? across(f) : rows_ - 1));
  }

  // Reads the part from inner index k0 on; zero beyond the factor's ends.
  DYC_INLINE void fetch(int64_t k0) {
    for (int f = 0; f < kFours; ++f) {
      if constexpr (Inner) {
        const int64_t k = k0 + across(f);
        read(k < inner_ ? rows_ - along(f) : 0, [&] { return column(from_, k) + i0_ + along(f); }, held_[f]);
      } else {
        const int64_t k = k0 + along(f);
        read(across(f) < rows_ ? inner_ - k : 0, [&] { return columns_[f] + k; }, held_[f]);
      }
    }
  }

  // Puts it at to[place_of_index(k) * step + i], each element x as change(x).
  template <class Change>
  DYC_INLINE void store(float* to, int step, Change change) const {
    for (int f = 0; f < kFours; ++f) {
      Four part;
      for (int u = 0; u < 4; ++u) part.at[u] = change(held_[f].at[u]);
      if constexpr (Inner) {
        static_assert(kThreads / kAlong % 4 == 0);
        const int place = place_of_index<kDepth>(across(0)) + f * (kThreads / kAlong / 4);
        *reinterpret_cast<Four*>(to + place * step + along(f)) = part;
      } else {
        float* const first = to + along(f) / 4 * step + across(f);
        for (int u = 0; u < 4; ++u) first[place_of_index<kDepth>(u) * step] = part.at[u];
      }
    }
  }
  DYC_INLINE void store(float* to, int step) const {
    store(to, step, [](float x) { return x; });
  }

 private:
  static constexpr int kFours = kRows * kDepth / 4 / kThreads;
  static constexpr int kAlong = (Inner ? kRows : kDepth) / 4;  // fours of the part of a column
  static_assert(kFours * 4 * kThreads == kRows * kDepth);
  DYC_INLINE int along(int f) const { return (thread_ + f * kThreads) % kAlong * 4; }
  DYC_INLINE int across(int f) const { return (thread_ + f * kThreads) / kAlong; }
  template <class At>
  static DYC_INLINE void read(int64_t left, At at, Four& to) {
    for (int u = 0; u < 4; ++u) to.at[u] = 0.f;
    if (left <= 0) return;
    const float* const p = in_device_memory(at());
    if (left >= 4 && aligned(p)) to = four(p);
    else
      for (int u = 0; u < 4; ++u)
        if (u < left) to.at[u] = p[u];
  }

  const Matrix<const float>& from_;
  const int thread_;
  const uint32_t i0_;
  const int rows_;  // of the part
  const int64_t inner_;
  const float* columns_[kFours];
  Four held_[kFours];
};

// Sums whose terms are shared out among kWarp threads, in the same order wherever these are: first those of
// neighbours, as many as are in a warp where it has kBlock / kWarp quads of rows, then the others.
constexpr int kTogether = kWarp * kWarp / kBlock;
// Of neighbours that are `apart` lanes from each other.
DYC_INLINE float sum_of_neighbours(float a, int apart) {
  for (int d = kTogether / 2; d > 0; d /= 2) a += __shfl_xor_sync(kAllLanes, a, d * apart);
  return a;
}
// Of the lanes of a warp.
DYC_INLINE float sum_of_shares(float a) {
  a = sum_of_neighbours(a, 1);
  for (int d = kWarp / 2; d >= kTogether; d /= 2) a += __shfl_xor_sync(kAllLanes, a, d);
  return a;
}

// What element i of column j of C becomes, where terms add up to `sum`; c is that column.
DYC_INLINE float result_of(const Product& p, const float* c, int64_t i, int64_t j, float sum) {
  if (p.begin == Product::zero) return sum;
  return (p.begin == Product::begin_at ? column(p.start, j)[i] : in_device_memory(c)[i]) + sum;
}

// Terms of which an element gets the sum at once. Only W' dy adds them one by one.
template <bool OneByOne>
DYC_INLINE uint32_t terms_at_once(const Product& p) {
  return OneByOne && p.begin == Product::add_each ? 1 : p.terms;
}

}  // namespace dyc::cuda
