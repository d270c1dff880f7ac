// Loops inside loops, found in what was recorded: in a component of the graph of sites, the sites that own a
// weight and occur more often than others, and feed each other without those, are an inner loop.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "graph/sites.h"

namespace dyc {

class LoopNest {
 public:
  static constexpr uint32_t kNoLoop = 0xffffffffu;       // of no component with loops in loops
  static constexpr uint32_t kFollowsArgs = 0xfffffffeu;  // owns no weight: goes with what it reads

  // Of sites and how many nodes each has. The phases must be those of the sites.
  void derive(const Sites& sites, const std::vector<uint32_t>& counts);
  bool any() const { return loops_ != 0; }
  // Of each site: the loop whose body it is part of.
  uint32_t loop(uint32_t site) const { return site < loop_.size() ? loop_[site] : kNoLoop; }

 private:
  void split(const Sites& sites, const std::vector<uint32_t>& counts, std::vector<uint32_t> members);
  std::vector<uint32_t> loop_;
  uint32_t loops_ = 0;
};

}  // namespace dyc
