// What an executor runs, for any device. A launch is one batched kernel call: one op over the nodes of one or
// more buckets, which share a batch key. Its operands say where the arguments of its nodes are stored.
#pragma once
#include <cstdint>
#include <vector>

#include "base/vectors.h"
#include "graph/graph.h"

namespace dyc {

// Argument k of every node of a launch, as offsets (floats) into the value arena. Gradients have the same
// offsets in the gradient arena.
struct Operand {
  enum Kind : uint8_t {
    shared,      // every node reads the same value at `base`
    contiguous,  // one after the other without gaps, from `base` on; stride: floats of one argument, or 0:
                 // they differ, and each argument is as large as its node's result
    strided,     // base + i * stride
    indexed,     // Plan::index[index + i]
    weight,      // shared; resolved through the node when run (parameters keep their own storage)
    unused,
  };
  Kind kind = unused;
  NodeId node = kNone;  // weight: the node
  uint32_t index = 0;
  int64_t base = 0, stride = 0;
};

struct Launch {
  OpId op = 0;
  OpKind kind = OpKind::input;
  // All nodes have the shapes of `sig`; they may differ in which of their arguments take gradients.
  bool uniform = true;
  bool flat = false;  // all nodes are Sig::flat
  bool fixed_arity = true;
  bool requires_grad = false;       // gradients flow through it
  uint32_t requires_grad_args = 0;  // fixed arity: Sig::requires_grad_mask of all nodes together
  uint32_t sig = 0;                 // of the first node, or of one that takes all gradients
  uint32_t batch_key = 0;
  uint32_t count = 0;
  uint32_t nodes = 0;     // into Plan::nodes
  uint32_t operands = 0;  // into Plan::operands; one per argument (fixed arity) or one for all
  uint32_t n_operands = 0;
  uint32_t arg_begin = 0;  // variable arity: into Plan::starts, count + 1 entries
  uint32_t out_index = 0;  // not uniform: into Plan::index, offset of every result
  uint32_t elementwise =
      0;                // head of an element-wise group (plan/fuse.h): launches after it that belong to it
  uint32_t fused = 0;   // head of a fused group: launches after it that belong to it
  uint32_t stages = 0;  // of the fused group: into Plan::stages
  uint32_t n_stages = 0;
  uint32_t n_matmuls = 0;  // stages, the first ones, that are products and read nothing of the group
  // A product and the loss that alone reads its results: the loss's launch computes both, and the results are
  // not stored (plan/column_losses.h). kNone: no such pair.
  uint32_t loss = kNone;            // of the product and of what is between: number of the loss's launch
  uint32_t product = kNone;         // of the loss: number of the product's launch
  bool far = false;                 // the results' memory is at the far end of the arena
  bool disjoint_gradients = false;  // no two instances of the group add gradients to the same memory
  int64_t out = 0;                  // offset of the results, which are contiguous
  int64_t total = 0;                // floats of the results
};

// Sizes of a plan, to revert to.
struct PlanMark {
  size_t launches, operands, nodes, index, starts, stages;
};

// All launches of the current graph, in an order that respects every dependency.
struct Plan {
  std::vector<Launch> launches;
  std::vector<Operand> operands;
  std::vector<NodeId> nodes;
  std::vector<int64_t> index;
  std::vector<uint32_t> starts;
  std::vector<uint32_t> launch_of;  // per node; kNone for leaves and what is not planned
  std::vector<Launch> stages;       // of fused groups: parts of their launches with one node per instance

  void clear() {
    launches.clear();
    operands.clear();
    nodes.clear();
    index.clear();
    starts.clear();
    stages.clear();
    launch_of.clear();
  }
  size_t bytes() const {
    return bytes_in(launches) + bytes_in(operands) + bytes_in(nodes) + bytes_in(index) + bytes_in(starts) +
           bytes_in(launch_of) + bytes_in(stages);
  }
  PlanMark mark() const {
    return {launches.size(), operands.size(), nodes.size(), index.size(), starts.size(), stages.size()};
  }
  void revert(const PlanMark& m) {
    launches.resize(m.launches);
    operands.resize(m.operands);
    nodes.resize(m.nodes);
    index.resize(m.index);
    starts.resize(m.starts);
    stages.resize(m.stages);
  }
};

}  // namespace dyc
