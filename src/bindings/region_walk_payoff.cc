#include "bindings/region_walk_payoff.h"

#include <algorithm>

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
  const int64_t around = tuning::kAroundRestingRegion * rested_ + tuning::kAroundWalk * asked_;
  const auto ns = static_cast<double>(elapsed_since(start_) - around);
  if (engine_->timing.flushes == flushes_)
    payoff.add(alone_ ? WalkPayoff::alone : WalkPayoff::with_regions, ns, engine_->graph.size() - size_);
  function_ = nullptr;
}

// As many calls run in the same way, one after the other, as record some thousand nodes, up to 16.
WalkPayoff::Way WalkPayoff::turn() {
  using namespace tuning;
  if (calls_ == kTrialCalls || (calls_ > kColdCalls && nodes_ >= kTrialNodes)) {
    ++turns_;
    calls_ = nodes_ = 0;
  }
  if (turns_ == kWays * (kTrialWarmUp + kTrialRounds)) return kWays;
  ++calls_;
  return static_cast<Way>(turns_ % kWays);
}

// The first calls in another way than before, which find nothing in the caches, do not count.
void WalkPayoff::add(Way way, double ns, uint32_t nodes) {
  using namespace tuning;
  const bool cold = calls_ <= kColdCalls || (nodes_ < kColdNodes && calls_ <= kTrialCalls / 2);
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

// False: there were too few runs. Begins another trial.
bool WalkPayoff::rates(std::array<double, kWays>* found) {
  bool known = true;
  for (size_t i = 0; i < kWays; ++i) {
    known = known && runs_[i].size() >= tuning::kTrialRounds;
    if (known) (*found)[i] = rate(runs_[i]);
  }
  for (std::vector<Run>& runs : runs_) runs.clear();
  turns_ = calls_ = nodes_ = 0;
  return known;
}

bool WalkPayoff::decide(uint64_t walks) {
  std::array<double, kWays> times;
  const bool lost = rates(&times) && times[walked] > std::min(times[with_regions], times[alone]);
  lost_ = lost ? lost_ + 1 : 0;
  next_ = lost ? walks + tuning::kFirstTrial : tuning::kTrialGrowth * walks;
  return lost_ == 2;
}

WalkPayoff::Verdict WalkPayoff::judge_memos() {
  std::array<double, kWays> times;
  if (!rates(&times)) return unknown;
  const double part = times[walked] / std::min(times[with_regions], times[alone]);
  const bool wins = part < tuning::kMemoGain;
  if (++(wins ? won_ : lost_) < 2 && part > tuning::kClearMemoGain) return unknown;
  return wins ? won : lost;
}

}  // namespace dyc::py
