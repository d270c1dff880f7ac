// Reads launches of a plan: what each node of a launch is, where its arguments are stored, and which columns
// a matrix operand has. What the executors of all devices and their parts have in common.
#pragma once
#include <cstring>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "exec/tuning.h"
#include "plan/planner.h"

namespace dyc {

// What is added to the gradient of one row of a table.
struct RowGradient {
  Storage* storage;
  uint32_t row;
  bool single;   // read on its own, not in a batch
  int64_t from;  // offset in the gradient arena; < 0: the row is only marked
};

// The sums that were added to zeros: where one is -0, that is 0.
inline void store_sums(float* to, const float* sums, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = 0.f + sums[i];
}

// f(begin, end) over `n` pieces of work that only moves so many floats in all. Threads share many of them.
template <class F>
void for_copies(size_t n, int64_t floats, F&& f) {
  const size_t chunks = static_cast<size_t>(floats / tuning::kCopiedFloats) + 1;
  parallel_for(n, (n + chunks - 1) / chunks, f);
}

inline void clear_floats(float* to, size_t n) {
  for_copies(n, static_cast<int64_t>(n),
             [to](size_t begin, size_t end) { std::memset(to + begin, 0, (end - begin) * sizeof(float)); });
}

class LaunchReader {
 public:
  LaunchReader(Graph& graph, Plan& plan) : graph_(graph), plan_(plan) {}

  Graph& graph() const { return graph_; }
  Plan& plan() const { return plan_; }
  // Backward: every argument takes a gradient, whether it requires one or not.
  bool full() const { return full_; }

  // A node of a launch.
  struct Item {
    const Sig* sig;  // its own or, in a uniform launch, that of the launch
    NodeId id;
    int64_t out;  // offset of its result
  };
  Item item(const Launch& l, uint32_t i) const {
    const NodeId id = plan_.nodes[l.nodes + i];
    if (l.uniform) {
      const Sig& s = graph_.sig_number(l.sig);
      return {&s, id, l.out + int64_t{i} * s.size};
    }
    return {&graph_.sig(id), id, plan_.index[l.out_index + i]};
  }
  const Operand& operand(const Launch& l, uint32_t k) const { return plan_.operands[l.operands + k]; }
  // Offset of the argument of node i.
  int64_t argument(const Launch& l, const Operand& o, uint32_t i) const {
    switch (o.kind) {
      case Operand::contiguous:
        if (o.stride) return o.base + i * o.stride;
        return o.base + (plan_.index[l.out_index + i] - l.out);
      case Operand::strided:
        return o.base + i * o.stride;
      case Operand::indexed:
        return plan_.index[o.index + i];
      default:
        return o.base;
    }
  }
  // f(floats, x, y, z) for the nodes [begin, end) of a flat launch of one or two arguments: offsets of these
  // (y: 0 where there is one) and of the result.
  template <class F>
  void each_flat(const Launch& l, uint32_t begin, uint32_t end, F&& f) const;
  // Indices or number of a node, where the op has any.
  Graph::Ids ids(const OpInfo& info, NodeId id) const { return info.ids() ? graph_.ids(id) : Graph::Ids{}; }
  bool wanted(const Launch& l, uint32_t k) const {
    return full_ || l.requires_grad_args >> Sig::mask_bit(k) & 1;
  }
  // No two nodes add to the same gradient.
  bool distinct(const Launch& l) const;
  // The live nodes of these launches as one launch: those with live[node] != 0, or all of launches that have
  // live_nodes[launch] == count. They differ in nothing but their nodes; its tables are appended to the plan.
  Launch live_part(std::span<const uint32_t> launches, const std::vector<uint8_t>& live,
                   const std::vector<uint32_t>& live_nodes);
  // Throws where an index is out of range. Indices may change without the graph changing, so this is called
  // each time that a launch runs.
  void check(const Launch& l) const;
  // The same for a lookup that asks for a row which the table does not have.
  static void check_rows(const Storage& storage, const Graph::Ids& ids);
  // Bytes that a launch reads.
  uint64_t operand_bytes(const Launch& l) const;

  // Columns of a matrix operand over all nodes, in the order of nodes.
  struct Columns {
    int64_t base = 0, stride = 0;
    const int64_t* index = nullptr;
    int64_t count = 0;
    int64_t at(int64_t j) const { return base + (index ? index[j] : j * stride); }
  };
  // `memory` holds the index, where one has to be made.
  Columns columns(const Launch& l, const Operand& o, uint32_t k, std::vector<int64_t>& memory) const;
  Columns result_columns(const Launch& l, std::vector<int64_t>& memory) const;

  // ---- gradients of parameters, on the host
  // Has the last backward pass found a gradient to add to the parameter's?
  bool has_gradient(const ParameterUse& use) const {
    return use.gradient >= 0 && graph_.node(use.node).flags & Node::requires_grad;
  }
  void add_to_storage(const ParameterUse& use) const;
  void add_to_storage(std::span<const RowGradient> rows);
  float* grads() const { return graph_.grads_arena.base(); }

 protected:
  Graph& graph_;
  Plan& plan_;
  bool full_ = false;

 private:
  // Of argument k of the nodes of a uniform flat launch: `base + i * stride`, or `index[i]`.
  struct Offsets {
    int64_t base = 0, stride = 0;
    const int64_t* index = nullptr;
    int64_t at(uint32_t i) const { return index ? index[i] : base + i * stride; }
  };
  Offsets offsets(const Operand& o, uint32_t size) const {
    if (o.kind == Operand::indexed) return {0, 0, plan_.index.data() + o.index};
    if (o.kind == Operand::contiguous) return {o.base, size};
    return {o.base, o.kind == Operand::strided ? o.stride : 0};
  }
  struct RowSum {  // to += from, or to = from
    float* to;
    const float* from;
    size_t size;
    bool unset;
  };
  std::vector<RowSum> row_sums_;
  struct Kept {  // a node of live_part()
    uint32_t launch, number;
  };
  void add_arguments(Launch& part, uint32_t operands);
  std::vector<Kept> kept_;
};

// What the loop reads is in registers: calls of kernels in f() might change anything that is in memory.
template <class F>
void LaunchReader::each_flat(const Launch& l, uint32_t begin, uint32_t end, F&& f) const {
  const Operand* o = plan_.operands.data() + l.operands;
  const bool unary = l.kind == OpKind::unary;
  if (!l.uniform) {
    for (uint32_t i = begin; i < end; ++i) {
      const Item it = item(l, i);
      f(it.sig->size, argument(l, o[0], i), unary ? 0 : argument(l, o[1], i), it.out);
    }
    return;
  }
  const uint32_t size = graph_.sig_number(l.sig).size;
  const Offsets x = offsets(o[0], size), y = unary ? Offsets{} : offsets(o[1], size);
  int64_t z = l.out + int64_t{begin} * size;
  for (uint32_t i = begin; i < end; ++i, z += size) f(size, x.at(i), y.at(i), z);
}

}  // namespace dyc
