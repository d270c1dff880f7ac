// Scratch memory of one kernel call. Rows that take it say by room(m) how many bytes they take at most: a
// device has them ready.
#pragma once
#include <cstddef>

#include "ops/member.h"

namespace dyc {

// Defined once (room.cc): kernel headers call no inline function of the library (cpu/simd.h).
void* take_room(size_t bytes);  // throws std::bad_alloc
void give_room(void* room) noexcept;

// What Room<T>(n) takes on a device.
template <class T>
DYC_INLINE size_t room_for(size_t n) {
  return (n * sizeof(T) + 15) / 16 * 16;
}

// n elements of a plain type, uninitialised. Given back in the opposite order.
template <class T>
class Room {
 public:
  DYC_INLINE explicit Room(size_t n) : data_(static_cast<T*>(take_room(room_for<T>(n)))) {}
  DYC_INLINE ~Room() { give_room(data_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  DYC_INLINE T* get() const { return data_; }
  DYC_INLINE T& operator[](size_t i) const { return data_[i]; }

 private:
  T* data_;
};

}  // namespace dyc
