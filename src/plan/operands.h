// Finds where the arguments of a launch are stored, and describes them as compactly as possible: one offset,
// an offset and a stride, or a list of offsets.
#pragma once
#include <vector>

#include "plan/launch.h"
#include "plan/selection.h"

namespace dyc {

class OperandResolver {
 public:
  OperandResolver(Graph& graph, Plan& plan) : graph_(graph), plan_(plan) {}

  // A plan is extended by launches from `first_launch` on; returns how many of these to keep free for copies
  // of parameters, the first ones: as many as the last extension needed.
  uint32_t begin(uint32_t first_launch);
  // Offset of the value of a node. A parameter is first copied into the value arena.
  int64_t readable_offset(NodeId id);
  // Fills in the operands of a launch. `args`: where plan.index has the offsets of its arguments, one
  // argument after the other, or kNone.
  void resolve(Launch& l, uint32_t args);
  // Makes the launches that copy parameters, before all others of the extension.
  void insert_copies(const Selection& selection);

 private:
  void inspect_nodes(Launch& l);
  Operand weight_operand(const Launch& l, uint32_t k);
  uint32_t list_offsets(const Launch& l, uint32_t k);
  Operand mixed_operand(const Launch& l, uint32_t k, uint32_t begin);
  void resolve_lists(Launch& l);
  int64_t copy_parameter(NodeId id);

  Graph& graph_;
  Plan& plan_;
  uint32_t first_launch_ = 0, copies_expected_ = 0;
  std::vector<NodeId> copies_;    // parameters to copy into the value arena
  std::vector<const Sig*> sigs_;  // of the nodes of a launch, where they differ
};

// Operand k of a launch over nodes of equal shapes whose offsets plan.index has from `begin` on.
Operand operand_of_offsets(const Graph& graph, const Plan& plan, const Launch& l, uint32_t k, uint32_t begin);

// The least and the greatest of n > 0 offsets.
struct Extremes {
  int64_t least, greatest;
};
Extremes extremes(const int64_t* at, size_t n);

// Part of the value arena that an operand reads.
struct ReadRange {
  int64_t begin, end;
};
inline bool overlap(int64_t a, int64_t a_end, int64_t b, int64_t b_end) { return a < b_end && b < a_end; }
// [first, last + 1): the offsets that the nodes of a launch read through operand k.
ReadRange range_of(const Graph& graph, const Plan& plan, const Launch& l, uint32_t k);

}  // namespace dyc
