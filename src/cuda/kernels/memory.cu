// Sums of pieces of memory.
#include "cuda/prelude.h"

#include "cuda/products.h"
#include "cuda/record.h"
#include "cuda/worker.h"

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

// Few pieces each: a thread adds up an element.
__device__ inline void run_add_few(const Record& r, const Worker& w) {
  const Segments& s = *static_cast<const Segments*>(r.more);
  for (int64_t i = w.thread; i < s.ends[s.count - 1]; i += w.threads) {
    const uint32_t segment = segment_of(s, i);
    const int64_t e = i - (segment ? s.ends[segment - 1] : 0);
    float* const to = s.to + s.targets[segment] + e;
    float sum = *to;
    for (uint32_t k = s.starts[segment]; k < s.starts[segment + 1]; ++k) sum += s.from[s.sources[k] + e];
    *to = sum;
  }
}

// Many pieces: a warp adds up an element, each lane every kWarp-th piece.
__device__ inline void run_add_many(const Record& r, const Worker& w) {
  const Segments& s = *static_cast<const Segments*>(r.more);
  for (int64_t i = w.warp(); i < s.ends[s.count - 1]; i += w.warps()) {
    const uint32_t segment = segment_of(s, i);
    const int64_t e = i - (segment ? s.ends[segment - 1] : 0);
    float sum = 0.f;
    for (uint32_t k = s.starts[segment] + w.lane(); k < s.starts[segment + 1]; k += kWarp)
      sum += s.from[s.sources[k] + e];
    sum = warp_sum(sum);
    if (w.lane() == 0) s.to[s.targets[segment] + e] += sum;
  }
}

__global__ void add_few(const Record* record) { run_add_few(*record, Worker()); }
__global__ void add_many(const Record* record) { run_add_many(*record, Worker()); }

}  // namespace dyc::cuda
