// Which part of a launch's work a thread does. For kernels only.
#pragma once
#include "cuda/abi/operands.h"
#include "cuda/device/grid.h"

namespace dyc::cuda {

struct Worker {
  int64_t thread, threads;  // of the whole grid
  DYC_INLINE Worker()
      : thread(int64_t{blockIdx.x} * blockDim.x + threadIdx.x), threads(int64_t{gridDim.x} * blockDim.x) {}
  DYC_INLINE uint32_t lane() const { return threadIdx.x % kWarp; }
  DYC_INLINE int64_t warp() const { return thread / kWarp; }
  DYC_INLINE int64_t warps() const { return threads / kWarp; }
};

}  // namespace dyc::cuda
