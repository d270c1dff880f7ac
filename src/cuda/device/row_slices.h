// Parts of results that a block of a walk computes from what it made itself, so that it need not wait for the
// other blocks. For kernels only.
//
// A launch has units: element i of its result, or of a gradient, is of unit i % unit. Block b has the b-th
// part of the units, in each launch that has as many; what it computes of a unit depends on that unit of
// other such launches alone.
#pragma once
#include "cuda/abi/launch_args.h"
#include "cuda/abi/persistent_weights.h"
#include "cuda/device/thread_groups.h"
#include "cuda/device/worker.h"

namespace dyc::cuda {

struct RowSlice {
  int64_t first, count;
  DYC_INLINE explicit RowSlice(int64_t period) {
    const int64_t most = slice_rows(period, gridDim.x);
    first = blockIdx.x * most;
    count = period - first < most ? period - first : most;
    if (count < 0) count = 0;
  }
};

// Those of `total` elements, of results or of a gradient, that a thread makes: [k] for begin <= k < end, step
// by step.
struct Elements {
  int64_t begin, end, step, period, first = 0, count = 1;
  DYC_INLINE Elements(const LaunchArgs& r, int64_t total, const Worker& w)
      : begin(w.thread), end(total), step(w.threads), period(r.period) {
    if (!period) return;
    const RowSlice own(period);
    first = own.first;
    count = own.count;
    begin = threadIdx.x;
    end = total / period * count;
    step = blockDim.x;
  }
  DYC_INLINE int64_t operator[](int64_t k) const {
    return period ? k / count * period + first + k % count : k;
  }
};

// The threads of a warp, for the units of their block.
struct SlicedWarp : WarpGroup {
  static DYC_INLINE size_t begin(size_t n) { return RowSlice(n).first + lane(); }
  static DYC_INLINE size_t end(size_t n) {
    const RowSlice own(n);
    return own.first + own.count;
  }
};

}  // namespace dyc::cuda
