// Lists of matrix products: which way each is made, and its launches.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "exec/cuda/cuda_executor.h"

namespace dyc {

using cuda::MatmulVariant;
using cuda::Matrix;
using cuda::Product;
using cuda::ProductKind;
using cuda::Term;

namespace {

// A factor as it lies in memory.
struct FactorShape {
  int64_t rows, columns;
  bool turned;  // the factor is the transpose of that
};

FactorShape shape_of_a(ProductKind kind, const Product& p, const Term& t) {
  if (kind == ProductKind::wdy) return {t.inner, p.m, true};
  return {p.m, t.inner, false};
}

FactorShape shape_of_b(ProductKind kind, const Product& p, const Term& t) {
  if (kind == ProductKind::dyx) return {p.n, t.inner, true};
  return {t.inner, p.n, false};
}

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // that the library can count

// Columns next to each other, or so far apart each.
template <class F>
bool is_plain(const Matrix<F>& m, int64_t rows, int64_t columns) {
  return !m.index && (m.stride >= rows || columns == 1) && m.stride <= kMost;
}

cuda::ProductFacts facts_of(ProductKind kind, const Product& p, const Term* terms) {
  cuda::ProductFacts facts{p.m, p.n, 0, is_plain(p.c, p.m, p.n) && std::max(p.m, p.n) <= kMost};
  if (p.begin == Product::begin_at) facts.plain = facts.plain && (p.c.stride == p.m || p.n == 1);
  for (const Term* t = terms + p.first; t < terms + p.first + p.terms; ++t) {
    facts.inner += t->inner;
    facts.plain = facts.plain && t->inner > 0 && t->inner <= kMost;
    const FactorShape a = shape_of_a(kind, p, *t), b = shape_of_b(kind, p, *t);
    if (!is_plain(t->a, a.rows, a.columns)) facts.gathered += a.rows * a.columns;
    if (!is_plain(t->b, b.rows, b.columns)) facts.gathered += b.rows * b.columns;
  }
  return facts;
}

cuda::KernelId kernel_of(MatmulVariant variant, ProductKind kind) {
  const cuda::KernelId first = variant == MatmulVariant::few     ? cuda::kFewColumnsWx
                               : variant == MatmulVariant::large ? cuda::kLargeProductWx
                                                                 : cuda::kProductWx;
  return static_cast<cuda::KernelId>(first + static_cast<uint32_t>(kind));
}

// One column that is not plain is as good as one that is.
int64_t stride_of(int64_t stride, int64_t rows) { return std::max(stride, rows); }

}  // namespace

void CudaExecutor::ProductList::begin(int64_t m, int64_t n, const Matrix<float>& c, Product::Begin how) {
  products.push_back({c, {}, how, static_cast<uint32_t>(terms.size()), 0, 0, m, n});
}

void CudaExecutor::ProductList::add(const Matrix<const float>& a, const Matrix<const float>& b,
                                    int64_t inner) {
  terms.push_back({a, b, inner});
  ++products.back().terms;
}

// Products of a list must not add to the same memory. Those that go the same way are one launch, but each
// call of the library is one of its own.
void CudaExecutor::launch_products(const ProductList& list, ProductKind kind) {
  std::vector<cuda::ProductFacts> facts;
  for (const Product& p : list.products) facts.push_back(facts_of(kind, p, list.terms.data()));
  const cuda::Limits& limits = device_.backend().limits();
  cuda::ProductDevice device{limits.processors, device_.threads(), library};
  std::vector<MatmulVariant> variants = matmul_variants(kind, facts, device);
  const auto goes = [&](MatmulVariant variant) {
    return std::find(variants.begin(), variants.end(), variant) != variants.end();
  };
  if (goes(MatmulVariant::library) && !device_.backend().has_gemm()) {
    device.has_gemm = false;
    variants = matmul_variants(kind, facts, device);
  }
  for (size_t i = 0; i < variants.size(); ++i)
    if (variants[i] == MatmulVariant::library && !library_product(list.products[i], list.terms.data(), kind))
      variants[i] = MatmulVariant::large;
  const Term* const terms = batch_.put(list.terms);
  bool needs_grid_sync = needs_grid_sync_;
  for (const MatmulVariant variant : {MatmulVariant::few, MatmulVariant::middle, MatmulVariant::large}) {
    if (!goes(variant)) continue;
    std::vector<Product> products;
    std::vector<cuda::ProductFacts> theirs;
    for (size_t i = 0; i < variants.size(); ++i)
      if (variants[i] == variant) {
        products.push_back(list.products[i]);
        theirs.push_back(facts[i]);
      }
    const uint32_t rows = variant == MatmulVariant::few ? few_rows(theirs, device) : 0;
    launch_tiles(products, terms, variant, kind, rows, needs_grid_sync);
    needs_grid_sync = false;  // what it reads was there before the first
  }
}

void CudaExecutor::launch_tiles(std::vector<Product>& products, const Term* terms, MatmulVariant variant,
                                ProductKind kind, uint32_t rows, bool needs_grid_sync) {
  uint32_t tiles = 0;
  for (Product& p : products) {
    p.tile = tiles;
    tiles += static_cast<uint32_t>(tiles_of(variant, {p.m, p.n, 0, false}, device_.threads(), rows));
  }
  if (tiles == 0) return;
  cuda::Products all{};
  all.products = batch_.put(products);
  all.terms = terms;
  all.count = static_cast<uint32_t>(products.size());
  all.tiles = tiles;
  all.rows = rows;
  cuda::LaunchArgs r;
  r.count = all.count;
  r.extra = batch_.put(&all, 1);
  batch_.launch_blocks(CudaDevice::kernel_id(kernel_of(variant, kind)), r,
                       std::min(tiles, device_.most_blocks()), needs_grid_sync);
  ++device_.backend().counters.products[static_cast<size_t>(variant)];
}

// The same where some may add to the same memory: each for itself.
void CudaExecutor::launch_in_order(const ProductList& list, ProductKind kind) {
  for (Product p : list.products) {
    ProductList one;
    one.terms.assign(list.terms.begin() + p.first, list.terms.begin() + p.first + p.terms);
    p.first = 0;
    one.products.push_back(p);
    launch_products(one, kind);
  }
}

// ---------------------------------------------------------------- by the library

// The columns of m, side by side at `to`.
void CudaExecutor::gather_columns(float* to, const Matrix<const float>& m, int64_t rows, int64_t columns) {
  cuda::NodeSizes own{};
  own.count = static_cast<uint32_t>(columns);
  own.size = own.largest = rows;
  own.total = rows * columns;
  gather_to(to, {m.base, m.index, m.stride, m.index ? ValueOperand::indexed : ValueOperand::strided, false},
            own, own);
}

// The same in memory of its own.
Matrix<const float> CudaExecutor::gathered_columns(const Matrix<const float>& m, int64_t rows,
                                                   int64_t columns) {
  const size_t bytes = static_cast<size_t>(rows * columns) * sizeof(float);
  float* const to = static_cast<float*>(batch_.uninitialised(bytes));
  gather_columns(to, m, rows, columns);
  counters.gathered_bytes += bytes;
  return {to, nullptr, rows};
}

// False where the device has no room for copies of operands: nothing that counts has been launched then.
bool CudaExecutor::library_product(const Product& p, const Term* terms, ProductKind kind) {
  const auto factor = [&](const Matrix<const float>& m, const FactorShape& s) -> cuda::Gemm::Factor {
    const bool plain = is_plain(m, s.rows, s.columns);
    const Matrix<const float> lying = plain ? m : gathered_columns(m, s.rows, s.columns);
    return {reinterpret_cast<uint64_t>(lying.base), stride_of(lying.stride, s.rows), s.turned};
  };
  std::vector<cuda::Gemm> calls;
  bool add = p.begin != Product::zero;
  try {
    for (const Term* t = terms + p.first; t < terms + p.first + p.terms; ++t) {
      const cuda::Gemm::Factor a = factor(t->a, shape_of_a(kind, p, *t)),
                               b = factor(t->b, shape_of_b(kind, p, *t));
      const auto c = reinterpret_cast<uint64_t>(p.c.base);
      calls.push_back({a, b, c, stride_of(p.c.stride, p.m), p.m, p.n, t->inner, add});
      add = true;
    }
  } catch (const MemoryError&) {
    return false;
  }
  if (p.begin == Product::begin_at) gather_columns(p.c.base, p.start, p.m, p.n);
  for (const cuda::Gemm& call : calls) batch_.gemm(call);
  device_.backend().counters.products[static_cast<size_t>(MatmulVariant::library)] += calls.size();
  return true;
}

}  // namespace dyc
