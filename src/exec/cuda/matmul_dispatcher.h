// Lists of matrix products become launches: which variant makes each product (cuda/driver/matmul_variants.h),
// its tiles, and calls of NVIDIA's library.
#pragma once
#include <vector>

#include "cuda/abi/products.h"
#include "cuda/driver/matmul_variants.h"
#include "exec/cuda/launch_encoder.h"

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

class MatmulDispatcher {
 public:
  MatmulDispatcher(CudaContext& context, LaunchEncoder& encoder) : c_(context), encoder_(encoder) {}

  // Products of a list must not add to the same memory. Those of one variant are one launch, but each call of
  // the library is one of its own.
  void launch(const ProductList& list, cuda::ProductKind kind);
  // The same where some may add to the same memory: one after the other.
  void launch_in_order(const ProductList& list, cuda::ProductKind kind);
  // One product, of parameters or of weights that were computed.
  void launch_one(const ProductList& list, cuda::ProductKind kind, bool of_parameters);
  // May the weights of a product with so many columns be kept in shared memory?
  bool may_be_kept(int64_t columns) const;

 private:
  bool call_library(const cuda::Product& p, const cuda::Term* terms, cuda::ProductKind kind);

  CudaContext& c_;
  LaunchEncoder& encoder_;
};

}  // namespace dyc
