// Lists of matrix products become launches: which variant makes each product (cuda/driver/matmul_variants.h),
// its tiles, and calls of NVIDIA's library.
#pragma once
#include <vector>

#include "cuda/abi/products.h"
#include "cuda/driver/matmul_variants.h"
#include "exec/cuda/gradient_reducer.h"
#include "exec/cuda/launch_encoder.h"
#include "exec/cuda/product_list.h"

namespace dyc {

class MatmulDispatcher {
 public:
  MatmulDispatcher(CudaContext& context, LaunchEncoder& encoder, GradientReducer& reducer)
      : c_(context), encoder_(encoder), reducer_(reducer) {}

  // Products of a list must not add to the same memory. Those of one variant are one launch, but each call of
  // the library is one of its own. Those with a long inner index are made in parts (product_parts.h).
  void launch(const ProductList& list, cuda::ProductKind kind);
  // The same where some may add to the same memory: one after the other.
  void launch_in_order(const ProductList& list, cuda::ProductKind kind);
  // One product, of parameters or of weights that were computed.
  void launch_one(const ProductList& list, cuda::ProductKind kind, bool of_parameters);
  // May the weights of a product with so many columns be kept in shared memory?
  bool may_be_kept(int64_t columns) const;

 private:
  std::vector<cuda::MatmulVariant> variants(const ProductList& list, cuda::ProductKind kind);
  void launch_as(std::vector<cuda::MatmulVariant> variants, const ProductList& list, cuda::ProductKind kind,
                 const std::vector<bool>& partial);
  bool call_library(const cuda::Product& p, const cuda::Term* terms, cuda::ProductKind kind);

  CudaContext& c_;
  LaunchEncoder& encoder_;
  GradientReducer& reducer_;
};

}  // namespace dyc
