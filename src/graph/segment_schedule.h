// A schedule for nested loops. A segment is what one instance records in one iteration of one loop, until it
// enters another loop or begins the next iteration. Each segment follows one other, and a few thousand
// segments represent a whole graph, so several priority rules are tried and the schedule of the lowest cost
// is kept.
//
// A schedule assigns each segment a time step; all segments of one time step begin at the same site and are
// ready. Graph::regroup() delays nodes to the rounds of their time steps. The order of buckets is legal for
// any schedule.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/loop_nest.h"
#include "graph/tuning.h"

namespace dyc {

class Graph;

class SegmentSchedule {
 public:
  // Divides what is pending into segments and orders them.
  void order(Graph& graph, const LoopNest& nest);
  // The first round of a node's time step; 0 for a node outside of nested loops.
  uint32_t first_round(uint32_t node) const {
    const uint32_t s = of_[node].segment;
    return s == kNoSegment ? 0 : segments_[s].time_step * rounds_;
  }

 private:
  static constexpr uint32_t kNoSegment = 0xffffffffu;
  struct Segment {
    uint32_t parent, loop;    // parent: the segment that it follows
    uint32_t kind;            // one for each first site: ready segments of one kind share a time step
    uint32_t last;            // the last site with a weight
    uint64_t sites;           // all sites with a weight, as bits modulo 64
    uint32_t child, sibling;  // last segment that follows this one; previous one that follows the same parent
    float ahead;              // cost of the longest path from here to the end
    uint32_t time_step;
    // Sites are numbered as they first appear, so an iteration of a loop visits them in ascending order.
    bool admits(uint32_t other, uint32_t site) const { return loop == other && site > last; }
  };

  void divide(Graph& graph, const LoopNest& nest);
  uint32_t segment_of(Graph& graph, uint32_t node, uint32_t loop);
  uint32_t round_in_segment(Graph& graph, uint32_t node, uint32_t segment) const;
  uint32_t begin(uint32_t parent, uint32_t loop, uint32_t site);
  void measure_ahead();
  float run(tuning::SegmentRule rule, float best);
  static float cost_of(uint64_t sites);
  static float urgency(float ahead, int power);

  std::vector<Segment> segments_;
  uint32_t rounds_ = 1;  // of a time_step: as many as the longest segment takes
  struct InSegment {
    uint32_t segment, round;
  };
  std::vector<InSegment> of_;         // of each node
  std::vector<uint32_t> time_steps_;  // of each segment, under the current rule
  struct Ready {
    std::vector<uint32_t> segments;
    uint64_t sites = 0;
    float urgency = 0;
  };
  std::vector<Ready> ready_;    // of each kind
  std::vector<float> urgency_;  // of each kind under the current rule; kNotReady: no segment is ready
  static constexpr float kNotReady = -1;
  std::vector<uint32_t> running_;
  std::vector<uint32_t> kind_of_;  // site -> kind of the segments that begin with it
  uint32_t kinds_ = 0;
};

}  // namespace dyc
