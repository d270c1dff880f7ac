// Vectors of floats for kernels that are compiled once per instruction set.
//
// DYC_ISA names the namespace (baseline, avx2, avx512), the compile flags choose the width of V. Every
// function is always-inline: an out-of-line copy that two instruction sets share could run on a CPU that
// lacks one of them. For the same reason this code calls builtins and C functions, never inline functions of
// the C++ library. All names exist for V and for float, so that `template <class T> T f(T x)` works for T in
// {V, float}.
#pragma once
#include <stddef.h>
#include <stdint.h>

#if defined(__SSE4_1__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef DYC_ISA
#define DYC_ISA baseline
#endif
#define DYC_INLINE inline __attribute__((always_inline))

namespace dyc::DYC_ISA {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

// Registers: 32 in AVX-512 and aarch64, 16 otherwise.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr bool kManyRegisters = true;
#else
inline constexpr bool kManyRegisters = false;
#endif

typedef float V __attribute__((vector_size(kLanes * 4)));
typedef int32_t VI
    __attribute__((vector_size(kLanes * 4)));  // also the mask of a comparison: 0 or -1 per lane
typedef float V4 __attribute__((vector_size(16)));

// The types of memory operands: any alignment, any declared type behind the pointer.
typedef float VLoose __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef float V4Loose __attribute__((vector_size(16), aligned(4), may_alias));

template <class T> struct IntOfT;
template <> struct IntOfT<float> {
  using type = int32_t;
};
template <> struct IntOfT<V> {
  using type = VI;
};
template <class T> using IntOf = typename IntOfT<T>::type;

template <class T> inline constexpr int kWidth = 1;
template <> inline constexpr int kWidth<V> = kLanes;

// ---- moves ----

template <class T> DYC_INLINE T splat(float a);
template <> DYC_INLINE float splat<float>(float a) { return a; }
template <> DYC_INLINE V splat<V>(float a) { return a - V{}; }  // a - 0 keeps -0 and folds to one broadcast

template <class T> DYC_INLINE T load(const float* p);
template <> DYC_INLINE float load<float>(const float* p) { return *p; }
template <> DYC_INLINE V load<V>(const float* p) { return *reinterpret_cast<const VLoose*>(p); }

DYC_INLINE void store(float* p, float a) { *p = a; }
DYC_INLINE void store(float* p, V a) { *reinterpret_cast<VLoose*>(p) = a; }

DYC_INLINE VI as_int(V a) { return reinterpret_cast<VI>(a); }
DYC_INLINE int32_t as_int(float a) { return __builtin_bit_cast(int32_t, a); }
DYC_INLINE V as_float(VI a) { return reinterpret_cast<V>(a); }
DYC_INLINE float as_float(int32_t a) { return __builtin_bit_cast(float, a); }

// The first n lanes (0 <= n <= kLanes), the others 0; memory past p[n-1] is never touched.
#if defined(__AVX512F__)
DYC_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
DYC_INLINE V load_n(const float* p, int n) {
  return reinterpret_cast<V>(_mm512_maskz_loadu_ps(first_lanes(n), p));
}
DYC_INLINE void store_n(float* p, V a, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), reinterpret_cast<__m512>(a));
}
#elif defined(__AVX2__)
DYC_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
DYC_INLINE V load_n(const float* p, int n) {
  return reinterpret_cast<V>(_mm256_maskload_ps(p, first_lanes(n)));
}
// Part by part: on processors of AMD a masked store takes as long as several others.
DYC_INLINE void store_n(float* p, V a, int n) {
  if (n & 8) return store(p, a);
  __m128 part = _mm256_castps256_ps128(reinterpret_cast<__m256>(a));
  if (n & 4) {
    _mm_storeu_ps(p, part);
    part = _mm256_extractf128_ps(reinterpret_cast<__m256>(a), 1);
    p += 4;
  }
  if (n & 2) {
    _mm_storel_pi(reinterpret_cast<__m64*>(p), part);
    part = _mm_movehl_ps(part, part);
    p += 2;
  }
  if (n & 1) _mm_store_ss(p, part);
}
#else
DYC_INLINE V load_n(const float* p, int n) {
  V a{};
  switch (n) {
    case 4:
      return load<V>(p);
    case 3:
      a[2] = p[2];
      [[fallthrough]];
    case 2:
      a[1] = p[1];
      [[fallthrough]];
    case 1:
      a[0] = p[0];
      [[fallthrough]];
    default:
      return a;
  }
}
DYC_INLINE void store_n(float* p, V a, int n) {
  switch (n) {
    case 4:
      store(p, a);
      return;
    case 3:
      p[2] = a[2];
      [[fallthrough]];
    case 2:
      p[1] = a[1];
      [[fallthrough]];
    case 1:
      p[0] = a[0];
      [[fallthrough]];
    default:
      return;
  }
}
#endif

// ---- arithmetic ----

// a * b + c, rounded once where the instruction set has FMA.
DYC_INLINE float vfma(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
DYC_INLINE V vfma(V a, V b, V c) {
#if defined(__AVX512F__)
  return reinterpret_cast<V>(
      _mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(__AVX2__)
  return reinterpret_cast<V>(
      _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#elif defined(__aarch64__)
  return reinterpret_cast<V>(vfmaq_f32(reinterpret_cast<float32x4_t>(c), reinterpret_cast<float32x4_t>(a),
                                       reinterpret_cast<float32x4_t>(b)));
#else
  return a * b + c;
#endif
}

DYC_INLINE float select(bool mask, float a, float b) { return mask ? a : b; }
DYC_INLINE V select(VI mask, V a, V b) { return mask ? a : b; }
DYC_INLINE int32_t select(bool mask, int32_t a, int32_t b) { return mask ? a : b; }
DYC_INLINE VI select(VI mask, VI a, VI b) { return mask ? a : b; }

// vmin(a, b) is a < b ? a : b and vmax(a, b) is a > b ? a : b: a NaN in b comes through, a NaN in a does not.
DYC_INLINE float vmin(float a, float b) { return a < b ? a : b; }
DYC_INLINE float vmax(float a, float b) { return a > b ? a : b; }
#if defined(__AVX512F__)
// The forms with a full mask give the plain instructions; GCC 12 warns about the unmasked intrinsics.
DYC_INLINE V vmin(V a, V b) {
  return reinterpret_cast<V>(
      _mm512_maskz_min_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
DYC_INLINE V vmax(V a, V b) {
  return reinterpret_cast<V>(
      _mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
DYC_INLINE V vsqrt(V a) {
  return reinterpret_cast<V>(_mm512_maskz_sqrt_ps(0xffff, reinterpret_cast<__m512>(a)));
}
DYC_INLINE V vfloor(V a) {
  return reinterpret_cast<V>(_mm512_maskz_roundscale_ps(0xffff, reinterpret_cast<__m512>(a), 9));
}
DYC_INLINE V vceil(V a) {
  return reinterpret_cast<V>(_mm512_maskz_roundscale_ps(0xffff, reinterpret_cast<__m512>(a), 10));
}
DYC_INLINE V vtrunc(V a) {
  return reinterpret_cast<V>(_mm512_maskz_roundscale_ps(0xffff, reinterpret_cast<__m512>(a), 11));
}
DYC_INLINE bool any(VI mask) { return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)) != 0; }
#elif defined(__AVX2__)
DYC_INLINE V vmin(V a, V b) {
  return reinterpret_cast<V>(_mm256_min_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}
DYC_INLINE V vmax(V a, V b) {
  return reinterpret_cast<V>(_mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}
DYC_INLINE V vsqrt(V a) { return reinterpret_cast<V>(_mm256_sqrt_ps(reinterpret_cast<__m256>(a))); }
DYC_INLINE V vfloor(V a) { return reinterpret_cast<V>(_mm256_round_ps(reinterpret_cast<__m256>(a), 9)); }
DYC_INLINE V vceil(V a) { return reinterpret_cast<V>(_mm256_round_ps(reinterpret_cast<__m256>(a), 10)); }
DYC_INLINE V vtrunc(V a) { return reinterpret_cast<V>(_mm256_round_ps(reinterpret_cast<__m256>(a), 11)); }
DYC_INLINE bool any(VI mask) { return _mm256_movemask_ps(reinterpret_cast<__m256>(mask)) != 0; }
#elif defined(__SSE4_1__)
DYC_INLINE V vmin(V a, V b) {
  return reinterpret_cast<V>(_mm_min_ps(reinterpret_cast<__m128>(a), reinterpret_cast<__m128>(b)));
}
DYC_INLINE V vmax(V a, V b) {
  return reinterpret_cast<V>(_mm_max_ps(reinterpret_cast<__m128>(a), reinterpret_cast<__m128>(b)));
}
DYC_INLINE V vsqrt(V a) { return reinterpret_cast<V>(_mm_sqrt_ps(reinterpret_cast<__m128>(a))); }
DYC_INLINE V vfloor(V a) { return reinterpret_cast<V>(_mm_round_ps(reinterpret_cast<__m128>(a), 9)); }
DYC_INLINE V vceil(V a) { return reinterpret_cast<V>(_mm_round_ps(reinterpret_cast<__m128>(a), 10)); }
DYC_INLINE V vtrunc(V a) { return reinterpret_cast<V>(_mm_round_ps(reinterpret_cast<__m128>(a), 11)); }
DYC_INLINE bool any(VI mask) { return _mm_movemask_ps(reinterpret_cast<__m128>(mask)) != 0; }
#else
DYC_INLINE V vmin(V a, V b) { return a < b ? a : b; }
DYC_INLINE V vmax(V a, V b) { return a > b ? a : b; }
DYC_INLINE bool any(VI mask) {
  int32_t all = 0;
  for (int i = 0; i < kLanes; i++) all |= mask[i];
  return all != 0;
}
#if defined(__aarch64__)
DYC_INLINE V vsqrt(V a) { return reinterpret_cast<V>(vsqrtq_f32(reinterpret_cast<float32x4_t>(a))); }
DYC_INLINE V vfloor(V a) { return reinterpret_cast<V>(vrndmq_f32(reinterpret_cast<float32x4_t>(a))); }
DYC_INLINE V vceil(V a) { return reinterpret_cast<V>(vrndpq_f32(reinterpret_cast<float32x4_t>(a))); }
DYC_INLINE V vtrunc(V a) { return reinterpret_cast<V>(vrndq_f32(reinterpret_cast<float32x4_t>(a))); }
#else
DYC_INLINE V vsqrt(V a) {
  for (int i = 0; i < kLanes; i++) a[i] = __builtin_sqrtf(a[i]);
  return a;
}
DYC_INLINE V vfloor(V a) {
  for (int i = 0; i < kLanes; i++) a[i] = __builtin_floorf(a[i]);
  return a;
}
DYC_INLINE V vceil(V a) {
  for (int i = 0; i < kLanes; i++) a[i] = __builtin_ceilf(a[i]);
  return a;
}
DYC_INLINE V vtrunc(V a) {
  for (int i = 0; i < kLanes; i++) a[i] = __builtin_truncf(a[i]);
  return a;
}
#endif
#endif
DYC_INLINE float vsqrt(float a) { return __builtin_sqrtf(a); }
DYC_INLINE float vfloor(float a) { return __builtin_floorf(a); }
DYC_INLINE float vceil(float a) { return __builtin_ceilf(a); }
DYC_INLINE float vtrunc(float a) { return __builtin_truncf(a); }
DYC_INLINE bool any(bool mask) { return mask; }

DYC_INLINE float vabs(float a) { return __builtin_fabsf(a); }
DYC_INLINE V vabs(V a) { return as_float(as_int(a) & 0x7fffffff); }
// |a| with the sign of b.
DYC_INLINE float vcopysign(float a, float b) { return __builtin_copysignf(a, b); }
DYC_INLINE V vcopysign(V a, V b) {
  constexpr int32_t kSign = INT32_MIN;
  return as_float((as_int(a) & ~kSign) | (as_int(b) & kSign));
}

// ---- horizontal ----

typedef float VHalf __attribute__((vector_size(kLanes > 4 ? kLanes * 2 : 16)));

// Folds V to four lanes by halves: lane i of the result is a[i] + a[i + 4] + ... in one fixed order.
template <class Op> DYC_INLINE V4 fold4(V a, Op op) {
#if defined(__AVX512F__)
  const VHalf lo = __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7);
  const VHalf hi = __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15);
  const VHalf h = op(lo, hi);
  return op(__builtin_shufflevector(h, h, 0, 1, 2, 3), __builtin_shufflevector(h, h, 4, 5, 6, 7));
#elif defined(__AVX2__)
  return op(__builtin_shufflevector(a, a, 0, 1, 2, 3), __builtin_shufflevector(a, a, 4, 5, 6, 7));
#else
  static_cast<void>(op);
  return a;
#endif
}

struct AddOp {
  template <class T> DYC_INLINE T operator()(T a, T b) const { return a + b; }
};
struct MaxOp {
  template <class T> DYC_INLINE T operator()(T a, T b) const { return a > b ? a : b; }
};
struct MinOp {
  template <class T> DYC_INLINE T operator()(T a, T b) const { return a < b ? a : b; }
};

template <class Op> DYC_INLINE float reduce(V a, Op op) {
  const V4 f = fold4(a, op);
  return op(op(f[0], f[2]), op(f[1], f[3]));
}
DYC_INLINE float hsum(V a) { return reduce(a, AddOp{}); }
DYC_INLINE float hmax(V a) { return reduce(a, MaxOp{}); }
DYC_INLINE float hmin(V a) { return reduce(a, MinOp{}); }
DYC_INLINE float hsum(float a) { return a; }
DYC_INLINE float hmax(float a) { return a; }
DYC_INLINE float hmin(float a) { return a; }

// Interleaves two vectors within each group of four lanes: {a0 b0 a1 b1} and {a2 b2 a3 b3}; then the pairs
// {a0 a1 b0 b1} and {a2 a3 b2 b3}.
#if defined(__AVX512F__)
#define DYC_LANES_OF(p, q, r, s) \
  p, q, r, s, p + 4, q + 4, r + 4, s + 4, p + 8, q + 8, r + 8, s + 8, p + 12, q + 12, r + 12, s + 12
#elif defined(__AVX2__)
#define DYC_LANES_OF(p, q, r, s) p, q, r, s, p + 4, q + 4, r + 4, s + 4
#else
#define DYC_LANES_OF(p, q, r, s) p, q, r, s
#endif
DYC_INLINE V zip_low(V a, V b) {
  return __builtin_shufflevector(a, b, DYC_LANES_OF(0, kLanes, 1, kLanes + 1));
}
DYC_INLINE V zip_high(V a, V b) {
  return __builtin_shufflevector(a, b, DYC_LANES_OF(2, kLanes + 2, 3, kLanes + 3));
}
DYC_INLINE V pairs_low(V a, V b) {
  return __builtin_shufflevector(a, b, DYC_LANES_OF(0, 1, kLanes, kLanes + 1));
}
DYC_INLINE V pairs_high(V a, V b) {
  return __builtin_shufflevector(a, b, DYC_LANES_OF(2, 3, kLanes + 2, kLanes + 3));
}
#undef DYC_LANES_OF

// The sums of the lanes of a, b, c and d: one fixed order of additions (not that of hsum).
DYC_INLINE V4 hsum4(V a, V b, V c, V d) {
  const V ab = zip_low(a, b) + zip_high(a, b);
  const V cd = zip_low(c, d) + zip_high(c, d);
  return fold4(pairs_low(ab, cd) + pairs_high(ab, cd), AddOp{});
}

// to[c][r] = from[r][c], or added, for four columns of four; rows `to_step` and `from_step` floats apart.
// V only makes the call dependent.
DYC_INLINE void transpose4(V, bool add, float* to, size_t to_step, const float* from, size_t from_step) {
  const auto row = [&](size_t i) __attribute__((always_inline)) {
    return *reinterpret_cast<const V4Loose*>(from + i * from_step);
  };
  const V4Loose a = row(0), b = row(1), c = row(2), d = row(3);
  const V4Loose ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const V4Loose ef = __builtin_shufflevector(a, b, 2, 6, 3, 7),
                gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const auto put = [&](size_t i, V4Loose v) __attribute__((always_inline)) {
    V4Loose& at = *reinterpret_cast<V4Loose*>(to + i * to_step);
    at = add ? at + v : v;
  };
  put(0, __builtin_shufflevector(ab, cd, 0, 1, 4, 5));
  put(1, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
  put(2, __builtin_shufflevector(ef, gh, 0, 1, 4, 5));
  put(3, __builtin_shufflevector(ef, gh, 2, 3, 6, 7));
}

// fn(lane) for each lane: for functions too rare to be worth a vector version.
template <class F> DYC_INLINE V map_lanes(V a, F fn) {
  for (int i = 0; i < kLanes; i++) a[i] = fn(a[i]);
  return a;
}
template <class F> DYC_INLINE V map_lanes(V a, V b, F fn) {
  for (int i = 0; i < kLanes; i++) a[i] = fn(a[i], b[i]);
  return a;
}

}  // namespace dyc::DYC_ISA

#include "cpu/simd_math.h"
