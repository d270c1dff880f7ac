// find_unit_runs() of exec/cuda_resident.h as a C function for ctypes: all numbers in one array, as
// test_resident.py writes them; addresses are numbers of floats.
#include "exec/cuda_resident.h"

namespace {

float* at(int64_t place) { return reinterpret_cast<float*>(place * 4); }

}  // namespace

extern "C" __attribute__((visibility("default"))) int find_unit_runs(const int64_t* words, int64_t* found) {
  using namespace dyc;
  const auto next = [&words] { return *words++; };
  std::vector<WeightProduct> products(static_cast<size_t>(next()));
  for (WeightProduct& p : products) {
    p.step = static_cast<size_t>(next());
    p.product.m = next();
    p.product.n = next();
    p.product.c = {at(next()), nullptr, p.product.m};
  }
  std::vector<UnitStep> steps(static_cast<size_t>(next()));
  for (UnitStep& s : steps) {
    s.step = static_cast<size_t>(next());
    s.unit = next();
    s.begin = at(next());
    s.end = at(next());
    s.reads.resize(static_cast<size_t>(next()));
    for (UnitStep::Read& r : s.reads) {
      r.begin = at(next());
      r.end = at(next());
      r.even = next() != 0;
    }
  }
  const auto begin = static_cast<size_t>(next());
  const std::vector<int64_t> waits(words + 1, words + 1 + *words);
  int count = 0;
  for (const UnitRun& run :
       find_unit_runs(products, steps, begin, [&](size_t step) { return step < waits.size() && waits[step]; })) {
    found[3 * count] = static_cast<int64_t>(run.products);
    found[3 * count + 1] = static_cast<int64_t>(run.steps);
    found[3 * count++ + 2] = static_cast<int64_t>(run.end);
  }
  return count;
}
