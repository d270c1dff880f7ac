// A vector of plain data that is written where it ends: extend() gives room for new items without filling it,
// and nothing counts them until advance(). std::vector fills new items with zeros, or copies them from
// elsewhere, which takes longer than all else that appending a node does (benchmarks/record.py).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

namespace dyc {

template <class T>
class Pool {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit Pool(size_t capacity) { grow(capacity); }

  size_t size() const { return size_; }
  T* data() { return items_.get(); }
  const T* data() const { return items_.get(); }
  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }
  // Room for n more items, at the end.
  T* extend(size_t n) {
    if (capacity_ - size_ < n) [[unlikely]]
      grow(size_ + n);
    return items_.get() + size_;
  }
  void advance(size_t n) { size_ += n; }
  void push_back(const T& item) {
    *extend(1) = item;
    ++size_;
  }
  void append(const T* items, size_t n) {
    std::copy_n(items, n, extend(n));
    size_ += n;
  }
  // Drops all but the first n.
  void truncate(size_t n) { size_ = n; }
  void swap(Pool& other) {
    items_.swap(other.items_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

 private:
  [[gnu::cold, gnu::noinline]] void grow(size_t least) {
    const size_t capacity = std::max(least, 2 * capacity_);
    std::unique_ptr<T[]> items(new T[capacity]);
    std::copy_n(items_.get(), size_, items.get());
    items_ = std::move(items);
    capacity_ = capacity;
  }

  std::unique_ptr<T[]> items_;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace dyc
