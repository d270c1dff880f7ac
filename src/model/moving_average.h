// Means of the values of all parameters of a collection over a trainer's updates.
#pragma once
#include <cstdint>
#include <vector>

#include "model/collection.h"

namespace dyc {

// cumulative: the mean of the values after each update. exponential: the weights of the updates fall by beta
// with each later one and add up to 1, so the mean is one of values that were there (Adam's bias correction,
// applied all along). Values are effective ones: the factor of weight decay is in them.
// Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992.
class MovingAverage {
 public:
  enum class Kind { cumulative, exponential };
  struct Mean {
    std::vector<float> values;
    uint64_t count = 0;  // how many have gone in
  };

  MovingAverage(Kind kind, float beta, uint32_t every);  // beta outside [0,1), every 0: ValueError

  Kind kind() const { return kind_; }
  float beta() const { return beta_; }
  uint32_t every() const { return every_; }
  bool swapped() const { return swapped_; }

  // After update number `updates`; only every `every`th counts.
  void add(const Collection& collection, uint64_t updates);
  // The parameters take the means as values. Not `corrected`: exponential ones without the correction, that
  // is as if a value of 0 had come first. Parameters without a mean yet stay.
  void swap_in(const Collection& collection, bool save, bool corrected);
  void swap_out();  // the values from before; RuntimeError if not saved

  // What files hold: of the parameters, then of the lookups.
  std::vector<Mean>& means(bool lookups) { return lookups ? lookups_ : parameters_; }
  const std::vector<Mean>& means(bool lookups) const { return lookups ? lookups_ : parameters_; }

 private:
  struct Saved {
    StoragePtr storage;
    std::vector<float> values;
    float decay;
  };
  void swap_in(const std::vector<StoragePtr>& storages, const std::vector<Mean>& means, bool save,
               bool corrected);

  const Kind kind_;
  const float beta_;
  const uint32_t every_;
  bool swapped_ = false;
  std::vector<Mean> parameters_, lookups_;
  std::vector<Saved> saved_;
};

}  // namespace dyc
