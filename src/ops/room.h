// Scratch memory of one kernel call.
#pragma once
#include <cstddef>

#include "ops/member.h"

namespace dyc {

// Defined once (room.cc): kernel headers call no inline function of the library (cpu/simd.h).
void* take_room(size_t bytes);  // throws std::bad_alloc
void give_room(void* room) noexcept;

// n elements of a plain type, uninitialised.
template <class T>
class Room {
 public:
  DYC_INLINE explicit Room(size_t n) : data_(static_cast<T*>(take_room(n * sizeof(T)))) {}
  DYC_INLINE ~Room() { give_room(data_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  DYC_INLINE T* get() const { return data_; }
  DYC_INLINE T& operator[](size_t i) const { return data_[i]; }

 private:
  T* data_;
};

}  // namespace dyc
