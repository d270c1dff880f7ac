// Where the largest value of each result is, for programs that read no more than that.
#include "cuda/device/prelude.h"

#include "cuda/abi/argmax.h"
#include "cuda/device/grid.h"
#include "cuda/abi/launch_args.h"
#include "ops/order.h"

namespace dyc::cuda {

// The larger of two is the larger value or, of equal ones, the first.
DYC_INLINE uint64_t ranked(float v, uint32_t at) { return uint64_t{order_of(v)} << 32 | ~at; }
DYC_INLINE uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// As NumPy's argmax: the first NaN, else the first of the largest. A block for each node.
__device__ inline void run_argmax(const LaunchArgs& r) {
  DYC_SHARED(uint64_t, best, kBlock / kWarp);
  for (uint32_t i = blockIdx.x; i < r.count; i += gridDim.x) {
    const float* const y = r.y + out_of(r, i);
    const uint32_t size = static_cast<uint32_t>(size_of(r.results, i));
    uint64_t mine = 0;
    for (uint32_t k = threadIdx.x; k < size; k += blockDim.x) mine = larger(mine, ranked(y[k], k));
    mine = warp_join(mine, larger);
    if (lane() == 0) best[threadIdx.x / kWarp] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (uint32_t k = 1; k < blockDim.x / kWarp; ++k) mine = larger(mine, best[k]);
      static_cast<const Argmax*>(r.extra)->to[i] = ~static_cast<uint32_t>(mine);
    }
    __syncthreads();  // before the next node
  }
}

__global__ void argmax(const LaunchArgs* args) { run_argmax(*args); }

}  // namespace dyc::cuda
