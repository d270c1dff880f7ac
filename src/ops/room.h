// Scratch memory of one kernel call.
#pragma once
#include <stdlib.h>

#include <cstddef>
#include <new>

#include "ops/member.h"

namespace dyc {

// n elements of a plain type, uninitialised.
template <class T>
class Room {
 public:
  DYC_INLINE explicit Room(size_t n) : data_(static_cast<T*>(malloc(n ? n * sizeof(T) : 1))) {
    if (!data_) throw std::bad_alloc();
  }
  DYC_INLINE ~Room() { free(data_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  DYC_INLINE T* get() const { return data_; }
  DYC_INLINE T& operator[](size_t i) const { return data_[i]; }

 private:
  T* data_;
};

}  // namespace dyc
