// Which launches run backward at once. A script that reads values while it records (the scores of a parser's
// every step, one loss of a minibatch after the other) gets a plan, and launches of a few nodes, for every
// read. Gradients can wait: launches of one batch key that are equally far from the loss, counted along the
// longest way, read nothing of each other, and run backward as one.
#pragma once
#include <span>
#include <vector>

#include "exec/launch_reader.h"

namespace dyc {

class BackwardOrder {
 public:
  explicit BackwardOrder(const LaunchReader& launches) : launches_(launches) {}

  // False: too little can be joined, so launches run in reverse order. `live`: of each node, whether it takes
  // part.
  bool find(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes);

  // Launches [begin, end), a fused or element-wise group or a single launch; or the launches `joined`.
  struct Step {
    uint32_t begin, end;
    std::span<const uint32_t> joined;
  };
  // f(step) in an order in which a launch comes after all that read it.
  template <class F>
  void for_each(F&& f) const {
    for (const Unit *u = units_.data(), *const stop = u + units_.size(); u < stop;) {
      const Unit* next = u + 1;
      while (next < stop && next->group == u->group) ++next;
      const auto n = static_cast<size_t>(next - u);
      const auto first = static_cast<size_t>(u - units_.data());
      f(n == 1 ? Step{u->begin, u->end, {}} : Step{0, 0, {numbers_.data() + first, n}});
      u = next;
    }
  }

 private:
  struct Unit {
    uint32_t begin, end;  // launches
    uint32_t level, group;
  };
  void add(uint32_t begin, uint32_t end);
  void raise_arguments(uint32_t launch, uint32_t level);
  bool is_small(uint32_t begin, uint32_t end) const;
  bool may_join(const Launch& a, const Launch& b) const;
  void join();
  uint32_t group_of(uint32_t unit);

  const LaunchReader& launches_;
  const std::vector<uint8_t>* live_ = nullptr;
  const std::vector<uint32_t>* live_nodes_ = nullptr;
  std::vector<uint32_t> levels_;        // per launch
  std::vector<Unit> units_;             // in the order of steps
  std::vector<uint32_t> numbers_;       // of their launches
  std::vector<uint32_t> firsts_;        // of each group: its first unit
  std::vector<uint32_t> group_of_key_;  // while they are joined, by batch key: the last group
};

}  // namespace dyc
