#include "cuda/driver/matmul_variants.h"

#include <algorithm>

#include "cuda/abi/products.h"
#include "cuda/driver/tuning.h"

namespace dyc::cuda {

namespace {

int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t operations(const ProductFacts& p) { return 2 * p.m * p.n * p.inner; }

bool has_few_columns(ProductKind kind, const ProductFacts& p) {
  return kind != ProductKind::dyx && p.n <= kMostFewColumns;
}

// Each product is one call of cuBLAS.
bool fits_library(const ProductFacts& p) {
  using tuning::kLeastSide, tuning::kLeastOperations, tuning::kOperationsPerFloat;
  return p.plain && std::min({p.m, p.n, p.inner}) >= kLeastSide && operations(p) >= kLeastOperations &&
         operations(p) / kOperationsPerFloat >= p.gathered;
}

// Waves of the multiprocessors over the tiles of all products, times what a tile costs. Where there are
// fewer large tiles than multiprocessors, others wait.
bool large_is_faster(const std::vector<ProductFacts>& list, const ProductDevice& device) {
  int64_t middle = 0, large = 0;
  for (const ProductFacts& p : list) {
    if (p.inner < tuning::kLeastInner) return false;
    middle += tiles_of(MatmulVariant::middle, p, device.threads);
    large += tiles_of(MatmulVariant::large, p, device.threads);
  }
  return tuning::kLargeTileCost * over(large, device.processors) < over(middle, device.processors);
}

bool can(MatmulVariant variant, ProductKind kind, const ProductFacts& p, const ProductDevice& device) {
  if (variant == MatmulVariant::few) return has_few_columns(kind, p);
  if (variant == MatmulVariant::library) return device.has_gemm && p.plain && operations(p) > 0;
  return true;
}

}  // namespace

int64_t tiles_of(MatmulVariant variant, const ProductFacts& p, uint32_t threads) {
  if (variant == MatmulVariant::few) return over(p.m, kFewRows) * over(p.n, kFewColumns);
  if (variant == MatmulVariant::large)
    return over(p.m, large_rows(threads)) * over(p.n, large_columns(threads));
  return over(p.m, kTile) * over(p.n, kTile);
}

std::vector<MatmulVariant> matmul_variants(ProductKind kind, std::span<const ProductFacts> list,
                                           const ProductDevice& device) {
  std::vector<MatmulVariant> variants(list.size(), MatmulVariant::middle);
  std::vector<ProductFacts> rest;
  const auto forced = static_cast<MatmulVariant>(device.forced);
  for (size_t i = 0; i < list.size(); ++i) {
    const ProductFacts& p = list[i];
    if (device.forced >= 0 && can(forced, kind, p, device)) variants[i] = forced;
    else if (has_few_columns(kind, p)) variants[i] = MatmulVariant::few;
    else if (device.has_gemm && fits_library(p)) variants[i] = MatmulVariant::library;
    else rest.push_back(p);
  }
  if (device.forced < 0 && large_is_faster(rest, device))
    std::replace(variants.begin(), variants.end(), MatmulVariant::middle, MatmulVariant::large);
  return variants;
}

}  // namespace dyc::cuda
