#include "bindings/background_payoff.h"

#include "bindings/median.h"

namespace dyc::py {

bool BackgroundPayoff::lends(uint64_t values, int64_t ns) {
  // The first step of a turn finds the caches as the other way has left them.
  if (steps_ > 0 && (steps_ - 1) % tuning::kLendingTurn > 0)
    times_[lent_].push_back(static_cast<double>(ns - begin_) / static_cast<double>(values_ + values));
  begin_ = ns;
  values_ = values;
  return lent_ = turn();
}

bool BackgroundPayoff::turn() {
  if (rest_ > 0) {
    --rest_;
    return won_;
  }
  if (steps_ == tuning::kLendingTurns * tuning::kLendingTurn) {
    decide();
    return won_;
  }
  return steps_++ / tuning::kLendingTurn % 2;
}

void BackgroundPayoff::decide() {
  won_ = median(times_[true]) < tuning::kLendingGain * median(times_[false]);
  for (std::vector<double>& times : times_) times.clear();
  steps_ = 0;
  rest_ = next_rest_;
  next_rest_ *= tuning::kTrialGrowth;
}

}  // namespace dyc::py
