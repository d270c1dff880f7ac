// The kernels for products against sums in double: random lists of products of all shapes, whose columns lie
// side by side, apart, anywhere, or one on the other. test_products.py builds a program of this and of the
// emulation, for its blocks and for those of a GPU, and runs it:
//   product_cases <kernel> <wx|wdy|dyx> <seed> <lists> [tf32|bf16|bits]
// bits: it prints a hash of the bits of all results.
// With a precision, tensor cores make them: sums in double are those of rounded factors, and of the factors
// themselves as far as the precision goes. It prints each element that is wrong, and what product it is of.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/driver/backend.h"
#include "cuda/emulation/emulation.h"
#include "cuda/driver/matmul_variants.h"
#include "cuda/abi/products.h"
#include "cuda/abi/launch_args.h"

namespace {

using namespace dyc::cuda;

std::mt19937 random_numbers;
Precision precision = Precision::float32;
uint64_t bits = 0;  // of all results

// By its digits, not by its bits as the kernels do.
double rounded(float x) {
  if (precision == Precision::float32) return x;
  const bool tf32 = precision == Precision::tf32;
  const int digits = tf32 ? 11 : 8;
  int exponent;
  const double whole = std::ldexp(std::frexp(x, &exponent), digits);
  return std::ldexp(tf32 ? std::round(whole) : std::nearbyint(whole), exponent - digits);
}

int64_t below(int64_t n) { return static_cast<int64_t>(random_numbers() % static_cast<uint64_t>(n)); }

// Columns in memory of their own: on the device, and what they were on the host.
struct Columns {
  std::vector<float> values;
  std::vector<int64_t> places;  // of columns
  int64_t stride = 0;
  bool indexed = false;
  Backend::Address memory = 0;
  float at(int64_t i, int64_t j) const { return values[static_cast<size_t>(places[j] + i)]; }
  std::string words() const { return indexed ? "indexed" : "stride " + std::to_string(stride); }
};

// apart: no two are in the same place.
Columns make_columns(int64_t rows, int64_t count, bool apart) {
  Columns c;
  const int64_t kind = below(apart ? 4 : 6);
  c.indexed = kind == 3 || kind == 4;
  c.stride = kind == 0 ? rows : kind == 1 ? (rows + 3) / 4 * 4 : kind == 5 ? 0 : rows + 1 + below(5);
  const int64_t start = below(2) ? 0 : below(5);  // a multiple of 16 bytes or not
  for (int64_t j = 0; j < count; ++j) c.places.push_back(start + j * c.stride);
  if (c.indexed) {
    std::shuffle(c.places.begin(), c.places.end(), random_numbers);
    if (kind == 4)
      for (int64_t& place : c.places) place = c.places[static_cast<size_t>(below(count))];
  }
  c.values.resize(static_cast<size_t>(start + count * std::max(c.stride, rows) + rows + 1));
  std::normal_distribution<float> normal;
  for (float& v : c.values) v = normal(random_numbers);
  return c;
}

template <class F>
Matrix<F> put(Backend& device, Columns& c) {
  c.memory = device.allocate(c.values.size() * sizeof(float) + 1);
  device.upload(c.memory, c.values.data(), c.values.size() * sizeof(float));
  Matrix<F> m{reinterpret_cast<F*>(c.memory), nullptr, c.stride};
  if (c.indexed) {
    const size_t count = c.places.size();
    const Backend::Address index = device.allocate(c.places.size() * sizeof(int64_t) + 1);
    if (count > 0) device.upload(index, c.places.data(), count * sizeof(int64_t));
    m.index = reinterpret_cast<const int64_t*>(index);
  } else if (!c.places.empty()) {
    m.base += c.places[0];
  }
  return m;
}

struct Case {
  Product product;
  Columns c, start;
  std::vector<std::pair<Columns, Columns>> terms;
  std::vector<int64_t> inner;
};

int64_t extent(bool zero) {
  constexpr int64_t kEdges[] = {1,  2,  3,  4,  5,  7,  8,  9,   15,  16,  17,
                                31, 32, 33, 47, 63, 64, 65, 100, 127, 128, 129};
  return zero && below(12) == 0 ? 0 : kEdges[below(std::size(kEdges))];
}

template <class T>
const T* upload(Backend& device, const std::vector<T>& from) {
  const Backend::Address to = device.allocate(from.size() * sizeof(T) + 1);
  if (!from.empty()) device.upload(to, from.data(), from.size() * sizeof(T));
  return reinterpret_cast<const T*>(to);
}

// Element (i, j) of the sum of terms, of rounded factors and of others, and the sum of the terms' magnitudes.
struct Expected {
  double value, unrounded, size;
};
Expected expected(const Case& one, ProductKind kind, int64_t i, int64_t j) {
  double sum = 0, exact = 0, size = 0;
  for (size_t t = 0; t < one.terms.size(); ++t) {
    const auto& [a, b] = one.terms[t];
    for (int64_t k = 0; k < one.inner[t]; ++k) {
      const float x = kind == ProductKind::wdy ? a.at(k, i) : a.at(i, k);
      const float y = kind == ProductKind::dyx ? b.at(j, k) : b.at(k, j);
      sum += rounded(x) * rounded(y);
      exact += double{x} * y;
      size += std::abs(double{x} * y);
    }
  }
  double begin = 0;
  if (one.product.begin == Product::add) begin = one.c.at(i, j);
  if (one.product.begin == Product::begin_at) begin = one.start.at(i, j);
  return {begin + sum, begin + exact, std::abs(begin) + size};
}

Case make_case(Backend& device, ProductKind kind, bool few, std::vector<Term>& terms) {
  Case one{};
  Product& p = one.product;
  p.m = extent(true);
  p.n = few ? below(kMostFewColumns + 1) : extent(true);
  p.begin = static_cast<Product::Begin>(below(3));
  p.first = static_cast<uint32_t>(terms.size());
  p.terms = static_cast<uint32_t>(below(4) ? 1 : below(4));
  one.c = make_columns(p.m, p.n, true);
  one.start = make_columns(p.m, p.n, false);
  p.c = put<float>(device, one.c);
  p.start = put<const float>(device, one.start);
  for (uint32_t t = 0; t < p.terms; ++t) {
    const int64_t inner = extent(true);
    const bool by_row = kind == ProductKind::wdy, by_inner = kind == ProductKind::dyx;
    one.inner.push_back(inner);
    one.terms.emplace_back(make_columns(by_row ? inner : p.m, by_row ? p.m : inner, false),
                           make_columns(by_inner ? p.n : inner, by_inner ? inner : p.n, false));
    auto& [a, b] = one.terms.back();
    const auto am = put<const float>(device, a), bm = put<const float>(device, b);
    terms.push_back({am, bm, inner});
  }
  return one;
}

int compare(Backend& device, const Case& one, ProductKind kind) {
  std::vector<float> found(one.c.values.size()), wanted = one.c.values;
  device.download(found.data(), one.c.memory, found.size() * sizeof(float));
  for (const float x : found) bits = bits * 1099511628211u + std::bit_cast<uint32_t>(x);
  int wrong = 0;
  const Product& p = one.product;
  for (int64_t j = 0; j < p.n; ++j)
    for (int64_t i = 0; i < p.m; ++i) {
      const auto [value, unrounded, size] = expected(one, kind, i, j);
      float& at = found[static_cast<size_t>(one.c.places[j] + i)];
      const double most[] = {4e-6, 1.1e-3, 1e-2};
      const bool is_near = std::abs(at - value) <= 4e-6 * size &&
                           std::abs(at - unrounded) <= most[static_cast<int>(precision)] * size;
      if (!is_near && ++wrong < 4)
        std::printf("%lld x %lld, begin %d, %u terms, C %s: element (%lld, %lld) is %.9g, expected %.9g\n",
                    static_cast<long long>(p.m), static_cast<long long>(p.n), static_cast<int>(p.begin),
                    p.terms, one.c.words().c_str(), static_cast<long long>(i), static_cast<long long>(j), at,
                    value);
      at = wanted[static_cast<size_t>(one.c.places[j] + i)];
    }
  if (std::memcmp(found.data(), wanted.data(), found.size() * sizeof(float)) != 0 && ++wrong)
    std::printf("%lld x %lld, C %s: something beside C was written\n", static_cast<long long>(p.m),
                static_cast<long long>(p.n), one.c.words().c_str());
  for (size_t t = 0; wrong && t < one.terms.size(); ++t)
    std::printf("  inner %lld, A %s, B %s\n", static_cast<long long>(one.inner[t]),
                one.terms[t].first.words().c_str(), one.terms[t].second.words().c_str());
  return wrong;
}

int run_list(const std::string& kernel, ProductKind kind) {
  const auto device = make_emulation();
  const bool small = kernel == "small_product";
  const MatmulVariant variant = kernel == "few_columns"     ? MatmulVariant::few
                                : kernel == "large_product" ? MatmulVariant::large
                                                            : MatmulVariant::middle;
  std::vector<Case> cases;
  std::vector<Term> terms;
  std::vector<Product> products;
  std::vector<ProductFacts> facts;
  // Descriptions that are read at once, and longer ones.
  for (int64_t i = 0, n = below(16) ? 1 + below(3) : 24; i < n; ++i) {
    cases.push_back(make_case(*device, kind, variant == MatmulVariant::few, terms));
    facts.push_back({cases.back().product.m, cases.back().product.n, 0, false});
  }
  Products all{};
  const uint32_t threads = device->limits().threads;
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].product.tile = all.tiles;
    const auto side = [](int64_t size) { return (size + kSmallTile - 1) / kSmallTile; };
    const ProductFacts& f = facts[i];
    all.tiles += static_cast<uint32_t>(small ? side(f.m) * side(f.n) : tiles_of(variant, f, threads));
    products.push_back(cases[i].product);
  }
  all.count = static_cast<uint32_t>(products.size());
  all.each = tiles_of_each(products.data(), all.count, all.tiles);
  const size_t bytes = record_bytes(products.size(), terms.size());
  Backend::Address at = device->allocate(bytes + kHeadBytes);
  const auto put = [&](Backend::Address to, const auto& from) {
    if (!from.empty()) device->upload(to, from.data(), from.size() * sizeof(from[0]));
    return to + from.size() * sizeof(from[0]);
  };
  const Backend::Address products_at = at + kProductsAt + sizeof all, terms_at = put(products_at, products);
  put(terms_at, terms);
  all.products = reinterpret_cast<const Product*>(products_at);
  all.terms = reinterpret_cast<const Term*>(terms_at);
  put(at + kProductsAt, std::vector<Products>{all});
  void* args[] = {&at};
  const char* const kinds[] = {"true, false", "false, false", "true, true"};
  const char* const sums[] = {"", ", TensorSums<Tf32>", ", TensorSums<Bf16>"};
  const std::string arguments = variant == MatmulVariant::few ? (kind == ProductKind::wx ? "true" : "false")
                                                              : kinds[static_cast<int>(kind)];
  const std::string file = variant == MatmulVariant::few     ? "few_columns"
                           : variant == MatmulVariant::large ? "large_products"
                                                             : "matmul";
  const std::string name = small ? "product<" + arguments + ", kSmallTile"
                                 : kernel + "<" + arguments + sums[static_cast<int>(precision)];
  device->launch(device->kernel({file, name + ">"}), {static_cast<uint32_t>(1 + below(3)), threads}, args);
  device->wait();
  int wrong = 0;
  for (const Case& one : cases) wrong += compare(*device, one, kind);
  return wrong;
}

}  // namespace

int main(int count, char** args) {
  for (int i = 0; count > 5 && i < kPrecisions; ++i)
    if (std::string(args[5]) == kPrecisionNames[i]) precision = static_cast<Precision>(i);
  const std::string kind = args[2];
  random_numbers.seed(static_cast<uint32_t>(std::atoi(args[3])));
  int wrong = 0;
  for (int i = 0; i < std::atoi(args[4]) && wrong < 10; ++i) {
    try {
      wrong += run_list(args[1], kind == "wx"    ? ProductKind::wx
                                 : kind == "wdy" ? ProductKind::wdy
                                                 : ProductKind::dyx);
    } catch (const std::exception& e) {
      std::printf("%s\n", e.what());
      ++wrong;
    }
  }
  if (count > 5 && std::string(args[5]) == "bits")
    std::printf("%llx\n", static_cast<unsigned long long>(bits));
  return wrong > 0;
}
