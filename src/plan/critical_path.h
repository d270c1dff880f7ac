// Why launches of one class are not one launch: which of them need each other.
#pragma once
#include <vector>

#include "plan/launch.h"

namespace dyc {

// The depth of a node: how many nodes of its launch class are on the longest chain that ends with it, itself
// included. Nodes of one class and one depth do not depend on each other.
struct DepthRange {
  uint32_t least = 0, most = 0;
};

// Of the nodes of each launch.
std::vector<DepthRange> critical_path_depths(const Graph& graph, const Plan& plan);

}  // namespace dyc
