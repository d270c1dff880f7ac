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
    const Sig* sig;
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
  // Indices of a node, where the op has any.
  Graph::Ids ids(const OpInfo& info, NodeId id) const { return info.ids() ? graph_.ids(id) : Graph::Ids{}; }
  bool wanted(const Launch& l, uint32_t k) const {
    return full_ || l.requires_grad_args >> (k < 31 ? k : 31) & 1;
  }
  // No two nodes add to the same gradient.
  bool distinct(const Launch& l) const;
  // The launch restricted to `live_nodes` of its nodes, those with live[node] != 0; its tables are appended
  // to the plan.
  Launch live_part(const Launch& l, const std::vector<uint8_t>& live, uint32_t live_nodes);
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
  struct RowSum {  // to += from, or to = from
    float* to;
    const float* from;
    size_t size;
    bool unset;
  };
  std::vector<RowSum> row_sums_;
};

}  // namespace dyc
