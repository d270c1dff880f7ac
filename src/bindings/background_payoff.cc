#include "bindings/background_payoff.h"

#include <algorithm>

namespace dyc::py {

namespace {

// Of one value or more, whose order changes: single times may be far too long.
double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool BackgroundPayoff::lends(uint64_t values, int64_t ns) {
  const double time = static_cast<double>(ns - begin_) / static_cast<double>(values_ + values);
  // The first step of a turn finds the caches as the other way has left them.
  if (steps_ > 0 && (steps_ - 1) % tuning::kLendingTurn > 0) times_[lent_].push_back(time);
  else if (steps_ == 0 && lent_ && home_ > 0) watch(time);
  begin_ = ns;
  values_ = values;
  return lent_ = turn();
}

bool BackgroundPayoff::turn() {
  if (rest_ > 0) {
    --rest_;
    return won_;
  }
  constexpr uint32_t both = 2 * tuning::kLendingTurn;
  if (steps_ > 0 && steps_ % both == 0 && may_decide()) {
    decide();
    return won_;
  }
  if (steps_ == 0) times_[true].clear();  // those that were watched
  return steps_++ / tuning::kLendingTurn % 2;
}

// Another process may have taken the second core since the trial: then a new one does not wait.
void BackgroundPayoff::watch(double time) {
  times_[true].push_back(time);
  if (times_[true].size() < tuning::kLendingWatched) return;
  if (median(times_[true]) > tuning::kLendingClear * home_) {
    rest_ = 0;
    next_rest_ = tuning::kLendingRest;
  }
  times_[true].clear();
}

// A trial ends as soon as the slower way has cost some steps' time: at once where it is far slower.
bool BackgroundPayoff::may_decide() {
  return steps_ == tuning::kLendingTurns * tuning::kLendingTurn || lost() > tuning::kLendingLoss;
}

double BackgroundPayoff::ratio() { return median(times_[true]) / median(times_[false]); }

double BackgroundPayoff::lost() {
  const double found = ratio();
  return steps_ / 2 * (std::max(found, 1 / found) - 1);
}

void BackgroundPayoff::decide() {
  won_ = ratio() < tuning::kLendingGain;
  home_ = median(times_[false]);
  rest_ = std::max(next_rest_, static_cast<uint64_t>(tuning::kLendingRestOfLoss * lost()));
  next_rest_ *= tuning::kTrialGrowth;
  for (std::vector<double>& times : times_) times.clear();
  steps_ = 0;
}

}  // namespace dyc::py
