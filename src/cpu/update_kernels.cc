#include "cpu/update_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

#define DYC_INLINE [[gnu::always_inline]] inline

namespace dyc {

namespace {

// ------------------------------------------------------------------- one element of each rule
// s: this element's state; g: gradient after clipping; returns the new value of x.

struct Sgd {
  static constexpr int kStates = 0;
  static constexpr bool kIdleMatters = false;
  DYC_INLINE static float apply(float x, float g, float*, float*, float*, const UpdateFactors& f) {
    return x - f.step * g;
  }
};

struct Momentum {
  static constexpr int kStates = 1;
  static constexpr bool kIdleMatters = true;
  DYC_INLINE static float apply(float x, float g, float* v, float*, float*, const UpdateFactors& f) {
    *v = f.decay1 * *v - f.rate * g;
    return x + *v * f.step;
  }
};

struct Adagrad {
  static constexpr int kStates = 1;
  static constexpr bool kIdleMatters = false;
  DYC_INLINE static float apply(float x, float g, float* v, float*, float*, const UpdateFactors& f) {
    *v += g * g;
    return x - f.step * g / std::sqrt(*v + f.epsilon);
  }
};

struct Adadelta {
  static constexpr int kStates = 2;
  static constexpr bool kIdleMatters = true;
  DYC_INLINE static float apply(float x, float g, float* a, float* b, float*, const UpdateFactors& f) {
    *a = f.decay1 * *a + (1.f - f.decay1) * (g * g);
    const float d = -g * std::sqrt(*b + f.epsilon) / std::sqrt(*a + f.epsilon);
    *b = f.decay1 * *b + (1.f - f.decay1) * (d * d);
    return x + d * f.step;
  }
};

struct RmsProp {
  static constexpr int kStates = 1;
  static constexpr bool kIdleMatters = true;
  DYC_INLINE static float apply(float x, float g, float* v, float*, float*, const UpdateFactors& f) {
    *v = f.decay1 * *v + (1.f - f.decay1) * (g * g);
    return x - f.step * g / std::sqrt(*v + f.epsilon);
  }
};

struct Adam {
  static constexpr int kStates = 2;
  static constexpr bool kIdleMatters = true;
  DYC_INLINE static float apply(float x, float g, float* m, float* v, float*, const UpdateFactors& f) {
    *m = f.decay1 * *m + (1.f - f.decay1) * g;
    *v = f.decay2 * *v + (1.f - f.decay2) * (g * g);
    return x - f.step * *m / (std::sqrt(*v) + f.epsilon);
  }
};

struct Amsgrad {
  static constexpr int kStates = 3;
  static constexpr bool kIdleMatters = true;
  DYC_INLINE static float apply(float x, float g, float* m, float* v, float* top, const UpdateFactors& f) {
    *m = f.decay1 * *m + (1.f - f.decay1) * g;
    *v = f.decay2 * *v + (1.f - f.decay2) * (g * g);
    *top = std::max(*top, *v);
    return x - f.step * *m / (std::sqrt(*top) + f.epsilon);
  }
};

// ------------------------------------------------------------------------------------- loops

// ivdep: out is old or disjoint from it, so no iteration reads what another one wrote.
template <class Rule, bool kActive>
DYC_INLINE void update_loop(const UpdateSlice& slice, const UpdateFactors& factors) {
  const UpdateFactors f = factors;
  const float* old = slice.old;
  const float* grad = slice.grad;
  float* out = slice.out;
  float *s0 = slice.state[0], *s1 = slice.state[1], *s2 = slice.state[2];
  const size_t n = slice.n;
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) {
    float a = 0.f, b = 0.f, c = 0.f;
    if constexpr (Rule::kStates > 0) a = s0[i];
    if constexpr (Rule::kStates > 1) b = s1[i];
    if constexpr (Rule::kStates > 2) c = s2[i];
    const float g = kActive ? factors.clip * grad[i] : 0.f;
    out[i] = Rule::apply(old[i], g, &a, &b, &c, f);
    if constexpr (Rule::kStates > 0) s0[i] = a;
    if constexpr (Rule::kStates > 1) s1[i] = b;
    if constexpr (Rule::kStates > 2) s2[i] = c;
  }
}

typedef float Floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef double Doubles __attribute__((vector_size(64)));

DYC_INLINE void add_squares(Doubles& sum, const float* x) {
  const auto d = __builtin_convertvector(*reinterpret_cast<const Floats*>(x), Doubles);
  sum += d * d;
}

DYC_INLINE double square_loop(const float* x, size_t n) {
  Doubles a = {}, b = {}, c = {}, d = {};  // four, because an addition takes four cycles
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    add_squares(a, x + i);
    add_squares(b, x + i + 8);
    add_squares(c, x + i + 16);
    add_squares(d, x + i + 24);
  }
  for (; i + 8 <= n; i += 8) add_squares(a, x + i);
  a = (a + b) + (c + d);
  double sum = ((a[0] + a[4]) + (a[1] + a[5])) + ((a[2] + a[6]) + (a[3] + a[7]));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

// --------------------------------------------------------------------------- instruction sets

#define DYC_FOR_ISA(isa, attributes)                                           \
  template <class Rule, bool kActive>                                          \
  attributes void update_##isa(const UpdateSlice& s, const UpdateFactors& f) { \
    update_loop<Rule, kActive>(s, f);                                          \
  }                                                                            \
  attributes double squares_##isa(const float* x, size_t n) { return square_loop(x, n); }

DYC_FOR_ISA(baseline, )
#if defined(__x86_64__)
DYC_FOR_ISA(avx2, [[gnu::target("avx2,fma")]])
DYC_FOR_ISA(avx512, [[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,prefer-vector-width=512")]])
#endif

enum class Isa { kBaseline, kAvx2, kAvx512 };

// DYNET_COMPAT_ISA asks for less than the CPU has, as it does for the kernels of ops.
Isa host_isa() {
#if defined(__x86_64__)
  const char* variable = std::getenv("DYNET_COMPAT_ISA");
  const std::string_view wanted = variable ? variable : "";
  if (wanted == "baseline") return Isa::kBaseline;
  __builtin_cpu_init();
  if (wanted != "avx2" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    return Isa::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

Isa chosen_isa() {
  static const Isa isa = host_isa();
  return isa;
}

template <class Rule, bool kActive>
UpdateKernel pick() {
#if defined(__x86_64__)
  if (chosen_isa() == Isa::kAvx512) return update_avx512<Rule, kActive>;
  if (chosen_isa() == Isa::kAvx2) return update_avx2<Rule, kActive>;
#endif
  return update_baseline<Rule, kActive>;
}

template <class Rule>
UpdateKernels pick_rule() {
  return {Rule::kStates, pick<Rule, true>(), Rule::kIdleMatters ? pick<Rule, false>() : nullptr};
}

using SquareKernel = double (*)(const float*, size_t);

SquareKernel pick_squares() {
#if defined(__x86_64__)
  if (chosen_isa() == Isa::kAvx512) return squares_avx512;
  if (chosen_isa() == Isa::kAvx2) return squares_avx2;
#endif
  return squares_baseline;
}

}  // namespace

UpdateKernels update_kernels(UpdateRule rule) {
  switch (rule) {
    case UpdateRule::kSgd:
      return pick_rule<Sgd>();
    case UpdateRule::kMomentum:
      return pick_rule<Momentum>();
    case UpdateRule::kAdagrad:
      return pick_rule<Adagrad>();
    case UpdateRule::kAdadelta:
      return pick_rule<Adadelta>();
    case UpdateRule::kRmsProp:
      return pick_rule<RmsProp>();
    case UpdateRule::kAdam:
      return pick_rule<Adam>();
    case UpdateRule::kAmsgrad:
      return pick_rule<Amsgrad>();
  }
  throw ValueError("update_kernels(): unknown rule");
}

double sum_of_squares(const float* x, size_t n) {
  static const SquareKernel squares = pick_squares();
  return squares(x, n);
}

}  // namespace dyc
