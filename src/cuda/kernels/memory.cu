// Sums of segments of memory, and copies.
#include "cuda/device/prelude.h"

#include "cuda/abi/products.h"
#include "cuda/abi/launch_args.h"
#include "cuda/device/row_slices.h"
#include "cuda/device/worker.h"
#include "ops/long_sum.h"

namespace dyc::cuda {

// The segment that element i of all belongs to.
DYC_INLINE uint32_t segment_of(const Segments& s, int64_t i) {
  uint32_t low = 0, high = s.count - 1;  // i < ends[high]
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (i < s.ends[middle]) high = middle;
    else low = middle + 1;
  }
  return low;
}

DYC_INLINE bool is_fresh(const Segments& s, uint32_t segment) { return s.fresh && s.fresh[segment]; }

// Few sources each: a thread adds up an element.
__device__ inline void run_add_few(const LaunchArgs& r, const Worker& w) {
  const Segments& s = extra_of<Segments>(r);
  const Elements mine(r, s.ends[s.count - 1], 0, w);
  for (int64_t k = mine.begin; k < mine.end; k += mine.step) {
    const int64_t i = mine[k];
    const uint32_t segment = segment_of(s, i);
    const int64_t e = i - (segment ? s.ends[segment - 1] : 0);
    float* const to = s.to + s.targets[segment] + e;
    LongSum<float> sum(is_fresh(s, segment) ? 0.f : *to);
    for (uint32_t p = s.starts[segment]; p < s.starts[segment + 1]; ++p) sum.add(s.from[s.sources[p] + e]);
    *to = sum.total();
  }
}

// Many sources: a warp adds up an element, each lane every kWarp-th source.
__device__ inline void run_add_many(const LaunchArgs& r, const Worker& w) {
  const Segments& s = extra_of<Segments>(r);
  for (int64_t i = w.warp(); i < s.ends[s.count - 1]; i += w.warps()) {
    const uint32_t segment = segment_of(s, i);
    const int64_t e = i - (segment ? s.ends[segment - 1] : 0);
    LongSum<float> part;
    for (uint32_t k = s.starts[segment] + w.lane(); k < s.starts[segment + 1]; k += kWarp)
      part.add(s.from[s.sources[k] + e]);
    const float sum = warp_sum(part.total());
    if (w.lane() > 0) continue;
    float* const to = s.to + s.targets[segment] + e;
    *to = is_fresh(s, segment) ? sum : *to + sum;
  }
}

// The arguments x[0] of all nodes, one after the other at y; `own` says how large they are.
__device__ inline void run_gather(const LaunchArgs& r, const Worker& w) {
  const DeviceOperand<const float> x = r.x[0];
  for (int64_t i = w.thread; i < r.own.total; i += w.threads) {
    const Element e = element(r.own, i);
    r.y[i] = argument(x, r.results, e.node)[e.at];
  }
}

__global__ void add_few(const LaunchArgs* args) { run_add_few(*args, Worker()); }
__global__ void add_many(const LaunchArgs* args) { run_add_many(*args, Worker()); }
__global__ void gather(const LaunchArgs* args) { run_gather(*args, Worker()); }

}  // namespace dyc::cuda
