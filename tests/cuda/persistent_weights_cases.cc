// Products of src/cuda/device/persistent_product.h, each a persistent kernel of one step, run by the
// emulation beside sums in double. test_persistent_weights.py builds a program of this, also with sanitizers.
// It prints one line for each product that differs, and then how many there were.
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "cuda/driver/backend.h"
#include "cuda/abi/persistent.h"
#include "ops/table.h"

using namespace dyc::cuda;

namespace {

std::mt19937 random_bits(5);
int64_t any(std::initializer_list<int64_t> from) { return from.begin()[random_bits() % from.size()]; }

// Columns of floats in device memory of just that size, in some order, maybe with gaps.
struct Columns {
  std::vector<float> values;
  std::vector<int64_t> index;  // empty: by stride
  int64_t rows, stride;
  Backend::Address at = 0, index_at = 0;

  Columns(Backend& device, int64_t rows, int64_t n, bool indexed)
      : rows(rows), stride(rows + any({0, 0, 3})) {
    values.resize(static_cast<size_t>((n - 1) * stride + rows));
    for (float& v : values) v = static_cast<float>(random_bits() % 2001) / 1000 - 1;
    for (int64_t j = 0; indexed && j < n; ++j) index.push_back((n - 1 - j) * stride);
    at = device.allocate(values.size() * 4);
    device.upload(at, values.data(), values.size() * 4);
    if (!indexed) return;
    index_at = device.allocate(index.size() * 8);
    device.upload(index_at, index.data(), index.size() * 8);
  }
  template <class F>
  Matrix<F> matrix() const {
    return {reinterpret_cast<F*>(at), reinterpret_cast<const int64_t*>(index_at), stride};
  }
  float operator()(int64_t i, int64_t j) const {
    return values[static_cast<size_t>((index.empty() ? j * stride : index[static_cast<size_t>(j)]) + i)];
  }
};

struct Factors {
  Columns a, b;
  int64_t inner;
};

template <class T>
Backend::Address put(Backend& device, const T& one, size_t n = 1) {
  const Backend::Address at = device.allocate(n * sizeof(T));
  device.upload(at, &one, n * sizeof(T));
  return at;
}

// One launch; whether all elements are right.
bool check(Backend& device) {
  const int64_t period = any({1, 2, 3, 7, 16, 17}), groups = any({1, 1, 2, 4}), m = period * groups,
                n = any({1, 2, 3, 4, 5, 8, 9, 16});
  const uint32_t blocks = static_cast<uint32_t>(any({1, 2, 3, 5}));
  const bool forward = any({0, 1}) != 0;
  Columns c(device, m, n, any({0, 1}) != 0), start(device, m, n, any({0, 1}) != 0);
  const auto begin = static_cast<Product::Begin>(any({Product::zero, Product::begin_at, Product::add}));
  std::vector<Factors> factors;
  std::vector<PersistentTerm> terms;
  std::vector<WeightLoad> loads;
  uint32_t place = 0;
  for (int64_t t = any({1, 2}); t > 0; --t) {
    const int64_t inner = any({1, 2, 7, 8, 9, 31, 33});
    factors.push_back({forward ? Columns(device, m, inner, false) : Columns(device, inner, m, false),
                       Columns(device, inner, n, any({0, 1}) != 0), inner});
    const Factors& f = factors.back();
    terms.push_back({{f.a.matrix<const float>(), f.b.matrix<const float>(), inner}, place});
    loads.push_back({0, f.a.matrix<const float>(), m, inner, period, place, forward});
    place += static_cast<uint32_t>(groups * slice_rows(period, blocks) * weight_stride(inner));
  }
  PersistentProduct all{};
  all.product.c = c.matrix<float>();
  all.product.start = start.matrix<const float>();
  all.product.begin = begin;
  all.product.m = m;
  all.product.n = n;
  all.terms = reinterpret_cast<const PersistentTerm*>(put(device, terms[0], terms.size()));
  all.count = static_cast<uint32_t>(terms.size());
  all.period = period;
  LaunchArgs r;
  r.extra = reinterpret_cast<const void*>(put(device, all));
  const PersistentStep step{dyc::kOps * kPasses + kPersistentProduct, false,
                            reinterpret_cast<const LaunchArgs*>(put(device, r))};
  PersistentArgs persistent{};
  persistent.steps = reinterpret_cast<const PersistentStep*>(put(device, step));
  persistent.count = 1;
  persistent.loads = reinterpret_cast<const WeightLoad*>(put(device, loads[0], loads.size()));
  persistent.load_count = static_cast<uint32_t>(loads.size());
  persistent.loads_first = true;
  LaunchArgs outer;
  outer.extra = reinterpret_cast<const void*>(put(device, persistent));
  Backend::Address record = put(device, outer);
  void* args[] = {&record};
  device.launch(device.kernel({"persistent", "persistent<>"}), {blocks, 64, place * 4}, args);
  std::vector<float> found(c.values.size());
  device.download(found.data(), c.at, found.size() * 4);
  const Columns before = c;
  c.values = found;
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < m; ++i) {
      double sum = begin == Product::zero ? 0 : begin == Product::add ? before(i, j) : start(i, j);
      for (const Factors& f : factors)
        for (int64_t k = 0; k < f.inner; ++k)
          sum += static_cast<double>(forward ? f.a(i, k) : f.a(k, i)) * static_cast<double>(f.b(k, j));
      if (!(std::abs(c(i, j) - sum) <= 1e-5 * (1 + std::abs(sum)))) {
        std::printf("%s, %ld x %ld in %ld units, %u blocks, element %ld, %ld: %g, expected %g\n",
                    forward ? "W x" : "W' dy", m, n, period, blocks, i, j, c(i, j), sum);
        return false;
      }
    }
  return true;
}

}  // namespace

int main() {
  int right = 0;
  for (int i = 0; i < 300; ++i) {
    const auto device = make_emulation();
    right += check(*device);
  }
  std::printf("%d\n", right);
  return 0;
}
