// Which weights the blocks of a persistent kernel keep in shared memory (cuda/abi/persistent_weights.h), and
// which of its steps need no grid barrier, as each block reads only its own row slice
// (cuda/device/row_slices.h).
#pragma once
#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "cuda/abi/launch_args.h"
#include "cuda/abi/persistent_weights.h"

namespace dyc {

// Memory from the first to the last float that a step reads, or writes and maybe reads. What no step of the
// same launches writes may be left out.
struct MemoryRange {
  const float *begin, *end;
  int64_t spacing;  // row of element i: i % period, for a period that divides this
  bool writes;
};

// Of n ranges of `size` floats, range i at `at(i)` of an arena. period: that of each range; 1 where all
// blocks read it.
template <class At>
MemoryRange access_to(const float* arena, int64_t n, int64_t size, int64_t period, bool writes, At at) {
  const int64_t first = at(0);
  int64_t low = first, high = first;
  for (int64_t i = 1; i < n; ++i) {
    const int64_t offset = at(i);
    low = std::min(low, offset);
    high = std::max(high, offset);
    period = std::gcd(period, offset - first);
  }
  return {arena + low, arena + high + size, period, writes};
}

// A step that is one product, of weights that nothing in these launches changes.
struct WeightProduct {
  size_t step;
  bool forward;  // W x, else W' dy
  cuda::Product product;
  std::vector<cuda::Term> terms;      // a: weights
  std::vector<MemoryRange> accesses;  // its result first
  int64_t period = 0;                 // as cuda::PersistentProduct has it
};

// A step whose rows can be sliced.
struct SlicedStep {
  size_t step;
  int64_t period;
  bool finer;  // also by one that divides this
  std::vector<MemoryRange> accesses;
  cuda::LaunchArgs* args;  // in host memory, to be uploaded
};

// Sliced products and steps, from a product on: no block waits for another between them.
struct BarrierFreeRun {
  size_t begin, end;
  int64_t period;
};
// Those of steps from `begin` on. Sets the products' periods.
std::vector<BarrierFreeRun> find_barrier_free_runs(std::span<WeightProduct> products,
                                                   std::span<const SlicedStep> sliced, size_t begin,
                                                   const std::function<bool(size_t)>& needs_grid_sync);

class PersistentWeights {
 public:
  PersistentWeights() = default;
  // Of the products of one persistent kernel.
  explicit PersistentWeights(std::span<const WeightProduct> products);

  bool wanted() const { return !weights_.empty(); }
  // So many blocks would be enough.
  uint32_t blocks() const;
  // Chooses what each of `blocks` blocks keeps in at most so many bytes; returns the bytes. May be called
  // again.
  size_t choose(uint32_t blocks, size_t most);
  // The product's terms as the kernel reads them; empty: its weights are not kept.
  std::vector<cuda::PersistentTerm> terms(const WeightProduct& product);
  // What these products read, each with the step that reads it first.
  std::vector<cuda::WeightLoad> loads() const;

 private:
  struct Weight {
    cuda::Matrix<const float> a;
    bool forward;
    int64_t rows, inner;  // of the factor that it is
    int64_t period;
    int64_t columns = 0;  // most of a product
    uint32_t uses = 0;
    uint32_t offset = 0;
    bool kept = false;
    size_t first = SIZE_MAX;  // step that reads it
    size_t bytes(uint32_t blocks) const;
  };
  Weight* find(const WeightProduct& p, const cuda::Term& term);

  std::vector<Weight> weights_;  // those used often, most often first
};

}  // namespace dyc
