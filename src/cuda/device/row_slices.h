// Slices of launches, for kernels only. In a persistent kernel, the rows of a launch are taken modulo its
// period (the size of an LSTM whose gates are stacked), and thread block b owns slice b of [0, period): what
// it computes of its rows depends on these rows of other sliced launches alone, so that such a launch needs
// no grid barrier. In a chain the nodes are taken modulo the number of instances, likewise.
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
// by step. `size`: elements of a node, in chains over instances.
struct Elements {
  int64_t begin, end, step, period, first = 0, count = 1;
  DYC_INLINE Elements(const LaunchArgs& r, int64_t total, int64_t size, const Worker& w)
      : begin(w.thread), end(total), step(w.threads), period(r.instances ? r.instances * size : r.period) {
    if (!period) return;
    const RowSlice own(r.instances ? r.instances : period);
    const int64_t each = r.instances ? size : 1;
    first = own.first * each;
    count = own.count * each;
    begin = threadIdx.x;
    end = total / period * count;
    step = blockDim.x;
  }
  DYC_INLINE int64_t operator[](int64_t k) const {
    if (!period) return k;
    const auto at = static_cast<uint32_t>(k), rows = static_cast<uint32_t>(count);  // few: kSlicedNodes
    return at / rows * period + first + at % rows;
  }
};

// The threads of a warp, for the row slice of their block.
struct SlicedWarp : WarpGroup {
  static DYC_INLINE size_t begin(size_t n) { return RowSlice(n).first + lane(); }
  static DYC_INLINE size_t end(size_t n) {
    const RowSlice own(n);
    return own.first + own.count;
  }
};

}  // namespace dyc::cuda
