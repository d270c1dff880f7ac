// What a trainer's rule works on, whatever the device.
#pragma once
#include <cstddef>

namespace dyc {

// A stretch of one parameter. out may be old itself (same position), nothing else overlaps.
struct UpdateSlice {
  const float* old;   // values before
  float* out;         // values after
  const float* grad;  // before clipping; not read by the `idle` kernels
  float* state[3];    // as many as UpdateKernels::states says
  size_t n;
};

// g = clip * grad. step: learning rate (bias correction included) / weight-decay factor.
struct UpdateFactors {
  float clip = 1.f;
  float step = 0.f;
  float rate = 0.f;    // momentum: the learning rate alone; AdamW: times its weight decay
  float decay1 = 0.f;  // momentum, rho or beta_1
  float decay2 = 0.f;  // beta_2
  float epsilon = 0.f;
};

enum class UpdateRule {
  kSgd,
  kMomentum,
  kAdagrad,
  kAdadelta,
  kRmsProp,
  kAdam,
  kAmsgrad,
  kExponentiated,
  kAdamW,
};
constexpr int kUpdateRules = 9;

}  // namespace dyc
