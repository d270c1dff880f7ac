// Which results of a launch are downloaded when one of them is asked for: those that are read next as far as
// this was said; else as many, from that one on, as were asked for one by one so far. Where most were, all
// results of the next launch of the same signature come with the first.
#pragma once
#include <map>
#include <unordered_set>
#include <vector>

#include "exec/cuda/arena_range.h"
#include "plan/launch.h"

namespace dyc {

class LaunchReads {
 public:
  explicit LaunchReads(const Plan& plan) : plan_(plan) {}

  // This part of a launch's results is read next.
  void expect(uint32_t launch, ArenaRange part);
  // Parts that are downloaded now, in ascending order; none: the host has what is asked for.
  std::vector<ArenaRange> ask(uint32_t launch, ArenaRange part);
  // The host has nothing of these launches and those after them.
  void forget_from(uint32_t launch);

 private:
  enum State : uint8_t { kMissing, kExpected, kHere };
  struct Part {
    int64_t end;
    State state;
  };
  struct Results {
    std::vector<State> states;   // per node
    std::vector<uint8_t> asked;  // per node
    uint32_t n_asked = 0;        // nodes asked for and not expected
    uint32_t sig = 0;
    bool guessed = false;           // all come with the first
    std::map<int64_t, Part> parts;  // of large results; by beginning
  };

  Results& results_of(uint32_t launch);
  uint32_t node_at(const Launch& l, int64_t offset) const;
  ArenaRange range_of(const Launch& l, uint32_t node) const;
  bool is_small_part(const Launch& l, ArenaRange part) const;
  void note(Results& r, uint32_t node);
  static std::vector<ArenaRange> ask_part(Results& r, ArenaRange part);
  std::vector<ArenaRange> take(Results& r, const Launch& l, uint32_t first, uint32_t end, bool expected);

  const Plan& plan_;
  std::map<uint32_t, Results> results_;      // by launch
  std::unordered_set<uint32_t> read_whole_;  // signatures of launches of which most results are asked for
};

}  // namespace dyc
