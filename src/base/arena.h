// Growable float memory that never moves: address space is reserved once, pages are committed by
// touching them. Offsets (in floats) from base() stay valid while it grows; reset() keeps the pages.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace dyc {

class Arena {
 public:
  // `details`: what a message about a failed request says beyond the arena's own numbers.
  explicit Arena(const char* name, std::function<std::string()> details = {});
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  float* base() const { return base_; }
  int64_t top() const { return top_; }
  int64_t capacity() const { return capacity_; }
  // Offset of n fresh floats (not zeroed), aligned to `align` floats. Throws MemoryError.
  int64_t allocate(size_t n, size_t align = 1) {
    const int64_t start = (top_ + static_cast<int64_t>(align) - 1) & ~(static_cast<int64_t>(align) - 1);
    const int64_t end = start + static_cast<int64_t>(n);
    if (end > far_ || n > static_cast<size_t>(capacity_)) fail(n);
    top_ = end;
    if (align == 1) packed_ = end;
    return start;
  }
  // Behind it all is aligned: results of launches, and no inputs.
  int64_t packed_end() const { return packed_ < top_ ? packed_ : top_; }
  // The same from the end of the arena backwards: for what may never be written, so that what is written
  // stays close together.
  int64_t allocate_far(size_t n);
  int64_t far() const { return far_; }  // offset of the last of these
  // At most this many floats from now on.
  void limit(int64_t floats) { far_ = capacity_ = floats < capacity_ ? floats : capacity_; }
  // Back to an earlier top() and far().
  void reset(int64_t top, int64_t far) {
    top_ = top;
    packed_ = packed_end();
    far_ = far;
  }
  void reset() { reset(0, capacity_); }
  void swap_memory(Arena& other) {
    std::swap(base_, other.base_);
    std::swap(top_, other.top_);
    std::swap(far_, other.far_);
    std::swap(capacity_, other.capacity_);
    std::swap(reserved_, other.reserved_);
  }

 private:
  [[noreturn]] void fail(size_t n) const;
  const char* name_;
  std::function<std::string()> details_;
  float* base_ = nullptr;
  int64_t top_ = 0, packed_ = 0, far_ = 0, capacity_ = 0;
  size_t reserved_ = 0;  // bytes
};

// May the process map only so much memory? Then a second pair of arenas would have no room.
bool address_space_is_limited();

// "2.4 MB", for messages.
std::string bytes_text(double bytes);

}  // namespace dyc
