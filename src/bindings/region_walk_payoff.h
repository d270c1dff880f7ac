// Are walks of a function faster than its statements?
//
// After some walks a trial begins, in which some calls are walks, the next ones runs of the statements with
// their regions, and the next ones runs of the statements alone. The time for each recorded node decides.
// The rewritten statements tell the function's object (region_walked_function.cc) that they have run by
// passing on what they return.
#pragma once
#include <array>
#include <vector>

#include "bindings/call_cost.h"
#include "bindings/expression.h"
#include "bindings/tuning.h"

namespace dyc::py {

class WalkPayoff {
 public:
  enum Way : uint8_t { walked, with_regions, alone, kWays };

  // Is it time for a trial, after so many walks?
  bool is_trial(uint64_t walks) const { return hints_are_timed && walks >= next_; }
  // How the next call of the trial runs; kWays: it was the last one.
  Way turn();
  void add(Way way, double ns, uint32_t nodes);
  // Ends the trial. True: walks have lost, clearly or not for the first time.
  bool decide(uint64_t walks);
  // Ends the trial of memos, whose replays stand for the walks. Have they won or lost clearly, or twice? None
  // of these: begin again. They have won, too, where the statements cannot be timed.
  enum Verdict : uint8_t { unknown, won, lost };
  Verdict judge_memos();

 private:
  struct Run {
    double ns;
    uint32_t nodes;
  };
  static double rate(std::vector<Run>& runs);
  double part_of_others();

  uint64_t next_ = tuning::kFirstTrial;  // number of walks
  uint32_t turns_ = 0;                   // of the trial, in each of which calls run in the same way
  uint32_t calls_ = 0, nodes_ = 0;       // of the turn
  uint32_t lost_ = 0, won_ = 0, untimed_ = 0;
  std::array<std::vector<Run>, kWays> runs_;  // of the trial
};

// A run of the statements of a walked function that is timed. There is one at a time. It does not count if
// the function fails, or if anything was computed meanwhile.
class TimedStatements {
 public:
  // `alone`: regions, and other functions that could be walked, rest during the run.
  void begin(const void* function, const Engine& engine, bool alone);
  // Does it run in this thread, and record into the graph in which it began? No longer where fewer functions
  // run than when it began, or after kTimedCallsInside calls: it may have failed, which is not told.
  bool is_on() { return function_ && is_current(); }
  // A function is called. True: its statements must run, as it is called by this one, or as others rest.
  bool enter(const void* function);
  // The function returns. Where the run ends by that, it is added to what is known of its way.
  void leave(const void* function, WalkPayoff& payoff);
  // Must the statements of a region run?
  bool rests() { return alone_ && is_on() && ++rested_; }

 private:
  bool is_current();

  const void* function_ = nullptr;  // null: none is timed
  bool alone_ = false;
  const PyThreadState* thread_ = nullptr;
  const Engine* engine_ = nullptr;
  uint32_t generation_ = 0, size_ = 0;  // of the graph
  int depth_ = 0;                       // levels of recursion that were left when it began
  uint64_t flushes_ = 0;
  uint32_t inside_ = 0;              // calls of the function inside one another
  uint32_t rested_ = 0, asked_ = 0;  // regions, functions
  int64_t start_ = 0;
};
inline TimedStatements timed_statements;  // guarded by the interpreter lock

}  // namespace dyc::py
