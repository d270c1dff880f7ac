// Products with a long inner index, cut into parts that are made side by side and then added up: sums of many
// terms are more exact so, and a product with few tiles has work for the whole device.
#pragma once
#include "exec/cuda/gradient_reducer.h"
#include "exec/cuda/product_list.h"

namespace dyc {

struct ProductParts {
  ProductList list;           // the first part of a product makes C, the others are in scratch memory
  SegmentList sums;           // adds these
  std::vector<bool> partial;  // of each product of the list: is it such a part?
};

// False: none is to be cut, or there is no memory for it. variants: of the list; calls of the library stay
// whole.
bool cut_products(CudaContext& context, const GradientReducer& reducer, cuda::ProductKind kind,
                  const ProductList& list, const std::vector<cuda::MatmulVariant>& variants,
                  ProductParts& parts);

}  // namespace dyc
