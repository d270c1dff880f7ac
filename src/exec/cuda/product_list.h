// Matrix products that are made together.
#pragma once
#include <vector>

#include "exec/cuda/product_launches.h"

namespace dyc {

struct ProductList {
  std::vector<cuda::Product> products;
  std::vector<cuda::Term> terms;
  // Of a single product whose weights may be kept: its result first, then what it reads.
  std::vector<MemoryRange> accesses;
  AddedColumns added;  // by a single product
  void begin(int64_t m, int64_t n, const cuda::Matrix<float>& c, cuda::Product::Begin how) {
    products.push_back({c, {}, how, static_cast<uint32_t>(terms.size()), 0, 0, m, n});
  }
  void add(const cuda::Matrix<const float>& a, const cuda::Matrix<const float>& b, int64_t inner) {
    terms.push_back({a, b, inner});
    ++products.back().terms;
  }
};

}  // namespace dyc
