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
  // A trial ends early where one way is far better: trying the other costs a script that time.
  constexpr uint32_t both = 2 * tuning::kLendingTurn;
  if (steps_ % both == 0 && steps_ >= tuning::kLendingLeast * both) {
    const double found = ratio();
    const bool clear = found > tuning::kLendingClear || found * tuning::kLendingClear < 1;
    if (clear || steps_ == tuning::kLendingTurns * tuning::kLendingTurn) {
      decide(found);
      return won_;
    }
  }
  return steps_++ / tuning::kLendingTurn % 2;
}

double BackgroundPayoff::ratio() { return median(times_[true]) / median(times_[false]); }

void BackgroundPayoff::decide(double ratio) {
  won_ = ratio < tuning::kLendingGain;
  for (std::vector<double>& times : times_) times.clear();
  steps_ = 0;
  rest_ = next_rest_;
  next_rest_ *= tuning::kTrialGrowth;
}

}  // namespace dyc::py
