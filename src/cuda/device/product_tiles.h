// What the kernels for products have in common. For kernels only.
#pragma once
#include "cuda/abi/launch_args.h"
#include "cuda/abi/products.h"
#include "cuda/device/grid.h"

namespace dyc::cuda {

// Four floats that move at once.
struct alignas(16) Four {
  float at[4];
};
DYC_INLINE bool aligned(const float* p) { return reinterpret_cast<uint64_t>(p) % sizeof(Four) == 0; }
DYC_INLINE Four four(const float* p) { return *reinterpret_cast<const Four*>(p); }  // aligned

template <class F>
DYC_INLINE F* column(const Matrix<F>& m, int64_t j) {
  return m.base + (m.index ? m.index[j] : j * m.stride);
}

// The product that a tile belongs to.
DYC_INLINE const Product& product_of(const Products& all, uint32_t tile) {
  uint32_t low = 0, high = all.count;  // products[low].tile <= tile < products[high].tile
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (all.products[middle].tile <= tile) low = middle;
    else high = middle;
  }
  return all.products[low];
}

// What element i of column j of C becomes, where terms add up to `sum`; c is that column.
DYC_INLINE float result_of(const Product& p, const float* c, int64_t i, int64_t j, float sum) {
  if (p.begin == Product::zero) return sum;
  return (p.begin == Product::add ? c[i] : column(p.start, j)[i]) + sum;
}

}  // namespace dyc::cuda
