#include "model/moving_average.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/tuning.h"

namespace dyc {

namespace {

// mean += share * (now - mean)
void blend(std::vector<float>& mean, const float* raw, float decay, float share) {
  float* out = mean.data();
  parallel_for(mean.size(), tuning::kAveragePiece, [=](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) out[i] += share * (raw[i] * decay - out[i]);
  });
}

}  // namespace

MovingAverage::MovingAverage(Kind kind, float beta, uint32_t every)
    : kind_(kind), beta_(beta), every_(every) {
  if (!(beta >= 0.f && beta < 1.f))
    throw ValueError(text("exponential_moving_average(): got beta ", beta, "; wanted 0 <= beta < 1"));
  if (every == 0) throw ValueError("moving average: got update_freq 0; wanted at least 1");
}

void MovingAverage::add(const Collection& collection, uint64_t updates) {
  if (updates % every_ != 0) return;
  const auto add_all = [this](const std::vector<StoragePtr>& storages, std::vector<Mean>& means) {
    const size_t n_storages = storages.size();  // more may come while values are read
    means.resize(std::max(means.size(), n_storages));
    for (size_t i = 0; i < n_storages; ++i) {
      const Storage& s = *storages[i];
      Mean& m = means[i];
      m.values.resize(s.size());
      const double n = static_cast<double>(++m.count);
      const double share = kind_ == Kind::cumulative
                               ? 1.0 / n
                               : (1.0 - beta_) / (1.0 - std::pow(static_cast<double>(beta_), n));
      blend(m.values, s.values(), s.decay->factor, static_cast<float>(share));
    }
  };
  add_all(collection.parameters(), parameters_);
  add_all(collection.lookups(), lookups_);
}

void MovingAverage::swap_in(const Collection& collection, bool save, bool corrected) {
  if (swapped_)
    throw RuntimeError(
        "swap_params_to_moving_average(): the parameters have the values of the moving average already");
  saved_.clear();
  swap_in(collection.parameters(), parameters_, save, corrected);
  swap_in(collection.lookups(), lookups_, save, corrected);
  swapped_ = save;
}

void MovingAverage::swap_in(const std::vector<StoragePtr>& storages, const std::vector<Mean>& means,
                            bool save, bool corrected) {
  for (size_t i = 0; i < std::min(storages.size(), means.size()); ++i) {
    const Mean& m = means[i];
    if (m.count == 0) continue;
    Storage& s = *storages[i];
    const float decay = s.decay->factor;
    if (save) saved_.push_back({storages[i], {s.values(), s.values() + s.size()}, decay});
    double factor = 1.0 / decay;
    if (kind_ == Kind::exponential && !corrected)
      factor *= 1.0 - std::pow(static_cast<double>(beta_), static_cast<double>(m.count));
    float* out = s.begin_write(false);
    for (size_t j = 0; j < s.size(); ++j) out[j] = m.values[j] * static_cast<float>(factor);
  }
}

void MovingAverage::swap_out() {
  if (!swapped_)
    throw RuntimeError(
        "swap_params_to_weights(): there are no weights to go back to; wanted a call of "
        "swap_params_to_moving_average(save_weights=True) before");
  for (const Saved& saved : saved_) {
    Storage& s = *saved.storage;
    const float now = s.decay->factor;
    float* out = s.begin_write(false);
    for (size_t j = 0; j < s.size(); ++j)
      out[j] = now == saved.decay ? saved.values[j] : saved.values[j] * saved.decay / now;
  }
  saved_.clear();
  swapped_ = false;
}

}  // namespace dyc
