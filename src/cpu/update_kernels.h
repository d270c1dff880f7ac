// Inner loops of the trainers: one pass over values, gradient and state, compiled for several
// instruction sets and picked at run time.
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
  float rate = 0.f;    // momentum: the learning rate alone
  float decay1 = 0.f;  // momentum, rho or beta_1
  float decay2 = 0.f;  // beta_2
  float epsilon = 0.f;
};

using UpdateKernel = void (*)(const UpdateSlice&, const UpdateFactors&);

struct UpdateKernels {
  int states = 0;                 // arrays of state per parameter
  UpdateKernel active = nullptr;  // with a gradient
  UpdateKernel idle = nullptr;    // gradient 0; nullptr: that changes nothing
};

enum class UpdateRule { kSgd, kMomentum, kAdagrad, kAdadelta, kRmsProp, kAdam, kAmsgrad, kExponentiated };

// One per instruction set.
struct UpdateTable {
  UpdateKernels rules[8];  // by UpdateRule
  double (*sum_of_squares)(const float* x, size_t n);
};
const UpdateTable& update_table_baseline();
const UpdateTable& update_table_avx2();    // x86 only
const UpdateTable& update_table_avx512();  // x86 only

UpdateKernels update_kernels(UpdateRule rule);

// Sum of squares; no overflow or underflow short of infinite input. About 1e-7 from the exact sum.
double sum_of_squares(const float* x, size_t n);

}  // namespace dyc
