// Inner loops of the trainers: one pass over values, gradient and state, compiled for several
// instruction sets and picked at run time.
#pragma once
#include <cstddef>

#include "ops/updates.h"

namespace dyc {

using UpdateKernel = void (*)(const UpdateSlice&, const UpdateFactors&);

struct UpdateKernels {
  int states = 0;                 // arrays of state per parameter
  UpdateKernel active = nullptr;  // with a gradient
  UpdateKernel idle = nullptr;    // gradient 0; nullptr: that changes nothing
};

// One per instruction set.
struct UpdateTable {
  UpdateKernels rules[kUpdateRules];  // by UpdateRule
  double (*sum_of_squares)(const float* x, size_t n);
};
const UpdateTable& update_table_baseline();
const UpdateTable& update_table_avx2();    // x86 only
const UpdateTable& update_table_avx512();  // x86 only

UpdateKernels update_kernels(UpdateRule rule);

// Sum of squares; no overflow or underflow short of infinite input. About 1e-7 from the exact sum.
double sum_of_squares(const float* x, size_t n);

}  // namespace dyc
