// Launches that run together.
//
// Element-wise group: consecutive element-wise launches over equally many floats. A tile goes through all of
// them while it is in the cache. Fused group: consecutive launches whose node i reads, of the group, only
// what belongs to the same instance i. The group is cut into stages of one node per instance, which run one
// after the other for any range of instances.
#pragma once
#include <vector>

#include "plan/launch.h"
#include "plan/operands.h"

namespace dyc {

class Fuser {
 public:
  Fuser(Graph& graph, Plan& plan) : graph_(graph), plan_(plan) {}
  // Groups the launches from `first` on, which compute `nodes` nodes.
  void fuse(uint32_t first, uint32_t nodes);
  // Does each instance of a fused group add to gradients that no other instance adds to, products left aside?
  // Unless `exactly`, false where finding out would take long for what can be gained.
  bool gradients_disjoint(const Launch& head, bool exactly);

 private:
  uint32_t elementwise_end(uint32_t head) const;
  bool joins_elementwise(const Launch& head, uint32_t first, uint32_t last) const;
  uint32_t fused_end(uint32_t head, uint32_t begin, bool small);
  bool joins_group(uint32_t head, uint32_t at, uint32_t begin);
  void cut_stage(const Launch& l, uint32_t n, uint32_t j);
  bool reads_own_instance(const Launch& stage, int64_t low, uint32_t begin) const;
  bool outside(const Launch& stage, uint32_t k, int64_t low) const;
  bool made_by(const ReadRange& s, const Operand& o, uint32_t begin, uint32_t n) const;
  void close_group(Launch& head, uint32_t more, uint32_t begin);
  bool targets_disjoint();

  Graph& graph_;
  Plan& plan_;
  struct GradientTarget {  // an operand that a group adds gradients to
    Operand o;
    ReadRange range;
    int64_t size;
    uint32_t count;
  };
  struct InstanceRange {
    int64_t begin, end;
    uint32_t instance;
  };
  std::vector<GradientTarget> targets_;
  std::vector<InstanceRange> ranges_;
};

}  // namespace dyc
