#include "exec/cuda/matmul_dispatcher.h"

#include <limits>

#include "base/error.h"
#include "exec/cuda/persistent_weights.h"
#include "exec/cuda/product_parts.h"
#include "exec/cuda/tuning.h"

namespace dyc {

using cuda::MatmulVariant;
using cuda::Matrix;
using cuda::Product;
using cuda::ProductKind;
using cuda::Term;

namespace {

// A factor as it is stored.
struct FactorShape {
  int64_t rows, columns;
  bool transposed;  // the factor is the transpose of that
};

FactorShape shape_of_a(ProductKind kind, const Product& p, const Term& t) {
  if (kind == ProductKind::wdy) return {t.inner, p.m, true};
  return {p.m, t.inner, false};
}

FactorShape shape_of_b(ProductKind kind, const Product& p, const Term& t) {
  if (kind == ProductKind::dyx) return {p.n, t.inner, true};
  return {t.inner, p.n, false};
}

constexpr int64_t kLibraryMost = std::numeric_limits<int32_t>::max();  // the library counts in 32 bits

// Columns at a constant distance.
template <class F>
bool is_plain(const Matrix<F>& m, int64_t rows, int64_t columns) {
  return !m.index && (m.stride >= rows || columns == 1) && m.stride <= kLibraryMost;
}

cuda::ProductFacts facts_of(ProductKind kind, const Product& p, const Term* terms) {
  cuda::ProductFacts facts{p.m, p.n, 0, is_plain(p.c, p.m, p.n) && std::max(p.m, p.n) <= kLibraryMost};
  if (p.begin == Product::begin_at) facts.plain = facts.plain && (p.c.stride == p.m || p.n == 1);
  for (const Term* t = terms + p.first; t < terms + p.first + p.terms; ++t) {
    facts.inner += t->inner;
    facts.plain = facts.plain && t->inner > 0 && t->inner <= kLibraryMost;
    const FactorShape a = shape_of_a(kind, p, *t), b = shape_of_b(kind, p, *t);
    if (!is_plain(t->a, a.rows, a.columns)) facts.gathered += a.rows * a.columns;
    if (!is_plain(t->b, b.rows, b.columns)) facts.gathered += b.rows * b.columns;
  }
  return facts;
}

cuda::KernelId kernel_of(MatmulVariant variant, cuda::Precision precision, ProductKind kind) {
  constexpr cuda::KernelId kLarge[] = {cuda::kLargeProductWx, cuda::kTf32ProductWx, cuda::kBf16ProductWx};
  static_assert(std::size(kLarge) == cuda::kPrecisions);
  const cuda::KernelId first = variant == MatmulVariant::few     ? cuda::kFewColumnsWx
                               : variant == MatmulVariant::large ? kLarge[static_cast<size_t>(precision)]
                                                                 : cuda::kProductWx;
  return static_cast<cuda::KernelId>(first + static_cast<uint32_t>(kind));
}

bool has(const std::vector<MatmulVariant>& variants, MatmulVariant variant) {
  return std::find(variants.begin(), variants.end(), variant) != variants.end();
}

// One column that is not plain is as good as one that is.
int64_t stride_of(int64_t stride, int64_t rows) { return std::max(stride, rows); }

}  // namespace

bool MatmulDispatcher::may_be_kept(int64_t columns) const {
  return c_.commands.keeps_weights() && columns <= kKeepColumns;
}

std::vector<MatmulVariant> MatmulDispatcher::variants(const ProductList& list, ProductKind kind) {
  std::vector<cuda::ProductFacts> facts;
  for (const Product& p : list.products) facts.push_back(facts_of(kind, p, list.terms.data()));
  const DeviceOptions& options = c_.device.options;
  cuda::ProductDevice device{c_.device.backend().limits().processors, c_.device.threads(), options.cublas,
                             options.matmul_variant};
  std::vector<MatmulVariant> variants = matmul_variants(kind, facts, device);
  if (has(variants, MatmulVariant::library) && !c_.device.backend().has_gemm()) {
    device.has_gemm = false;
    variants = matmul_variants(kind, facts, device);
  }
  return variants;
}

void MatmulDispatcher::launch(const ProductList& list, ProductKind kind) {
  const std::vector<MatmulVariant> whole = variants(list, kind);
  ProductParts parts;
  if (!cut_products(c_, reducer_, kind, list, whole, parts)) return launch_as(whole, list, kind, {});
  launch_as(variants(parts.list, kind), parts.list, kind, parts.partial);
  reducer_.launch(parts.sums);
}

void MatmulDispatcher::launch_as(std::vector<MatmulVariant> variants, const ProductList& list,
                                 ProductKind kind, const std::vector<bool>& partial) {
  for (size_t i = 0; i < variants.size(); ++i)
    if (variants[i] == MatmulVariant::library && !call_library(list.products[i], list.terms.data(), kind))
      variants[i] = MatmulVariant::large;
  bool needs_grid_sync = c_.needs_grid_sync;
  for (const MatmulVariant variant : {MatmulVariant::few, MatmulVariant::middle, MatmulVariant::large}) {
    if (!has(variants, variant)) continue;
    std::vector<Product> products;
    std::vector<bool> partial_here;
    for (size_t i = 0; i < variants.size(); ++i) {
      if (variants[i] != variant) continue;
      products.push_back(list.products[i]);
      if (!partial.empty()) partial_here.push_back(partial[i]);
    }
    uint32_t tiles = 0;
    for (Product& p : products) {
      p.tile = tiles;
      tiles += static_cast<uint32_t>(tiles_of(variant, {p.m, p.n, 0, false}, c_.device.threads()));
    }
    if (tiles == 0) continue;
    const cuda::KernelId kernel = kernel_of(variant, c_.device.options.precision, kind);
    c_.commands.launch_products({CudaDevice::kernel_id(kernel), variant, std::move(products), list.terms,
                                 tiles, list.added, std::move(partial_here)},
                                needs_grid_sync);
    needs_grid_sync = false;  // what it reads was there before the first
  }
}

void MatmulDispatcher::launch_in_order(const ProductList& list, ProductKind kind) {
  for (Product p : list.products) {
    ProductList one;
    one.terms.assign(list.terms.begin() + p.first, list.terms.begin() + p.first + p.terms);
    p.first = 0;
    one.products.push_back(p);
    launch(one, kind);
  }
}

void MatmulDispatcher::launch_one(const ProductList& list, ProductKind kind, bool of_parameters) {
  const size_t before = c_.commands.size();
  launch(list, kind);
  const Product& p = list.products[0];
  if (of_parameters && may_be_kept(p.n) && c_.commands.size() == before + 1)
    c_.commands.note_product(kind == ProductKind::wx, p, list.terms, list.accesses);
}

// False where the device has no memory for copies of operands: nothing that counts has been launched then.
bool MatmulDispatcher::call_library(const Product& p, const Term* terms, ProductKind kind) {
  const auto factor = [&](const Matrix<const float>& m, const FactorShape& s) -> cuda::Gemm::Factor {
    const bool plain = is_plain(m, s.rows, s.columns);
    const Matrix<const float> stored = plain ? m : encoder_.gathered_columns(m, s.rows, s.columns);
    return {reinterpret_cast<uint64_t>(stored.base), stride_of(stored.stride, s.rows), s.transposed};
  };
  std::vector<cuda::Gemm> calls;
  bool add = p.begin != Product::zero;
  try {
    for (const Term* t = terms + p.first; t < terms + p.first + p.terms; ++t) {
      const cuda::Gemm::Factor a = factor(t->a, shape_of_a(kind, p, *t)),
                               b = factor(t->b, shape_of_b(kind, p, *t));
      const auto c = reinterpret_cast<uint64_t>(p.c.base);
      calls.push_back(
          {a, b, c, stride_of(p.c.stride, p.m), p.m, p.n, t->inner, add, c_.device.options.precision});
      add = true;
    }
  } catch (const MemoryError&) {
    return false;
  }
  if (p.begin == Product::begin_at) encoder_.gather_columns(p.c.base, p.start, p.m, p.n);
  for (const cuda::Gemm& call : calls) c_.commands.gemm(call);
  c_.device.backend().counters.products[static_cast<size_t>(MatmulVariant::library)] += calls.size();
  return true;
}

}  // namespace dyc
