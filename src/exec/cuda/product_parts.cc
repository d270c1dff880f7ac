#include "exec/cuda/product_parts.h"

#include <algorithm>

#include "exec/cuda/cuda_device.h"
#include "exec/cuda/tuning.h"

namespace dyc {

using cuda::MatmulVariant;
using cuda::Matrix;
using cuda::Product;
using cuda::ProductKind;
using cuda::Term;

namespace {

// The factor from inner index k on.
Matrix<const float> factor_from(const Matrix<const float>& m, int64_t k, bool by_columns) {
  if (!by_columns) return {m.base + k, m.index, m.stride};
  if (m.index) return {m.base, m.index + k, m.stride};
  return {m.base + k * m.stride, nullptr, m.stride};
}

Term part_of(ProductKind kind, const Term& t, int64_t k, int64_t length) {
  return {factor_from(t.a, k, kind != ProductKind::wdy), factor_from(t.b, k, kind == ProductKind::dyx),
          std::min(length, t.inner - k)};
}

bool may_be_cut(const Product& p, MatmulVariant variant) {
  return variant != MatmulVariant::library && !p.c.index && (p.c.stride == p.m || p.n == 1);
}

// Inner indices of a part. Gradients of weights have few tiles, and share out what there is of all of them;
// the length of other parts is always the same, so that results do not depend on what else is computed.
int64_t part_length(CudaContext& c, ProductKind kind, const ProductList& list) {
  if (kind != ProductKind::dyx) return kMostPart;
  const auto& limits = c.device.backend().limits();
  int64_t work = 0;
  for (const Product& p : list.products) {
    const int64_t tiles = tiles_of(MatmulVariant::middle, {p.m, p.n, 0, false}, c.device.threads());
    for (uint32_t t = p.first; t < p.first + p.terms; ++t) work += tiles * list.terms[t].inner;
  }
  return std::clamp<int64_t>(work / (kPartsPerProcessor * limits.processors), kLeastPart, kMostPart);
}

// Parts of a term: as many as its length says, and as scratch memory allows.
int64_t parts_of(const Product& p, const Term& t, int64_t length) {
  const auto most = static_cast<int64_t>(kNodeScratch / sizeof(float)) / std::max<int64_t>(p.m * p.n, 1);
  return std::clamp<int64_t>(t.inner / length, 1, 1 + most / p.terms);
}

void cut(CudaContext& c, const GradientReducer& reducer, ProductKind kind, const Product& p,
         const std::vector<Term>& terms, int64_t length, ProductParts& to) {
  std::vector<Term> rest;
  to.list.products.push_back(p);
  to.list.products.back().first = static_cast<uint32_t>(to.list.terms.size());
  for (uint32_t k = p.first; k < p.first + p.terms; ++k) {
    const Term& t = terms[k];
    const int64_t parts = parts_of(p, t, length);
    const int64_t each = ((t.inner + parts - 1) / parts + kPartStep - 1) / kPartStep * kPartStep;
    to.list.terms.push_back(part_of(kind, t, 0, each));
    for (int64_t at = each; at < t.inner; at += each) rest.push_back(part_of(kind, t, at, each));
  }
  if (rest.empty()) return;
  const int64_t size = p.m * p.n;
  auto* scratch =
      static_cast<float*>(c.commands.uninitialised(rest.size() * static_cast<size_t>(size) * sizeof(float)));
  to.sums.begin(reducer.offset_of(p.c.base), size);
  for (const Term& t : rest) {
    to.list.begin(p.m, p.n, {scratch, nullptr, p.m}, Product::zero);
    to.list.add(t.a, t.b, t.inner);
    to.sums.sources.push_back(reducer.offset_of(scratch));
    scratch += size;
  }
}

}  // namespace

bool cut_products(CudaContext& context, const GradientReducer& reducer, ProductKind kind,
                  const ProductList& list, const std::vector<MatmulVariant>& variants, ProductParts& parts) {
  if (std::none_of(list.terms.begin(), list.terms.end(),
                   [](const Term& t) { return t.inner >= 2 * kLeastPart; }))
    return false;
  const int64_t length = part_length(context, kind, list);
  for (size_t i = 0; i < list.products.size(); ++i) {
    const int64_t own = may_be_cut(list.products[i], variants[i]) ? length : INT64_MAX;
    cut(context, reducer, kind, list.products[i], list.terms, own, parts);
  }
  return !parts.sums.targets.empty();
}

}  // namespace dyc
