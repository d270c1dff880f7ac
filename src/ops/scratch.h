// Scratch memory of one kernel call. An op that takes any defines scratch(m), an upper bound in bytes, which
// a device allocates beforehand.
#pragma once
#include <cstddef>

#include "ops/kernel_args.h"

namespace dyc {

// Defined once (scratch.cc): kernel headers call no inline function of the library (cpu/simd.h).
void* take_scratch(size_t bytes);  // throws std::bad_alloc
void give_scratch(void* memory) noexcept;

// What ScratchArray<T>(n) takes on a device.
template <class T>
DYC_INLINE size_t scratch_bytes(size_t n) {
  return (n * sizeof(T) + 15) / 16 * 16;
}

// n elements of a plain type, uninitialised. Given back in the opposite order.
template <class T>
class ScratchArray {
 public:
  DYC_INLINE explicit ScratchArray(size_t n) : data_(static_cast<T*>(take_scratch(scratch_bytes<T>(n)))) {}
  DYC_INLINE ~ScratchArray() { give_scratch(data_); }
  ScratchArray(const ScratchArray&) = delete;
  ScratchArray& operator=(const ScratchArray&) = delete;
  DYC_INLINE T* get() const { return data_; }
  DYC_INLINE T& operator[](size_t i) const { return data_[i]; }

 private:
  T* data_;
};

}  // namespace dyc
