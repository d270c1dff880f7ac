// How the threads of a kernel work together. On the device these are CUDA's own means; cuda/emulation/grid.h
// has its own for the same names.
//
// Kernels declare shared memory by DYC_SHARED only, loops that wait for other threads call relax(), shuffles
// name all threads of a warp, and blocks that use them have whole warps. kBlock: threads of the blocks that
// the executor launches.
#pragma once
#include "cuda/abi/tuning.h"
#include "ops/kernel_args.h"

namespace dyc::cuda {

#ifdef DYC_EMULATION

constexpr uint32_t kWarp = emulation::kWarpThreads, kBlock = emulation::kBlockThreads;
#define DYC_UNROLL(n) static_assert((n) > 0);
constexpr uint32_t kMostPolls = 1 << 12;
// T name[n], shared by the block, uninitialised, aligned to 16 bytes.
#define DYC_SHARED(T, name, n)      \
  static const char name##_key = 0; \
  T* const name = static_cast<T*>(emulation::shared_memory(&name##_key, sizeof(T) * (n)))
template <class T>
DYC_INLINE T* dynamic_shared() {
  return static_cast<T*>(emulation::dynamic_shared_memory());
}

#else

constexpr uint32_t kWarp = 32, kBlock = 256;
// The loop that follows does n rounds at once.
#define DYC_UNROLL_TEXT(n) #n
constexpr uint32_t kMostPolls = 1u << 27;  // of a barrier: ten seconds and more
#define DYC_UNROLL(n) _Pragma(DYC_UNROLL_TEXT(unroll n))
#define DYC_SHARED(T, name, n) __shared__ __align__(16) T name[n]
template <class T>
DYC_INLINE T* dynamic_shared() {
  extern __shared__ float4 dyc_dynamic_shared[];  // aligned to 16 bytes
  return reinterpret_cast<T*>(dyc_dynamic_shared);
}

#endif

constexpr unsigned kAllLanes = 0xffffffffu;

DYC_INLINE void relax() { __nanosleep(kPollPause); }

// threadIdx.x, read where it is called: what follows from it takes no registers before.
DYC_INLINE uint32_t thread_now() {
#ifdef DYC_EMULATION
  return threadIdx.x;
#else
  uint32_t thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
#endif
}

DYC_INLINE uint32_t lane() { return threadIdx.x % kWarp; }

// The same in every lane, and added in the same order each time: lanes at distance kWarp / 2 first.
template <class T, class Join>
DYC_INLINE T warp_join(T a, Join join) {
  for (uint32_t d = kWarp / 2; d > 0; d /= 2) a = join(a, __shfl_xor_sync(kAllLanes, a, d));
  return a;
}
template <class T>
DYC_INLINE T warp_sum(T a) {
  return warp_join(a, [](T x, T y) { return x + y; });
}

// Copies of words from device to shared memory that go on while the thread does, on sm_80 and later; they are
// there when the thread has waited for them and its block has met.
template <class T>
DYC_INLINE void copy_async(T* to, const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
#ifdef DYC_EMULATION
  *to = *from;
  emulation::note_copy(to, sizeof(T));
#elif __CUDA_ARCH__ < 800
  *to = *from;
#else
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(__cvta_generic_to_global(from)), "n"(sizeof(T))
      : "memory");
#endif
}
DYC_INLINE void wait_for_copies() {
#ifdef DYC_EMULATION
  emulation::note_copies_ended();
#elif __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
// What the thread has begun to copy since it ended the group before is a group; others may be waited for
// alone.
DYC_INLINE void end_copy_group() {
#ifdef DYC_EMULATION
  emulation::note_copy_group();
#elif __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kLast>
DYC_INLINE void wait_for_copies_but() {
#ifdef DYC_EMULATION
  emulation::note_copies_ended(kLast);
#elif __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLast) : "memory");
#endif
}

// All threads of all blocks of a grid that runs together. `arrived`: a counter of device memory that is 0
// when the grid starts, and counts on. Where blocks do not come, `number` + 1 is written to `fault`, memory
// of the host, and the kernel ends with an error.
DYC_INLINE void wait_for_grid(uint32_t* arrived, uint32_t* fault, uint32_t number) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const uint32_t before = atomicAdd(arrived, 1u), turn = before / gridDim.x;
    for (uint32_t polls = 0; *static_cast<volatile uint32_t*>(arrived) / gridDim.x == turn; relax())
      if (++polls == kMostPolls) {
        if (fault) *static_cast<volatile uint32_t*>(fault) = number + 1;
        __threadfence_system();
        __trap();
      }
    __threadfence();
  }
  __syncthreads();
}

}  // namespace dyc::cuda
