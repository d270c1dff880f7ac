// One node of a launch as its kernel sees it. Column-major, batch slowest; an argument with batch 1
// is reused for every batch element of the result.
#pragma once
#include <cstdint>

#include "base/dim.h"

#define DYC_INLINE inline __attribute__((always_inline))

namespace dyc {

struct KernelArgs {
  const Dim* const* xd;   // shapes of the arguments
  const Dim* yd;          // shape of the result
  const float* const* x;  // argument values
  const float* y;         // result (written by forward through out())
  const float* dy;        // gradient of the result (backward)
  float* dx;              // gradient of the asked argument, to be ADDED to (backward)
  uint32_t n;             // number of arguments
  const uint32_t* attrs;  // attributes, in the order of Param (expr, index kinds left out)
  const uint32_t* ids;    // Param::index / indices / number of this node
  uint32_t n_ids;

  DYC_INLINE float* out() const { return const_cast<float*>(y); }
  DYC_INLINE float real(uint32_t i) const {
    float f;
    __builtin_memcpy(&f, attrs + i, 4);
    return f;
  }
  DYC_INLINE float number() const {
    float f;
    __builtin_memcpy(&f, ids, 4);
    return f;
  }
  // Elements of one batch item of argument i / of the result.
  DYC_INLINE size_t xs(uint32_t i) const { return xd[i]->batch_size(); }
  DYC_INLINE size_t ys() const { return yd->batch_size(); }
  // Batch item b of argument i; batch-1 arguments repeat.
  DYC_INLINE const float* xb(uint32_t i, uint32_t b) const { return x[i] + (xd[i]->bd > 1 ? b * xs(i) : 0); }
  DYC_INLINE float* dxb(uint32_t i, uint32_t b) const { return dx + (xd[i]->bd > 1 ? b * xs(i) : 0); }
  DYC_INLINE float* yb(uint32_t b) const { return out() + b * ys(); }
  DYC_INLINE const float* dyb(uint32_t b) const { return dy + b * ys(); }
};

}  // namespace dyc
