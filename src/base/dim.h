// Tensor shapes: up to 7 dimensions plus a batch size. Memory is column-major, batch slowest.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>

namespace dyc {

constexpr int kMaxDims = 7;

struct Dim {
  uint32_t d[kMaxDims] = {};
  uint32_t nd = 0;
  uint32_t bd = 1;

  Dim() = default;
  Dim(std::initializer_list<uint32_t> sizes, uint32_t batch = 1) : bd(batch) {
    for (uint32_t s : sizes) d[nd++] = s;
  }
  // Extents beyond nd count as 1.
  __attribute__((always_inline)) uint32_t operator[](uint32_t i) const { return i < nd ? d[i] : 1; }
  __attribute__((always_inline)) uint32_t rows() const { return (*this)[0]; }
  __attribute__((always_inline)) uint32_t cols() const { return (*this)[1]; }
  __attribute__((always_inline)) size_t batch_size() const {  // elements of one batch item
    size_t n = 1;
    for (uint32_t i = 0; i < nd; ++i) n *= d[i];
    return n;
  }
  __attribute__((always_inline)) size_t size() const { return batch_size() * bd; }
  // Same sizes apart from trailing ones; batch not compared.
  bool same_sizes_padded(const Dim& o) const {
    for (uint32_t i = 0; i < (nd > o.nd ? nd : o.nd); ++i)
      if ((*this)[i] != o[i]) return false;
    return true;
  }
  bool same_sizes(const Dim& o) const { return nd == o.nd && same_sizes_padded(o); }
  // {n}, {n,1}, {n,1,1} ...
  __attribute__((always_inline)) bool column_like() const {
    for (uint32_t i = 1; i < nd; ++i)
      if (d[i] != 1) return false;
    return true;
  }
  void drop_trailing_ones() {
    while (nd > 1 && d[nd - 1] == 1) --nd;
  }
  bool operator==(const Dim& o) const { return bd == o.bd && same_sizes(o); }
  std::string str() const;  // {3,4}xB
};

std::ostream& operator<<(std::ostream& out, const Dim& dim);

}  // namespace dyc
