// The trainers' rules for one element, or a vector of them: T is float or a vector of floats. For kernels:
// vfma, vsqrt, vexp, splat, subtract_quotient(x, n, a) = x - n / a, subtract_root_quotient(x, n, a) =
// x - n / sqrt(a) and divide_by_sqrt(n, a) = n / sqrt(a) must be declared before. These subtract, too, as the
// compiler would join a subtraction with a product in some loops only, and an element's bits must not depend
// on its place.
//
//   apply(x, g, s, f)  the new value of x; g: the gradient after clipping, s: the state
//   kStates            arrays of state
//   kIdleMatters       whether a gradient of 0 changes anything
#pragma once
#include "ops/kernel_args.h"
#include "ops/updates.h"

namespace dyc::rules {

constexpr int kMostStates = 3;

struct Sgd {
  static constexpr int kStates = 0;
  static constexpr bool kIdleMatters = false;
  template <class T>
  static DYC_INLINE T apply(T x, T g, T*, const UpdateFactors& f) {
    return vfma(g, splat<T>(-f.step), x);
  }
};

struct Momentum {
  static constexpr int kStates = 1;
  static constexpr bool kIdleMatters = true;
  template <class T>
  static DYC_INLINE T apply(T x, T g, T* s, const UpdateFactors& f) {
    s[0] = vfma(s[0], splat<T>(f.decay1), g * -f.rate);
    return vfma(s[0], splat<T>(f.step), x);
  }
};

struct Adagrad {
  static constexpr int kStates = 1;
  static constexpr bool kIdleMatters = false;
  template <class T>
  static DYC_INLINE T apply(T x, T g, T* s, const UpdateFactors& f) {
    s[0] = vfma(g, g, s[0]);
    return subtract_root_quotient(x, g * f.step, s[0] + f.epsilon);
  }
};

// The running mean of a quantity, decay * mean + (1 - decay) * now, by one product less where it may: these
// loops are bound by multiplications. 1 - decay is exact for a decay of 1/2 and more; for less, a large mean
// would round off a small `now` and then be forgotten.
template <class T>
DYC_INLINE T running_mean(T mean, float decay, T now) {
  if (decay < 0.5f) return vfma(mean, splat<T>(decay), now * (1.f - decay));
  return vfma(now - mean, splat<T>(1.f - decay), mean);
}
// The same of squares. A mean that has grown to infinity stays there.
template <class T>
DYC_INLINE T running_mean_of_squares(T mean, float decay, T now) {
  if (decay < 0.5f) return running_mean(mean, decay, now * now);
  const T finite = vmin(splat<T>(0x1.fffffep127f), mean);
  return vfma(vfma(now, now, -finite), splat<T>(1.f - decay), mean);
}

struct Adadelta {
  static constexpr int kStates = 2;
  static constexpr bool kIdleMatters = true;
  template <class T>
  static DYC_INLINE T apply(T x, T g, T* s, const UpdateFactors& f) {
    s[0] = running_mean_of_squares(s[0], f.decay1, g);
    const T d = divide_by_sqrt(-g * vsqrt(s[1] + f.epsilon), s[0] + f.epsilon);
    s[1] = running_mean_of_squares(s[1], f.decay1, d);
    return vfma(d, splat<T>(f.step), x);
  }
};

struct RmsProp {
  static constexpr int kStates = 1;
  static constexpr bool kIdleMatters = true;
  template <class T>
  static DYC_INLINE T apply(T x, T g, T* s, const UpdateFactors& f) {
    s[0] = running_mean_of_squares(s[0], f.decay1, g);
    return subtract_root_quotient(x, g * f.step, s[0] + f.epsilon);
  }
};

// x - lr m / (sqrt(v) + eps). A square root and an estimate keep both units of the CPU busy: no estimate of
// the root here. The inverse of an eps below the normal floats would be infinite.
template <class T>
DYC_INLINE T adam_step(T x, T m, T v, const UpdateFactors& f) {
  const T n = m * f.step, a = vsqrt(v) + f.epsilon;
  return f.epsilon > 0.f && f.epsilon < 0x1p-126f ? x - n / a : subtract_quotient(x, n, a);
}

struct Adam {
  static constexpr int kStates = 2;
  static constexpr bool kIdleMatters = true;
  template <class T>
  static DYC_INLINE T apply(T x, T g, T* s, const UpdateFactors& f) {
    s[0] = running_mean(s[0], f.decay1, g);
    s[1] = running_mean_of_squares(s[1], f.decay2, g);
    return adam_step(x, s[0], s[1], f);
  }
};

// Adam with decoupled weight decay.
struct AdamW {
  static constexpr int kStates = 2;
  static constexpr bool kIdleMatters = true;
  template <class T>
  static DYC_INLINE T apply(T x, T g, T* s, const UpdateFactors& f) {
    return Adam::apply(vfma(x, splat<T>(-f.rate), x), g, s, f);
  }
};

struct Amsgrad {
  static constexpr int kStates = 3;
  static constexpr bool kIdleMatters = true;
  template <class T>
  static DYC_INLINE T apply(T x, T g, T* s, const UpdateFactors& f) {
    s[0] = running_mean(s[0], f.decay1, g);
    s[1] = running_mean_of_squares(s[1], f.decay2, g);
    s[2] = vmax(s[2], s[1]);  // lets NaN through
    return adam_step(x, s[0], s[2], f);
  }
};

// Normalised afterwards. The bounds keep x exp(v) finite; far within them all mass is on one element.
struct Exponentiated {
  static constexpr int kStates = 1;
  static constexpr bool kIdleMatters = true;
  template <class T>
  static DYC_INLINE T apply(T x, T g, T* s, const UpdateFactors& f) {
    s[0] = vfma(s[0], splat<T>(f.decay1), g * -f.rate);
    return x * vexp(vmin(vmax(s[0], splat<T>(-40.f)), splat<T>(40.f)));
  }
};

}  // namespace dyc::rules
