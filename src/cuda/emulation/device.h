// CUDA's built-in names for g++, and the namespace that kernel text is moved to. The first include of a
// file with kernels, before their text.
#pragma once
#include <math.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "cuda/emulation/emulation.h"

#define dyc dyc_emulated
#define DYC_EMULATION

#define __global__ inline
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

static emulation::Index3& threadIdx = emulation::thread_index;
static emulation::Index3& blockIdx = emulation::block_index;
static emulation::Index3& blockDim = emulation::block_extent;
static emulation::Index3& gridDim = emulation::grid_extent;

inline void __syncthreads() { emulation::wait_for_block(); }
inline void __syncwarp(unsigned = ~0u) { emulation::wait_for_warp(); }
inline void __threadfence() { emulation::fence(); }
inline void __threadfence_system() {}
inline void __trap() { emulation::trap(); }
inline void __nanosleep(unsigned) { emulation::pause(); }

// Masks name all threads of a warp.
template <class T>
inline T __shfl_sync(unsigned, T value, int lane) {
  static_assert(sizeof(T) <= 8);
  T other;
  emulation::exchange(&value, &other, sizeof(T), static_cast<uint32_t>(lane));
  return other;
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % emulation::kWarpThreads) ^ lanes);
}

// One thread runs at a time. Atomics are no accesses that may race.
#ifdef DYC_RACES
#define DYC_ATOMIC __attribute__((noinline, no_sanitize("thread")))
#else
#define DYC_ATOMIC inline
#endif
template <class T, class U>
DYC_ATOMIC T atomicAdd(T* to, U value) {
  emulation::note_atomic(to);
  const T before = *to;
  *to = static_cast<T>(before + value);
  return before;
}

namespace emulation {

template <auto kernel, class... A, size_t... i>
inline void call(void (*)(A...), void** args, std::index_sequence<i...>) {
  kernel(*static_cast<std::remove_reference_t<A>*>(args[i])...);
}
// Runs `kernel` for one thread.
template <auto kernel>
void run(void** args) {
  []<class... A>(void (*type)(A...), void** a) { call<kernel>(type, a, std::index_sequence_for<A...>{}); }(
      kernel, args);
}

}  // namespace emulation
