// The rule of cuda/driver/matmul_variants.h as a C function for ctypes. `facts`: m, n, inner, plain and gathered of
// each product; writes the variant of each.
#include "cuda/driver/matmul_variants.h"

extern "C" __attribute__((visibility("default"))) void choose(int kind, const int64_t* facts, int count,
                                                              uint32_t processors, uint32_t threads,
                                                              int library, int* variants) {
  using namespace dyc::cuda;
  std::vector<ProductFacts> list;
  for (const int64_t* f = facts; f < facts + 5 * count; f += 5)
    list.push_back({f[0], f[1], f[2], f[3] != 0, f[4]});
  const ProductDevice device{processors, threads, library != 0};
  for (const MatmulVariant v : matmul_variants(static_cast<ProductKind>(kind), list, device))
    *variants++ = static_cast<int>(v);
}
