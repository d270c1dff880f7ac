// What the three products share: column addresses, tile sizes, scratch memory, dispatch on tile sizes.
#pragma once
#include <stdlib.h>

#include <new>

#include "cpu/gemm.h"
#include "cpu/isa/tuning.h"
#include "cpu/simd.h"
#include "ops/long_sum.h"

#define DYC_TILE static __attribute__((noinline)) void
// Tiles live in registers only if every loop over them disappears.
#define DYC_UNROLL _Pragma("GCC unroll 16")

namespace dyc::DYC_ISA {

DYC_INLINE float* col(const Cols& c, int64_t j) { return c.base + (c.index ? c.index[j] : j * c.stride); }
DYC_INLINE const float* col(const ConstCols& c, int64_t j) {
  return c.base + (c.index ? c.index[j] : j * c.stride);
}

DYC_INLINE int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
DYC_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A load by halves. AVX-512 loads that cross a cache line take two turns, and all do where columns begin
// anywhere; of halves one in two crosses.
#if defined(__AVX512F__)
constexpr bool kHalves = true;
DYC_INLINE V load_halves(const float* p) {
  return reinterpret_cast<V>(
      _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)), _mm256_loadu_ps(p + 8), 1));
}
#else
constexpr bool kHalves = false;
DYC_INLINE V load_halves(const float* p) { return load<V>(p); }
#endif

// step(row, get, far, put) for each vector of rows in [0, rows): get(p) and put(p, v) are a load and a store
// of it, of as many lanes as there are rows; far(p) is a load of what the first-level cache will not have.
template <class Step>
DYC_INLINE void each_vector(int64_t rows, Step step) {
  int64_t r = 0;
  for (; r + kLanes <= rows; r += kLanes) {
    step(
        r, [](const float* p) __attribute__((always_inline)) { return load<V>(p); },
        [](const float* p) __attribute__((always_inline)) { return load_halves(p); },
        [](float* p, V v) __attribute__((always_inline)) { store(p, v); });
  }
  if (r < rows) {
    const int last = static_cast<int>(rows - r);
    const auto get = [last](const float* p) __attribute__((always_inline)) { return load_n(p, last); };
    step(r, get, get, [last](float* p, V v) __attribute__((always_inline)) { store_n(p, v, last); });
  }
}

// A block of memory per thread and use that only grows.
class Scratch {
 public:
  ~Scratch() { release(); }
  float* get(int64_t floats) {
    if (!data_ || floats > size()) grow(floats);
    return data_;
  }

 private:
  // The size stands before the data: what a thread has in static storage is limited to about 1,600 bytes by
  // the C library, for all objects of the module together.
  static constexpr int64_t kHeader = 64;  // bytes: the data stays aligned
  int64_t& size() const { return *reinterpret_cast<int64_t*>(reinterpret_cast<char*>(data_) - kHeader); }
  void release() {
    if (data_) free(reinterpret_cast<char*>(data_) - kHeader);
    data_ = nullptr;
  }
  __attribute__((noinline)) void grow(int64_t floats) {
    release();
    const int64_t size_now = (floats + 1023) / 1024 * 1024;
    void* block = aligned_alloc(64, static_cast<size_t>(size_now) * sizeof(float) + kHeader);
    if (!block) throw std::bad_alloc();
    data_ = reinterpret_cast<float*>(static_cast<char*>(block) + kHeader);
    size() = size_now;
  }
  float* data_ = nullptr;
};

// sum + low += part, element by element.
DYC_INLINE void add_parts(float* sum, float* low, const float* part, int64_t n) {
  for (int64_t i = 0; i < n; i++) add_exactly(sum[i], low[i], part[i]);
}
// sum += low
DYC_INLINE void join_parts(float* sum, const float* low, int64_t n) {
  for (int64_t i = 0; i < n; i++) sum[i] += low[i];
}
DYC_INLINE void clear(float* p, int64_t n) { __builtin_memset(p, 0, static_cast<size_t>(n) * sizeof(float)); }

template <int N> struct Int {
  static constexpr int value = N;
};
// f(Int<n>) for 1 <= n <= Max
template <int Max, class F> DYC_INLINE void with_constant(int64_t n, F f) {
  if constexpr (Max == 1) {
    f(Int<1>{});
  } else {
    if (n == Max) return f(Int<Max>{});
    with_constant<Max - 1>(n, f);
  }
}

// f(Int<m>, j) for 0 <= j < k: with m known, what f does for several j is done by permuting registers.
template <class F> DYC_INLINE void for_few_rows(int64_t m, int64_t k, F f) {
  with_constant<kFewRows>(m, [&](auto rows) __attribute__((always_inline)) {
    for (int64_t j = 0; j < k; j++) f(rows, j);
  });
}

// to {k,m} = from {m,k}', m <= kFewRows
DYC_INLINE void transpose(const float* __restrict from, int64_t m, int64_t k, float* __restrict to) {
  for_few_rows(m, k, [=](auto rows, int64_t j) __attribute__((always_inline)) {
    constexpr int M = decltype(rows)::value;
    DYC_UNROLL for (int i = 0; i < M; i++) to[i * k + j] = from[j * M + i];
  });
}
// to {m,k} = from {k,m}'
DYC_INLINE void transpose_back(const float* __restrict from, int64_t m, int64_t k, float* __restrict to) {
  for_few_rows(m, k, [=](auto rows, int64_t j) __attribute__((always_inline)) {
    constexpr int M = decltype(rows)::value;
    DYC_UNROLL for (int i = 0; i < M; i++) to[j * M + i] = from[i * k + j];
  });
}

// W {m,k} with columns of m <= kFewRows floats -> {k,m}
DYC_INLINE const float* transposed(const float* w, int64_t m, int64_t k, Scratch& scratch) {
  if (m == 1) return w;
  float* to = scratch.get(m * k);
  transpose(w, m, k, to);
  return to;
}

}  // namespace dyc::DYC_ISA
