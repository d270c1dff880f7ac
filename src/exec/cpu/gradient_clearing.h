// When gradients are zeroed: before the first launch that adds to them runs backward, which is the last one
// that reads the values, so that the zeros are still in the cache. Of a launch that takes part with some of
// its nodes only these are zeroed, as no other gradient is read: a chart has many scores, a loss few of them.
#pragma once
#include <vector>

#include "exec/cpu/gradient_aliases.h"

namespace dyc {

class GradientClearing {
 public:
  GradientClearing(const LaunchReader& launches, GradientAliases& aliases)
      : launches_(launches), aliases_(aliases), made_by_(launches) {}

  // Zeroes the gradients of `root`, the launch that backward begins at, and of results that no launch reads;
  // those of other results are left to before(), unless all are wanted `at_once`, and some are aliases. Not
  // for full gradients, which the caller zeroes.
  void begin(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes, uint32_t root,
             bool at_once);
  // Launches [begin, end) are about to run backward.
  void before(uint32_t begin, uint32_t end, const std::vector<uint8_t>& live,
              const std::vector<uint32_t>& live_nodes);

 private:
  void clear(const Launch& l, const std::vector<uint8_t>& live, uint32_t live_nodes) const;
  void find_readers(const std::vector<uint32_t>& live_nodes, uint32_t root);

  const LaunchReader& launches_;
  GradientAliases& aliases_;
  LaunchesByOffset made_by_;
  std::vector<uint32_t> last_reader_;               // per launch: of its results
  std::vector<uint32_t> first_clear_, next_clear_;  // per launch: lists of those it is the last reader of
};

}  // namespace dyc
