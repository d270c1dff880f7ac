// Which weights the blocks of a walk keep in shared memory (cuda/resident.h).
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "cuda/record.h"
#include "cuda/resident.h"

namespace dyc {

// A step that is one product, of weights that nothing in these launches changes.
struct WeightProduct {
  size_t step;
  bool forward;  // W x, else W' dy
  cuda::Product product;
  std::vector<cuda::Term> terms;  // a: weights
  int64_t unit = 0;               // as cuda::Resident has it
};

// A step whose element i, of unit i % unit, depends on that unit of results with as many units.
struct UnitStep {
  struct Read {  // an operand of all members, as far as it may have been computed in these launches
    const float *begin, *end;
    bool even;  // each begins a multiple of the unit after `begin`
  };
  size_t step;
  int64_t unit;
  const float *begin, *end;  // results
  std::vector<Read> reads;
  cuda::Record record;
};

// Products, and steps that follow them which need not wait for other blocks. Between the first product and
// the last step no block waits for another.
struct UnitRun {
  size_t products, steps, end;  // the first of each
};
// Those in steps [begin, end); waits(step): it waits for the steps before. Sets the products' units.
std::vector<UnitRun> find_unit_runs(std::span<WeightProduct> products, std::span<const UnitStep> units,
                                    size_t begin, const std::function<bool(size_t)>& waits);

class Residency {
 public:
  Residency() = default;
  // Of the products of one walk.
  explicit Residency(std::span<const WeightProduct> products);

  bool wanted() const { return !weights_.empty(); }
  bool wanted(bool forward) const;
  // So many blocks would be enough.
  uint32_t blocks() const;
  // Chooses what each of `blocks` blocks keeps in at most so many bytes; returns the bytes. May be called
  // again.
  size_t choose(uint32_t blocks, size_t most);
  // The product's terms as the device is told of them, in the order of steps; empty: it is made as before.
  std::vector<cuda::ResidentTerm> terms(const WeightProduct& product);

 private:
  struct Weight {
    const float* base;
    bool forward;
    int64_t rows, inner;  // of the factor that it is
    int64_t unit;
    int64_t columns = 0;  // most of a product
    uint32_t uses = 0;
    uint32_t place = 0;
    bool kept = false, read = false;
    size_t bytes(uint32_t blocks) const;
  };
  Weight* find(const WeightProduct& p, const cuda::Term& term);

  std::vector<Weight> weights_;  // those used often, most often first
};

}  // namespace dyc
