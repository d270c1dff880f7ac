// The memory of the emulated device: checks that copies and products stay inside of allocations, and that no
// kernel has written behind one.
#pragma once
#include <exception>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "cuda/driver/backend.h"

namespace dyc::cuda {

class DeviceHeap {
 public:
  explicit DeviceHeap(size_t capacity) : capacity_(capacity) {}
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  Backend::Address allocate(size_t bytes);  // filled with NaN
  // Other threads' graphs end while this one's launches run.
  void release(Backend::Address memory) noexcept;
  // Memory that somebody else has allocated, until disown().
  void adopt(Backend::Address memory, size_t bytes);
  void disown(Backend::Address memory) noexcept;
  // Where these bytes are; `what`, for an error, is done with them.
  void* at(Backend::Address start, size_t bytes, const char* what) const;
  void check_margins() const;

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::map<Backend::Address, size_t> sizes_;
  std::set<Backend::Address> adopted_;
  size_t in_use_ = 0;
};

}  // namespace dyc::cuda
