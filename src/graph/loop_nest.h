// Nested loops, found in what was recorded. A loop is a strongly connected component of the graph of sites (a
// phase). Sites with a weight that occur more often than the others of their component, and still form a
// cycle without these, are an inner loop.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "graph/sites.h"

namespace dyc {

class LoopNest {
 public:
  static constexpr uint32_t kNoLoop = 0xffffffffu;  // in no component with nested loops
  static constexpr uint32_t kFollowsArgs =
      0xfffffffeu;  // has no weight: belongs to the loop of what it reads

  // `counts`: nodes of each site. Phases have been derived.
  void derive(const Sites& sites, const std::vector<uint32_t>& counts);
  bool any() const { return loops_ != 0; }
  // The innermost loop that contains the site.
  uint32_t loop(uint32_t site) const { return site < loop_.size() ? loop_[site] : kNoLoop; }

 private:
  void split(const Sites& sites, const std::vector<uint32_t>& counts, std::vector<uint32_t> component);
  std::vector<uint32_t> loop_;
  uint32_t loops_ = 0;
};

}  // namespace dyc
