#include "bindings/region_walk_payoff.h"

#include <algorithm>
#include <cmath>

#include "bindings/python_compat.h"
#include "bindings/region_tracer.h"

namespace dyc::py {

void TimedStatements::begin(const void* function, const Engine& engine, bool alone) {
  function_ = function;
  alone_ = alone;
  thread_ = PyThreadState_Get();
  engine_ = &engine;
  generation_ = engine.graph.generation();
  size_ = engine.graph.size();
  flushes_ = engine.timing.flushes;
  depth_ = remaining_depth();
  inside_ = 1;
  rested_ = asked_ = 0;
  start_ = thread_clock();
}

bool TimedStatements::is_current() {
  if (thread_ != PyThreadState_Get()) return false;
  const bool same = engine_ == this_thread && engine_->graph.generation() == generation_;
  if (same && remaining_depth() <= depth_ && rested_ + asked_ < tuning::kTimedCallsInside) return true;
  function_ = nullptr;
  return false;
}

bool TimedStatements::enter(const void* function) {
  if (!is_on()) return false;
  if (remaining_depth() == depth_) {  // not called by this one, which has failed
    function_ = nullptr;
    return false;
  }
  if (!alone_ && function != function_) return false;
  if (function == function_) ++inside_;
  ++asked_;
  return true;
}

void TimedStatements::leave(const void* function, WalkPayoff& payoff) {
  if (function != function_ || !is_on() || --inside_ > 0) return;
  const int64_t others =
      around(tuning::kAroundRestingRegion * rested_ + tuning::kAroundAskedFunction * asked_);
  const auto ns = static_cast<double>(std::max<int64_t>(elapsed_since(start_) - others, 1));
  if (engine_->timing.flushes == flushes_)
    payoff.add(alone_ ? WalkPayoff::alone : WalkPayoff::with_regions, ns, engine_->graph.size() - size_);
  function_ = nullptr;
}

// As many calls run in the same way, one after the other, as record some thousand nodes, up to 64.
WalkPayoff::Way WalkPayoff::turn() {
  using namespace tuning;
  if (calls_ == kTrialCalls || (calls_ > 1 && nodes_ >= kTrialNodes)) {
    ++turns_;
    calls_ = nodes_ = 0;
  }
  if (turns_ == kWays * (kTrialWarmUp + kTrialRounds)) return kWays;
  ++calls_;
  return static_cast<Way>(turns_ % kWays);
}

// The first quarter of a turn, which finds nothing of its way in the caches, does not count.
void WalkPayoff::add(Way way, double ns, uint32_t nodes) {
  using namespace tuning;
  const bool cold = calls_ == 1 || (nodes_ < kTrialNodes / 4 && calls_ <= kTrialCalls / 4);
  nodes_ += nodes;
  if (nodes > 0 && !cold && turns_ >= kWays * kTrialWarmUp) runs_[way].push_back({ns, nodes});
}

// Nanoseconds for each node, without the slowest quarter of the runs, which something may have interrupted.
double WalkPayoff::rate(std::vector<Run>& runs) {
  const auto faster = [](const Run& a, const Run& b) { return a.ns * b.nodes < b.ns * a.nodes; };
  std::sort(runs.begin(), runs.end(), faster);
  double ns = 0, nodes = 0;
  for (size_t i = 0; i < runs.size() - runs.size() / 4; ++i) {
    ns += runs[i].ns;
    nodes += runs[i].nodes;
  }
  return ns / nodes;
}

// The time of walks, or replays, as a part of that of the faster of the other ways; NaN: there were too few
// runs. Begins another trial.
double WalkPayoff::part_of_others() {
  const bool known =
      std::ranges::all_of(runs_, [](const auto& runs) { return runs.size() >= tuning::kTrialRounds; });
  const double part =
      known ? rate(runs_[walked]) / std::min(rate(runs_[with_regions]), rate(runs_[alone])) : NAN;
  for (std::vector<Run>& runs : runs_) runs.clear();
  turns_ = calls_ = nodes_ = 0;
  return part;
}

bool WalkPayoff::decide(uint64_t walks) {
  const double part = part_of_others();
  const bool lost = part > tuning::kLeastGain;
  lost_ = lost ? lost_ + 1 : 0;
  next_ = lost ? walks + tuning::kFirstTrial : tuning::kTrialGrowth * walks;
  return lost_ == 2 || part > tuning::kClearLoss;
}

WalkPayoff::Verdict WalkPayoff::judge_memos() {
  const double part = part_of_others();
  if (std::isnan(part)) return ++untimed_ == tuning::kUntimedTrials ? won : unknown;
  const bool wins = part < tuning::kLeastGain, clear = part < tuning::kClearGain || part > tuning::kClearLoss;
  return ++(wins ? won_ : lost_) < 2 && !clear ? unknown : wins ? won : lost;
}

}  // namespace dyc::py
