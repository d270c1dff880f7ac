// find_barrier_free_runs() of exec/cuda/persistent_weights.h as a C function for ctypes: all numbers in one array,
// as test_barrier_free_runs.py writes them; addresses are numbers of floats.
#include "exec/cuda/persistent_weights.h"

namespace {

const float* at(int64_t place) { return reinterpret_cast<const float*>(place * 4); }

template <class Next>
std::vector<dyc::MemoryRange> accesses(Next next) {
  std::vector<dyc::MemoryRange> all(static_cast<size_t>(next()));
  for (dyc::MemoryRange& a : all) {
    a.begin = at(next());
    a.end = at(next());
    a.spacing = next();
    a.writes = next() != 0;
  }
  return all;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int find_barrier_free_runs(const int64_t* words, int64_t* found) {
  using namespace dyc;
  const auto next = [&words] { return *words++; };
  std::vector<WeightProduct> products(static_cast<size_t>(next()));
  for (WeightProduct& p : products) {
    p.step = static_cast<size_t>(next());
    p.period = p.product.m = next();
    p.terms.push_back({{at(next()), nullptr, 0}, {}, 0});
    p.accesses = accesses(next);
  }
  std::vector<SlicedStep> steps(static_cast<size_t>(next()));
  for (SlicedStep& s : steps) {
    s.step = static_cast<size_t>(next());
    s.period = next();
    s.finer = next() != 0;
    s.accesses = accesses(next);
  }
  const auto begin = static_cast<size_t>(next());
  const std::vector<int64_t> needs_grid_sync(words + 1, words + 1 + *words);
  int count = 0;
  for (const BarrierFreeRun& run : find_barrier_free_runs(products, steps, begin,
                                           [&](size_t step) { return step < needs_grid_sync.size() && needs_grid_sync[step]; })) {
    found[3 * count] = static_cast<int64_t>(run.begin);
    found[3 * count + 1] = static_cast<int64_t>(run.end);
    found[3 * count++ + 2] = run.period;
  }
  for (size_t p = 0; p < products.size(); ++p) found[3 * count + static_cast<int64_t>(p)] = products[p].period;
  return count;
}
