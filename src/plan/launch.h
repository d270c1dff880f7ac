// Launch records: what an executor runs, for any device. A launch is one op (one class) over the
// nodes of one or more buckets; operands say where each member's argument lies.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace dyc {

// Where argument k of every member lies, as offsets (floats) into the value arena; gradients lie at
// the same offsets in the gradient arena.
struct Operand {
  enum Kind : uint8_t {
    shared,      // every member reads the same value at `base`
    contiguous,  // member after member, without gaps, from `base` on; stride: one member's floats, or 0:
                 // nodes differ in size, each as large as its result
    strided,     // base + i * stride
    indexed,     // index_pool[index + i]
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
  bool uniform = true;  // all nodes have signature `sig`
  bool flat = false;    // all nodes are Sig::flat
  bool fixed_arity = true;
  bool requires_grad = false;  // gradients flow through it
  uint32_t requires_grad_args =
      0;             // fixed arity: bit k, some member's argument k takes a gradient (31: and beyond)
  uint32_t sig = 0;  // of the first member
  uint32_t batch_key = 0;
  uint32_t count = 0;
  uint32_t nodes = 0;     // into Plan::nodes
  uint32_t operands = 0;  // into Plan::operands; one per argument (fixed arity) or one for all
  uint32_t n_operands = 0;
  uint32_t arg_begin = 0;    // ragged arity: into Plan::starts, count + 1 entries
  uint32_t out_index = 0;    // not uniform: into Plan::index, offset of every member
  uint32_t elementwise = 0;  // this many launches after it are fused with it: element-wise, equal membership
  uint32_t fused = 0;        // this many launches after it are of one block with it: see Plan::stages
  uint32_t stages = 0;       // of a block: into Plan::stages
  uint32_t n_stages = 0;     //
  uint32_t n_matmuls = 0;    // of a block: so many stages, the first, are products that read nothing of it
  bool disjoint_gradients =
      false;          // of a block: gradients of different instances never go to the same memory
  int64_t out = 0;    // output block
  int64_t total = 0;  // floats in it
};

// All launches of the current graph, in an order that respects every dependency.
struct Plan {
  std::vector<Launch> launches;
  std::vector<Operand> operands;
  std::vector<NodeId> nodes;
  std::vector<int64_t> index;
  std::vector<uint32_t> starts;
  std::vector<uint32_t> launch_of;  // per node; kNone for leaves and what is not planned
  // Blocks: launches that run together, cut into stages of as many nodes, one of each instance. KernelArgs
  // i of a stage reads what an earlier stage made of the same instance i, or what was there before the block,
  // so that the stages may run one after the other for any range of instances. Products that read nothing of
  // the block come first.
  std::vector<Launch> stages;

  void clear() {
    launches.clear();
    operands.clear();
    nodes.clear();
    index.clear();
    starts.clear();
    stages.clear();
    launch_of.clear();
  }
  struct Mark {
    size_t launches, operands, nodes, index, starts, stages;
  };
  Mark mark() const {
    return {launches.size(), operands.size(), nodes.size(), index.size(), starts.size(), stages.size()};
  }
  void revert(const Mark& m) {
    launches.resize(m.launches);
    operands.resize(m.operands);
    nodes.resize(m.nodes);
    index.resize(m.index);
    starts.resize(m.starts);
    stages.resize(m.stages);
  }
};

}  // namespace dyc
