#include "bindings/region_walk_payoff.h"

#include <algorithm>

#include "bindings/median.h"
#include "bindings/python_compat.h"
#include "bindings/region_tracer.h"

namespace dyc::py {

namespace {

// Calls of a trial that run in the same way, one after the other, as they will; the first of them, which find
// nothing in the caches, do not count.
constexpr uint32_t kRun = 4, kColdRuns = 1;
static_assert(tuning::kTrialWarmUp % kRun == 0 && tuning::kTrialRounds % kRun == 0);

}  // namespace

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
  const int64_t around = tuning::kAroundRestingRegion * rested_ + tuning::kAroundWalk * asked_;
  const auto ns = static_cast<double>(elapsed_since(start_) - around);
  if (engine_->timing.flushes == flushes_)
    payoff.add(alone_ ? WalkPayoff::alone : WalkPayoff::with_regions, ns, engine_->graph.size() - size_);
  function_ = nullptr;
}

WalkPayoff::Way WalkPayoff::turn() {
  if (turns_ == kWays * (tuning::kTrialWarmUp + tuning::kTrialRounds)) return kWays;
  return static_cast<Way>(turns_++ / kRun % kWays);
}

void WalkPayoff::add(Way way, double ns, uint32_t nodes) {
  const bool warm = turns_ > kWays * tuning::kTrialWarmUp && (turns_ - 1) % kRun >= kColdRuns;
  if (nodes > 0 && warm) times_[way].push_back(ns / nodes);
}

// False: there were too few runs. Begins another trial.
bool WalkPayoff::medians(std::array<double, kWays>* found) {
  bool known = true;
  for (size_t i = 0; i < kWays; ++i) {
    std::vector<double>& times = times_[i];
    known = known && times.size() >= tuning::kTrialRounds / 2;
    if (!known) break;
    (*found)[i] = median(times);
  }
  for (std::vector<double>& times : times_) times.clear();
  turns_ = 0;
  return known;
}

bool WalkPayoff::decide(uint64_t walks) {
  std::array<double, kWays> times;
  const bool lost = medians(&times) && times[walked] > std::min(times[with_regions], times[alone]);
  lost_ = lost ? lost_ + 1 : 0;
  next_ = lost ? walks + tuning::kFirstTrial : tuning::kTrialGrowth * walks;
  return lost_ == 2;
}

WalkPayoff::Verdict WalkPayoff::judge_memos() {
  std::array<double, kWays> times;
  if (!medians(&times)) return unknown;
  if (times[walked] < tuning::kMemoGain * std::min(times[with_regions], times[alone])) return won;
  return ++lost_ == 2 ? lost : unknown;
}

}  // namespace dyc::py
