// What loops in loops are scheduled by: steps. A step is what one instance does in one turn of one loop,
// until it enters another loop or begins the next turn. A few thousand steps stand for a whole graph, and
// each follows one other; so several orders are tried, and the one with the fewest turns kept.
//
// An order gives each step a tick: in one tick runs every step of one loop that is ready. Ticks then are the
// rounds that nodes are put off to (Graph::rebucket). Whatever they are, the order of buckets is a legal one.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/nests.h"

namespace dyc {

class Graph;

class Steps {
 public:
  // Divides what is unplaced into steps and orders them.
  void order(Graph& graph, const Nests& nests);
  // The first round of a node's tick, 0 for those that are not of loops in loops.
  uint32_t first_round(uint32_t node) const {
    const uint32_t s = of_[node].step;
    return s == kNoStep ? 0 : steps_[s].tick * rounds_;
  }

 private:
  static constexpr uint32_t kNoStep = 0xffffffffu;
  static constexpr uint32_t kSiblings = 8;  // looked at for one that a node may join
  struct Step {
    uint32_t parent, loop;  // parent: the step that it follows
    uint32_t kind;          // by the site that it begins with: those of one kind run together
    uint32_t last;          // site that owns a weight
    uint64_t sites;         // all of those, as bits
    uint32_t child, sibling;
    float ahead;  // cost of the longest way from its begin to the end
    uint32_t tick;
    // Sites are numbered as they first come: a turn of a loop goes through them in that order.
    bool admits(uint32_t other, uint32_t site) const { return loop == other && site > last; }
  };
  // Which kind is the most urgent: the one with the step that has most ahead of it, or the one with the
  // largest sum of powers of that.
  static constexpr int kLongest = 0;
  struct Rule {
    int power;
    bool per_cost;  // divided by what a tick of it costs
  };
  static constexpr Rule kRules[] = {{kLongest, true}, {4, true},         {8, true},
                                    {16, true},       {kLongest, false}, {8, false}};

  void divide(Graph& graph, const Nests& nests);
  uint32_t step_of(Graph& graph, uint32_t node, uint32_t loop);
  uint32_t round_in_step(Graph& graph, uint32_t node, uint32_t step) const;
  uint32_t begin(uint32_t parent, uint32_t loop, uint32_t site);
  void look_ahead();
  float run(Rule rule, float best);
  static float cost_of(uint64_t sites);
  static float urgency(float ahead, int power);

  std::vector<Step> steps_;
  uint32_t rounds_ = 1;  // of a tick: as many as the longest step takes
  struct InStep {
    uint32_t step, round;
  };
  std::vector<InStep> of_;       // of each node
  std::vector<uint32_t> ticks_;  // of each step, under the rule in hand
  struct Ready {
    std::vector<uint32_t> steps;
    uint64_t sites = 0;
    float urgency = 0;
  };
  std::vector<Ready> ready_;  // of each kind
  std::vector<uint32_t> running_;
  std::vector<uint32_t> kind_of_;  // site -> kind of the steps that begin with it
  uint32_t kinds_ = 0;
};

}  // namespace dyc
