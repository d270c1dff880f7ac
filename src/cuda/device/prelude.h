// Scalar functions for op definitions on a CUDA device: the names of cpu/simd.h and
// cpu/simd_math.h with T = float. NVRTC compiles this with --device-as-default-execution-space and without
// fast mathematics; kernel sources include it before any header of ops/, which look these names up where
// they are read.
#pragma once
#include "cuda/device/std.h"

#ifndef DYC_EMULATION
#pragma nv_diag_suppress 128  // "loop is not reachable": after the part of a row that is for teams
#endif

#include "ops/kernel_args.h"

namespace dyc {

// ---- moves and choices

template <class T>
DYC_INLINE T splat(float a) {
  return a;
}
DYC_INLINE float select(bool mask, float a, float b) { return mask ? a : b; }
DYC_INLINE int32_t select(bool mask, int32_t a, int32_t b) { return mask ? a : b; }
// A NaN in b comes through, a NaN in a does not, as on the CPU.
DYC_INLINE float vmin(float a, float b) { return a < b ? a : b; }
DYC_INLINE float vmax(float a, float b) { return a > b ? a : b; }
DYC_INLINE float vabs(float a) { return fabsf(a); }
DYC_INLINE float vcopysign(float a, float b) { return copysignf(a, b); }
DYC_INLINE float vfma(float a, float b, float c) { return fmaf(a, b, c); }

// A vector of one lane.
template <class T>
DYC_INLINE T load(const float* p) {
  return *p;
}
DYC_INLINE float load_n(const float* p, int n) { return n > 0 ? *p : 0.f; }
DYC_INLINE void store(float* p, float a) { *p = a; }
DYC_INLINE void store_n(float* p, float a, int n) {
  if (n > 0) *p = a;
}
DYC_INLINE float hsum(float a) { return a; }
DYC_INLINE float hmax(float a) { return a; }
DYC_INLINE float hmin(float a) { return a; }

// ---- roots, rounding, powers

DYC_INLINE float vsqrt(float a) { return sqrtf(a); }
DYC_INLINE float vfloor(float a) { return floorf(a); }
DYC_INLINE float vceil(float a) { return ceilf(a); }
DYC_INLINE float vtrunc(float a) { return truncf(a); }
DYC_INLINE float vround(float a) { return roundf(a); }  // halves away from zero
DYC_INLINE float vpow(float a, float b) { return powf(a, b); }

// ---- exponentials, logarithms

DYC_INLINE float vexp(float a) { return expf(a); }
DYC_INLINE float vexp_term(float a) { return expf(a); }
DYC_INLINE float vexpm1(float a) { return expm1f(a); }
DYC_INLINE float vlog(float a) { return logf(a); }
DYC_INLINE float vlog1p(float a) { return log1pf(a); }
DYC_INLINE float vlogistic(float a) {
  const float e = expf(-fabsf(a));
  return (a < 0.f ? e : 1.f) / (e + 1.f);
}
DYC_INLINE float vlog_sigmoid(float a) { return a == a ? vmin(a, 0.f) - log1pf(expf(-fabsf(a))) : a; }

// ---- circular and hyperbolic functions

DYC_INLINE float vsin(float a) { return sinf(a); }
DYC_INLINE float vcos(float a) { return cosf(a); }
DYC_INLINE float vtan(float a) { return tanf(a); }
DYC_INLINE float vasin(float a) { return asinf(a); }
DYC_INLINE float vacos(float a) { return acosf(a); }
DYC_INLINE float vatan(float a) { return atanf(a); }
DYC_INLINE float vsinh(float a) { return sinhf(a); }
DYC_INLINE float vcosh(float a) { return coshf(a); }
DYC_INLINE float vtanh(float a) { return tanhf(a); }
DYC_INLINE float vasinh(float a) { return asinhf(a); }
DYC_INLINE float vacosh(float a) { return acoshf(a); }
DYC_INLINE float vatanh(float a) { return atanhf(a); }

// ---- special functions

DYC_INLINE float verf(float a) { return erff(a); }
// In double, as on the CPU: lgammaf loses its last digits near its zeros.
DYC_INLINE float vlgamma(float a) { return static_cast<float>(lgamma(static_cast<double>(a))); }

// Derivative of lgamma, as cpu/simd_math.h has it; NaN at the poles.
inline float vdigamma(float a) {
  constexpr double kPi = 3.14159265358979323846;
  double y = a, shift = 0;
  if (y <= 0) {
    if (y == floor(y)) return nanf("");
    shift = -kPi / tan(kPi * (y - floor(y + 0.5)));
    y = 1 - y;
  }
  if (y < 1e9) {
    for (; y < 8; y += 1) shift -= 1 / y;
  }
  const double z = 1 / (y * y);
  const double series = z * (1. / 12 - z * (1. / 120 - z * (1. / 252 - z * (1. / 240 - z * (1. / 132)))));
  return static_cast<float>(shift + log(y) - 0.5 / y - series);
}

}  // namespace dyc
