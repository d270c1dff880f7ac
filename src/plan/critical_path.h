// Why the nodes of one batch key are not one launch: which of them depend on each other.
#pragma once
#include <vector>

#include "plan/launch.h"

namespace dyc {

// The depth of a node: how many nodes of its batch key are on the longest path that ends with it, itself
// included. Nodes of one batch key and one depth do not depend on each other.
struct DepthRange {
  uint32_t least = 0, most = 0;
};

// Least and greatest depth among the nodes of each launch.
std::vector<DepthRange> critical_path_depths(const Graph& graph, const Plan& plan);

}  // namespace dyc
