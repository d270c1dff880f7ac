// What loops in loops are scheduled by: segments. A segment is what one instance does in one turn of one
// loop, until it enters another loop or begins the next turn. A few thousand segments stand for a whole
// graph, and each follows one other; so several orders are tried, and the one with the fewest turns kept.
//
// An order gives each segment a time_step: in one time_step runs every segment of one loop that is ready.
// Time steps then are the rounds that nodes are put off to (Graph::rebucket). Whatever they are, the order of
// buckets is a legal one.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/loop_nest.h"

namespace dyc {

class Graph;

class SegmentSchedule {
 public:
  // Divides what is pending into segments and orders them.
  void order(Graph& graph, const LoopNest& nest);
  // The first round of a node's time_step, 0 for those that are not of loops in loops.
  uint32_t first_round(uint32_t node) const {
    const uint32_t s = of_[node].segment;
    return s == kNoSegment ? 0 : segments_[s].time_step * rounds_;
  }

 private:
  static constexpr uint32_t kNoSegment = 0xffffffffu;
  struct Segment {
    uint32_t parent, loop;  // parent: the segment that it follows
    uint32_t kind;          // by the site that it begins with: those of one kind run together
    uint32_t last;          // site that owns a weight
    uint64_t sites;         // all of those, as bits
    uint32_t child, sibling;
    float ahead;  // cost of the longest way from its begin to the end
    uint32_t time_step;
    // Sites are numbered as they first come: a turn of a loop goes through them in that order.
    bool admits(uint32_t other, uint32_t site) const { return loop == other && site > last; }
  };
  // Which kind is the most urgent: the one with the segment that has most ahead of it, or the one with the
  // largest sum of powers of that.
  static constexpr int kLongest = 0;
  struct Rule {
    int power;
    bool per_cost;  // divided by what a time_step of it costs
  };
  static constexpr Rule kRules[] = {{kLongest, true}, {4, true},         {8, true},
                                    {16, true},       {kLongest, false}, {8, false}};

  void divide(Graph& graph, const LoopNest& nest);
  uint32_t segment_of(Graph& graph, uint32_t node, uint32_t loop);
  uint32_t round_in_segment(Graph& graph, uint32_t node, uint32_t segment) const;
  uint32_t begin(uint32_t parent, uint32_t loop, uint32_t site);
  void measure_ahead();
  float run(Rule rule, float best);
  static float cost_of(uint64_t sites);
  static float urgency(float ahead, int power);

  std::vector<Segment> segments_;
  uint32_t rounds_ = 1;  // of a time_step: as many as the longest segment takes
  struct InSegment {
    uint32_t segment, round;
  };
  std::vector<InSegment> of_;         // of each node
  std::vector<uint32_t> time_steps_;  // of each segment, under the rule in hand
  struct Ready {
    std::vector<uint32_t> segments;
    uint64_t sites = 0;
    float urgency = 0;
  };
  std::vector<Ready> ready_;  // of each kind
  std::vector<uint32_t> running_;
  std::vector<uint32_t> kind_of_;  // site -> kind of the segments that begin with it
  uint32_t kinds_ = 0;
};

}  // namespace dyc
