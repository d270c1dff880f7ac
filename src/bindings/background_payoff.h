// Do the steps of a script take less time where their backward passes go on in the background?
//
// A script that reads values right after an update waits at once, and has only lost what it takes to wake the
// other thread and to move the parameters between caches. So some steps of each way are timed by turns; the
// medians of the time for each recorded value decide, for a number of steps that grows from trial to trial,
// and with what the trial has cost. Steps whose passes go on in the background are watched afterwards.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "bindings/tuning.h"

namespace dyc::py {

class BackgroundPayoff {
 public:
  // backward() is called on a graph of so many values, `ns` by the clock. May it go on in the background?
  bool lends(uint64_t values, int64_t ns);

 private:
  bool turn();
  void watch(double time);
  bool may_decide();
  // Of the trial, as far as it was measured: the time of steps with passes in the background by that of
  // others, and how many steps of the faster way could have been made in the time that the slower way lost.
  double ratio(), lost();
  void decide();

  bool lent_ = true;                           // the step that ends
  uint64_t values_ = 0;                        // of that
  int64_t begin_ = 0;                          // of that
  bool won_ = true;                            // the last trial
  uint64_t rest_ = tuning::kLendingWarmUp;     // steps until the next one
  uint64_t next_rest_ = tuning::kLendingRest;  // steps after that
  uint32_t steps_ = 0;                         // of the trial
  std::array<std::vector<double>, 2> times_;   // nanoseconds for each value: at home, lent
  double home_ = 0;                            // the median of those at home in the last trial
};

}  // namespace dyc::py
