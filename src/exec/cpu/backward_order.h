// In which order backward runs launches of a graph that was computed in pieces, and which of them it runs as
// one. A script that reads values as it goes (a parser that explores its own errors, an agent, minibatches of
// sentences that are each decoded) has its graph computed by many small launches. Backward knows all of them:
// the longest way from a launch to the root says when its gradient is complete, and launches that are equally
// far and differ in nothing but their nodes run together.
#pragma once
#include <span>
#include <vector>

#include "exec/launch_reader.h"

namespace dyc {

class BackwardOrder {
 public:
  explicit BackwardOrder(const LaunchReader& launches) : launches_(launches) {}

  // For the launches that have live nodes. False: launches are to run one by one, in reverse.
  bool find(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes);
  uint32_t groups() const { return static_cast<uint32_t>(groups_.size()); }
  // Numbers of the launches that run together, the last one first.
  std::span<const uint32_t> group(uint32_t i) const {
    return {numbers_.data() + groups_[i].begin, groups_[i].end - groups_[i].begin};
  }

 private:
  bool repeats(const std::vector<uint32_t>& live_nodes);
  void find_levels(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes);
  bool is_small(const Launch& l) const;
  bool may_join(const Launch& a, const Launch& b) const;

  const LaunchReader& launches_;
  struct LaunchGroup {
    uint32_t begin, end;  // in numbers_
  };
  std::vector<LaunchGroup> groups_;
  std::vector<uint32_t> numbers_;
  std::vector<uint32_t> levels_;  // per launch: launches on the longest way to the root
  std::vector<uint8_t> seen_;     // by batch key
};

}  // namespace dyc
