// Vectorised mathematics for simd.h: one text for V and float, so that a value does not depend on its lane or
// tail. Polynomials are least-maximum fits made for this project over the reduced ranges; errors are below
// 2 ulp (measured at one of 61 numbers: tanh 1.70, logistic 1.82, exp 1.03).
#pragma once
#include <math.h>

#include "cpu/simd.h"

#if defined(__APPLE__)  // there, and in math.h, but declared under _REENTRANT only
extern "C" double lgamma_r(double, int*);
#endif

namespace dyc::DYC_ISA {

inline constexpr float kInf = __builtin_inff();
inline constexpr float kNan = __builtin_nanf("");
inline constexpr float kRoundMagic = 12582912.f;  // 1.5 * 2^23: adding it rounds to the nearest integer
inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2Hi = 0x1.63p-1f;  // 11 bits: the product with an exponent is exact without FMA too
inline constexpr float kLn2Lo = -0x1.bd0106p-13f;

template <class T> DYC_INLINE T horner(T, float c) { return splat<T>(c); }
// c + x * (c1 + x * (...))
template <class T, class... C> DYC_INLINE T horner(T x, float c, C... more) {
  return vfma(horner(x, more...), x, splat<T>(c));
}

// ---- exp family ----

template <class T> struct Reduced {
  T r;         // |r| <= ln(2)/2
  IntOf<T> n;  // x = n ln(2) + r
  T whole;     // n
};
template <class T> DYC_INLINE Reduced<T> reduce_ln2(T x) {
  const T t = vfma(x, splat<T>(kLog2E), splat<T>(kRoundMagic));
  const T n = t - splat<T>(kRoundMagic);
  const T r = vfma(n, splat<T>(-kLn2Hi), x);
  return {vfma(n, splat<T>(-kLn2Lo), r), as_int(t) - as_int(kRoundMagic), n};
}
template <class T> DYC_INLINE T exp2_int(IntOf<T> n) { return as_float((n + 127) << 23); }
// y * 2^n: by two factors, as 2^n alone leaves the range of float at both ends
template <class T> DYC_INLINE T scaled(T y, const Reduced<T>& x) {
#if defined(__AVX512F__)
  if constexpr (kWidth<T> > 1)
    return reinterpret_cast<V>(
        _mm512_maskz_scalef_ps(0xffff, reinterpret_cast<__m512>(y), reinterpret_cast<__m512>(x.whole)));
#endif
  const IntOf<T> half = x.n >> 1;
  return y * exp2_int<T>(half) * exp2_int<T>(x.n - half);
}
// exp(r) - 1
template <class T> DYC_INLINE T expm1_poly(T r) {
  const T p = horner(r, 0.5f, 0x1.5554bp-3f, 0x1.5554c8p-5f, 0x1.12281ap-7f, 0x1.6d723ep-10f);
  return vfma(r * r, p, r);
}

template <class T> DYC_INLINE T exp_any(T x) {
  const auto reduced = reduce_ln2(vmin(splat<T>(89.f), vmax(splat<T>(-104.f), x)));
  return scaled(expm1_poly(reduced.r) + 1.f, reduced);
}
// exp(x) for x <= 0
template <class T> DYC_INLINE T exp_negative(T x) {
  const auto reduced = reduce_ln2(vmax(splat<T>(-104.f), x));
  return scaled(expm1_poly(reduced.r) + 1.f, reduced);
}
// The same for sums: what is less than 2^-126 may be 0.
template <class T> DYC_INLINE T exp_term_any(T x) {
#if defined(__AVX512F__)
  return exp_negative(x);
#else
  const auto reduced = reduce_ln2(vmax(splat<T>(-88.f), x));  // n >= -127, for which exp2_int() is 0
  return (expm1_poly(reduced.r) + 1.f) * exp2_int<T>(reduced.n);
#endif
}
template <class T> DYC_INLINE T expm1_any(T x) {
  const auto [r, n, whole] = reduce_ln2(vmin(splat<T>(89.f), vmax(splat<T>(-25.f), x)));
  const T p = expm1_poly(r);
  const T half = exp2_int<T>(n - 1);
  const T y = vfma(p, half, half - 0.5f) * 2.f;
  return select(n == 0, p, y);
}

template <class T> DYC_INLINE T tanh_any(T x) {
  // With a = |x| and e = exp(2a) - 1: a - (a e + 2a - e) / (e + 2) near 0, 1 - 2 / (e + 2) where a is large.
  // The quotients are small beside what they are taken from, and so are their rounding errors.
  const T a = vmin(splat<T>(10.f), vabs(x));
  const T twice = a + a;
  const auto [r, n, whole] = reduce_ln2(twice);
  const T s = exp2_int<T>(n);
  const T e = vfma(expm1_poly(r), s, s - 1.f);
  const auto small = a < 0.55f;
  const T q = select(small, vfma(a, e, twice - e), splat<T>(2.f)) / (e + 2.f);
  return vcopysign(select(small, a, splat<T>(1.f)) - q, x);
}
template <class T> DYC_INLINE T logistic_any(T x) {
  // e / (e + 1) for x < 0; e - e * (e / (e + 1)) where e is small, as the rounding errors of the quotient are
  // then small beside e.
  const T e = exp_negative(as_float(as_int(x) | INT32_MIN));
  const T q = select(x < 0.f, e, splat<T>(1.f)) / (e + 1.f);
  return select(x < -1.f, vfma(-e, q, e), q);
}

// ---- log family ----

// log(2^e (1 + f)) + c, 1 + f in [sqrt(1/2), sqrt(2)), |c| far below 1
template <class T> DYC_INLINE T log_sum(T e, T f, T c) {
  const T z = f * f;
  const T p = horner(f, 0x1.55554ap-2f, -0x1.00022p-2f, 0x1.99a5aap-3f, -0x1.54788ep-3f, 0x1.226d1ap-3f,
                     -0x1.0cdf74p-3f, 0x1.07d6a8p-3f, -0x1.41fe3ap-4f);
  T y = vfma(f * z, p, vfma(e, splat<T>(kLn2Lo), c));
  y = vfma(z, splat<T>(-0.5f), y) + f;
  return vfma(e, splat<T>(kLn2Hi), y);
}
DYC_INLINE V to_float(VI a) { return __builtin_convertvector(a, V); }
DYC_INLINE float to_float(int32_t a) { return static_cast<float>(a); }

inline constexpr int32_t kSqrtHalfBits = 0x3f3504f3;

template <class T> DYC_INLINE T log_any(T x) {
  const auto tiny = x < 0x1p-126f;
  const T scaled = select(tiny, x * 0x1p23f, x);
  const IntOf<T> bits = as_int(vabs(scaled)) - kSqrtHalfBits;  // vabs: no overflow below 0
  const T e = to_float(bits >> 23) + select(tiny, splat<T>(-23.f), splat<T>(0.f));
  const T f = as_float((bits & 0x7fffff) + kSqrtHalfBits) - 1.f;
  const T y = log_sum(e, f, splat<T>(0.f));
  const T edge = select(x == 0.f, splat<T>(-kInf), select(x > 0.f, x, splat<T>(kNan)));
  return select((x > 0.f) & (x < kInf), y, edge);
}
template <class T> DYC_INLINE T log1p_core(T x) {  // finite x > -1
  const T u = x + 1.f;
  const IntOf<T> bits = as_int(vabs(u)) - kSqrtHalfBits;
  const IntOf<T> e = bits >> 23;
  // Where the exponent is 0, f = x exactly; elsewhere what rounding 1 + x lost comes back as a first-order
  // term.
  const T lost = select(x < 1.f, x - (u - 1.f), 1.f - (u - x));
  const auto near = e == 0;
  const T f = select(near, x, as_float((bits & 0x7fffff) + kSqrtHalfBits) - 1.f);
  return log_sum(to_float(e), f, select(near, splat<T>(0.f), lost / u));
}
template <class T> DYC_INLINE T log1p_any(T x) {
  const T edge = select(x == -1.f, splat<T>(-kInf), select(x > -1.f, x, splat<T>(kNan)));
  return select((x > -1.f) & (x < kInf), log1p_core(x), edge);
}
template <class T> DYC_INLINE T log_sigmoid_any(T x) {
  const T e = exp_negative(as_float(as_int(x) | INT32_MIN));
  return select(x == x, vmin(x, splat<T>(0.f)) - log1p_core(e), x);
}

// ---- erf, sin, cos, rounding ----

template <class T> DYC_INLINE T erf_any(T x) {
  const T a = vmin(splat<T>(4.f), vabs(x));
  const T p = horner(x * x, 0x1.06eba6p-3f, -0x1.8126eep-2f, 0x1.ce1c3ap-4f, -0x1.b6a9d6p-6f, 0x1.4803ap-8f,
                     -0x1.3d9284p-11f);
  const T log_erfc = horner(a, 0x1.65ac6cp-13f, -0x1.212698p+0f, -0x1.444b44p-1f, -0x1.bb5622p-4f,
                            0x1.9b1892p-6f, -0x1.10a84ap-8f, 0x1.c5457cp-12f, -0x1.5ebf9ep-16f);
  const auto [r, n, whole] = reduce_ln2(log_erfc);
  const T s = exp2_int<T>(n);
  const T large = 1.f - vfma(expm1_poly(r), s, s);
  return select(vabs(x) < 0.9f, vfma(x, p, x), vcopysign(large, x));
}

// sin(x + quarter * pi/2) for |x| <= kMaxAngle
inline constexpr float kMaxAngle = 8192.f;
template <class T> DYC_INLINE T sin_core(T x, int32_t quarter) {
  const T t = vfma(x, splat<T>(0.636619772f), splat<T>(kRoundMagic));
  const T n = t - kRoundMagic;
  T r = vfma(n, splat<T>(-0x1.92p+0f), x);  // pi/2 in three pieces of 11 bits and a rest
  r = vfma(n, splat<T>(-0x1.fb4p-12f), r);
  r = vfma(n, splat<T>(-0x1.444p-24f), r);
  r = vfma(n, splat<T>(-0x1.68c234p-39f), r);
  const IntOf<T> k = as_int(t) - as_int(kRoundMagic) + quarter;
  const T z = r * r;
  const T s = vfma(r * z, horner(z, -0x1.555556p-3f, 0x1.111176p-7f, -0x1.a05b8ap-13f, 0x1.7cbfcep-19f), r);
  const T c = vfma(z * z, horner(z, 0x1.555556p-5f, -0x1.6c1760p-10f, 0x1.a073acp-16f, -0x1.368b98p-22f),
                   vfma(z, splat<T>(-0.5f), splat<T>(1.f)));
  const T y = select((k & 1) == 0, s, c);
  return as_float(as_int(y) ^ ((k & 2) << 30));
}
DYC_INLINE float vsin(float x) { return vabs(x) <= kMaxAngle ? sin_core(x, 0) : sinf(x); }
DYC_INLINE float vcos(float x) { return vabs(x) <= kMaxAngle ? sin_core(x, 1) : cosf(x); }
DYC_INLINE V vsin(V x) {
  const V y = sin_core(x, 0);
  return any(!(vabs(x) <= kMaxAngle)) ? map_lanes(x, [](float a) { return vsin(a); }) : y;
}
DYC_INLINE V vcos(V x) {
  const V y = sin_core(x, 1);
  return any(!(vabs(x) <= kMaxAngle)) ? map_lanes(x, [](float a) { return vcos(a); }) : y;
}

// Halves go away from zero; the largest float below 1/2 keeps 0.49999997 at 0.
template <class T> DYC_INLINE T vround(T x) { return vtrunc(x + vcopysign(splat<T>(0x1.fffffep-2f), x)); }

// ---- public names ----

#define DYC_BOTH(name, any_name)                 \
  DYC_INLINE V name(V x) { return any_name(x); } \
  DYC_INLINE float name(float x) { return any_name(x); }
DYC_BOTH(vexp, exp_any)
DYC_BOTH(vexp_term, exp_term_any)
DYC_BOTH(vexpm1, expm1_any)
DYC_BOTH(vlog, log_any)
DYC_BOTH(vlog1p, log1p_any)
DYC_BOTH(vtanh, tanh_any)
DYC_BOTH(vlogistic, logistic_any)
DYC_BOTH(vlog_sigmoid, log_sigmoid_any)
DYC_BOTH(verf, erf_any)
#undef DYC_BOTH

// Rare functions: the C library, lane by lane.
#define DYC_LANES(name, c_name)                             \
  DYC_INLINE float name(float x) { return c_name(x); }      \
  DYC_INLINE V name(V x) {                                  \
    return map_lanes(x, [](float a) { return c_name(a); }); \
  }
DYC_LANES(vtan, tanf)
DYC_LANES(vasin, asinf)
DYC_LANES(vacos, acosf)
DYC_LANES(vatan, atanf)
DYC_LANES(vsinh, sinhf)
DYC_LANES(vcosh, coshf)
DYC_LANES(vasinh, asinhf)
DYC_LANES(vacosh, acoshf)
DYC_LANES(vatanh, atanhf)

DYC_INLINE float lgamma_one(float x) {
  int sign;
  return static_cast<float>(
      lgamma_r(x, &sign));  // lgamma writes a global; lgammaf_r is off by several ulp at its zeros
}
DYC_LANES(vlgamma, lgamma_one)

// Derivative of lgamma: recurrence to x >= 8, then the asymptotic series; reflection below 0. NaN at the
// poles.
DYC_INLINE float digamma_one(float x) {
  constexpr double kPi = 3.14159265358979323846;
  double y = x, shift = 0;
  if (y <= 0) {
    if (y == __builtin_floor(y)) return kNan;
    shift = -kPi / tan(kPi * (y - __builtin_floor(y + 0.5)));
    y = 1 - y;
  }
  if (y < 1e9) {
    for (; y < 8; y += 1) shift -= 1 / y;
  }
  const double z = 1 / (y * y);
  const double series = z * (1. / 12 - z * (1. / 120 - z * (1. / 252 - z * (1. / 240 - z * (1. / 132)))));
  return static_cast<float>(shift + log(y) - 0.5 / y - series);
}
DYC_LANES(vdigamma, digamma_one)
#undef DYC_LANES

DYC_INLINE float vpow(float x, float y) { return powf(x, y); }
DYC_INLINE V vpow(V x, V y) {
  return map_lanes(x, y, [](float a, float b) { return powf(a, b); });
}

}  // namespace dyc::DYC_ISA
