// Convolutions on patches: what a window sees, one after the other, is a column of a matrix product with the
// filters. For results of few positions, where the lanes of conv_planes.h would run empty.
#pragma once
#include <string.h>

#include "cpu/isa/items.h"
#include "ops/conv.h"

namespace dyc::DYC_ISA {

// f(offset in the patch, offset in x, rows) for the runs of a patch that lie in x, position p.
template <class F> DYC_INLINE void each_patch_run(const ConvShape& c, int64_t p, F f) {
  const int64_t top = p % c.h.y * c.h.stride - c.h.pad, left = p / c.h.y * c.w.stride - c.w.pad;
  const int64_t first = top < 0 ? -top : 0, end = min_of(c.h.f, c.h.x - top);
  if (end <= first) return;
  for (int64_t ch = 0; ch < c.channels; ch++) {
    for (int64_t k = left < 0 ? -left : 0; k < c.w.f && left + k < c.w.x; k++) {
      f((ch * c.w.f + k) * c.h.f + first, (ch * c.w.x + left + k) * c.h.x + top + first, end - first);
    }
  }
}

DYC_INLINE bool covered(const ConvShape& c, int64_t p) {  // no zeros around x in this patch
  const int64_t top = p % c.h.y * c.h.stride - c.h.pad, left = p / c.h.y * c.w.stride - c.w.pad;
  return top >= 0 && left >= 0 && top + c.h.f <= c.h.x && left + c.w.f <= c.w.x;
}

DYC_INLINE void fill_patch(const ConvShape& c, const float* x, int64_t p, float* to) {
  if (!covered(c, p)) memset(to, 0, static_cast<size_t>(c.taps()) * sizeof(float));
  each_patch_run(c, p, [&](int64_t at, int64_t from, int64_t n) __attribute__((always_inline)) {
    copy_run(to + at, x + from, n);
  });
}

DYC_INLINE void add_patch(const ConvShape& c, const float* patch, int64_t p, float* dx) {
  each_patch_run(c, p, [&](int64_t at, int64_t to, int64_t n) __attribute__((always_inline)) {
    add_run(dx + to, patch + at, n);
  });
}

// Patches that are multiplied at once.
DYC_INLINE int64_t patch_columns(int64_t taps, int64_t filters) {
  const int64_t fit = kPatchFloats / (taps + filters);
  return fit < kFewPatches ? kFewPatches : min_of(fit, kMostPatches);
}

}  // namespace dyc::DYC_ISA
