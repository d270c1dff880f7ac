#include "cuda/emulation/heap.h"

#include <cstdlib>
#include <cstring>

namespace dyc::cuda {

namespace {

constexpr unsigned char kUntouched = 0xa5;  // in the margin behind an allocation, which nobody may write
constexpr unsigned char kFresh = 0xff;      // NaN, in memory that nobody has written
// With the address sanitizer nothing is stored behind an allocation: it then reports the very access.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kMargin = 0;
#else
constexpr size_t kMargin = 64;
#endif

}  // namespace

DeviceHeap::~DeviceHeap() {
  for (auto& [at, bytes] : sizes_)
    if (!adopted_.contains(at)) std::free(reinterpret_cast<void*>(at));
}

Backend::Address DeviceHeap::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  void* at = nullptr;
  if (bytes <= capacity_ - in_use_) at = std::malloc(bytes + kMargin);
  if (!at)
    throw MemoryError(
        text("the device has no ", bytes, " bytes left: ", in_use_, " of ", capacity_, " are in use"));
  std::memset(at, kFresh, bytes);
  std::memset(static_cast<char*>(at) + bytes, kUntouched, kMargin);
  in_use_ += bytes;
  sizes_.emplace(reinterpret_cast<Backend::Address>(at), bytes);
  return reinterpret_cast<Backend::Address>(at);
}

void DeviceHeap::release(Backend::Address memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = sizes_.find(memory);
  if (found == sizes_.end()) return;
  in_use_ -= found->second;
  std::free(reinterpret_cast<void*>(memory));
  sizes_.erase(found);
}

void DeviceHeap::adopt(Backend::Address memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::memset(reinterpret_cast<void*>(memory), kFresh, bytes);
  sizes_.emplace(memory, bytes);
  adopted_.insert(memory);
}

void DeviceHeap::disown(Backend::Address memory) noexcept {
  const std::lock_guard lock(mutex_);
  if (adopted_.erase(memory)) sizes_.erase(memory);
}

void* DeviceHeap::at(Backend::Address start, size_t bytes, const char* what) const {
  const std::lock_guard lock(mutex_);
  auto found = sizes_.upper_bound(start);
  if (bytes == 0) return reinterpret_cast<void*>(start);
  if (found != sizes_.begin() && (--found)->first + found->second >= start + bytes)
    return reinterpret_cast<void*>(start);
  throw RuntimeError(text("cannot ", what, " ", bytes, " bytes that are no device memory"));
}

void DeviceHeap::check_margins() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [start, bytes] : sizes_) {
    if (adopted_.contains(start)) continue;
    const auto* end = reinterpret_cast<const unsigned char*>(start) + bytes;
    for (size_t i = 0; i < kMargin; ++i)
      if (end[i] != kUntouched)
        throw RuntimeError(text("wrote ", i, " bytes behind device memory of ", bytes, " bytes"));
  }
}

}  // namespace dyc::cuda
