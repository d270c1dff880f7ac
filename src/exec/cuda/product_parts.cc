#include "exec/cuda/product_parts.h"

#include <algorithm>

#include "base/error.h"
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

// Inner indices of each part of a term, at most `parts` of them.
int64_t length_of(const Term& t, int64_t length, int64_t parts) {
  parts = std::clamp<int64_t>(t.inner / length, 1, parts);
  return std::max(((t.inner + parts - 1) / parts + kPartStep - 1) / kPartStep * kPartStep, kPartStep);
}

int64_t parts_of(const Term& t, int64_t length) {
  return std::max<int64_t>((t.inner + length - 1) / length, 1);
}

// Parts of a term, at most, so that scratch memory for all but the first of each holds the whole list.
int64_t most_parts(const ProductList& list, const std::vector<MatmulVariant>& variants, int64_t length) {
  int64_t floats = 0;
  for (size_t i = 0; i < list.products.size(); ++i) {
    const Product& p = list.products[i];
    for (uint32_t k = p.first; may_be_cut(p, variants[i]) && k < p.first + p.terms; ++k)
      if (list.terms[k].inner >= 2 * length) floats += p.m * p.n;
  }
  return 1 + static_cast<int64_t>(kNodeScratch / sizeof(float)) / std::max<int64_t>(floats, 1);
}

// lengths: of the parts of each term. Takes what scratch memory it needs.
void cut(const GradientReducer& reducer, ProductKind kind, const Product& p, const std::vector<Term>& terms,
         const std::vector<int64_t>& lengths, float*& scratch, ProductParts& to) {
  std::vector<Term> rest;
  to.list.products.push_back(p);
  to.list.products.back().first = static_cast<uint32_t>(to.list.terms.size());
  for (uint32_t k = p.first; k < p.first + p.terms; ++k) {
    to.list.terms.push_back(part_of(kind, terms[k], 0, lengths[k]));
    for (int64_t part = 1; part < parts_of(terms[k], lengths[k]); ++part)
      rest.push_back(part_of(kind, terms[k], part * lengths[k], lengths[k]));
  }
  to.partial.push_back(!rest.empty());
  if (rest.empty()) return;
  const int64_t size = p.m * p.n;
  to.sums.begin(reducer.offset_of(p.c.base), size);
  for (const Term& t : rest) {
    to.list.begin(p.m, p.n, {scratch, nullptr, p.m}, Product::zero);
    to.list.add(t.a, t.b, t.inner);
    to.partial.push_back(true);
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
  const int64_t length = part_length(context, kind, list), most = most_parts(list, variants, length);
  std::vector<int64_t> lengths;
  for (const Term& t : list.terms) lengths.push_back(std::max<int64_t>(t.inner, 1));
  int64_t floats = 0;
  for (size_t i = 0; i < list.products.size(); ++i) {
    const Product& p = list.products[i];
    for (uint32_t k = p.first; may_be_cut(p, variants[i]) && k < p.first + p.terms; ++k) {
      lengths[k] = length_of(list.terms[k], length, most);
      floats += (parts_of(list.terms[k], lengths[k]) - 1) * p.m * p.n;
    }
  }
  if (floats == 0) return false;
  float* scratch;
  try {
    scratch =
        static_cast<float*>(context.commands.uninitialised(static_cast<size_t>(floats) * sizeof(float)));
  } catch (const MemoryError&) {
    return false;
  }
  for (size_t i = 0; i < list.products.size(); ++i)
    cut(reducer, kind, list.products[i], list.terms, lengths, scratch, parts);
  return true;
}

}  // namespace dyc
