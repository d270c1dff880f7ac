// Launches that run together: chains of element-wise ones, products of one input.
#include <algorithm>

#include "plan/planner.h"

namespace dyc {

namespace {

bool flat_elementwise(const Launch& l) { return l.form == Form::unary || (l.form == Form::binary && l.flat); }

}  // namespace

// Runs of element-wise launches over the same number of floats, each reading what lies element for
// element beside its result, become one: a tile goes through all of them while it is in the cache.
void Planner::fuse_chains(uint32_t first) {
  const uint32_t n = static_cast<uint32_t>(plan.launches.size());
  for (uint32_t head = first; head < n;) {
    uint32_t end = head + 1;
    if (flat_elementwise(plan.launches[head]) && joins_chain(plan.launches[head], head, head))
      while (end < n && joins_chain(plan.launches[head], head, end)) ++end;
    plan.launches[head].chain = end - head - 1;
    head = end;
  }
}

// May launch `last` run tile by tile together with [first, last)? Every operand of it and of those
// before must be one gapless block that is a result of the chain from its start, or is apart from all
// results; and two such blocks outside coincide or are apart (their gradients are added to in tiles).
bool Planner::joins_chain(const Launch& head, uint32_t first, uint32_t last) const {
  const Launch& l = plan.launches[last];
  const int64_t total = head.total;
  if (!flat_elementwise(l) || l.total != total || last - first >= 16) return false;
  auto apart = [total](int64_t a, int64_t b) { return a + total <= b || b + total <= a; };
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    const Operand& o = plan.operands[l.operands + k];
    if (o.kind != Operand::contiguous) return false;
    for (uint32_t i = first; i <= last; ++i) {
      const Launch& other = plan.launches[i];
      if (o.base != other.out && !apart(o.base, other.out)) return false;
      for (uint32_t j = 0; j < other.n_operands; ++j) {
        const int64_t base = plan.operands[other.operands + j].base;
        if (o.base != base && !apart(o.base, base)) return false;
      }
    }
  }
  return true;
}

// Neighbouring products of one input with several weights (the gates of a cell) are one grouped GEMM.
void Planner::group_products(uint32_t first) {
  const uint32_t n = static_cast<uint32_t>(plan.launches.size());
  for (uint32_t head = first; head < n;) {
    uint32_t end = head + 1;
    while (end < n && end - head < 16 && same_input(plan.launches[head], plan.launches[end]) &&
           !reads_results(end, head))
      ++end;
    plan.launches[head].group = end - head - 1;
    head = end;
  }
}

// Does the launch have an operand (a computed weight, say) that launches from `first` on produce?
bool Planner::reads_results(uint32_t launch, uint32_t first) const {
  const Launch& l = plan.launches[launch];
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    const int64_t base = plan.operands[l.operands + k].base;
    for (uint32_t i = first; i < launch; ++i)
      if (base >= plan.launches[i].out && base < plan.launches[i].out + plan.launches[i].total) return true;
  }
  return false;
}

// One weight and one input each, the input of both the same columns.
bool Planner::same_input(const Launch& a, const Launch& b) const {
  if (a.form != Form::matmul || b.form != Form::matmul || a.count != b.count || !a.uniform || !b.uniform)
    return false;
  const Sig &sa = graph_.sig_number(a.sig), &sb = graph_.sig_number(b.sig);
  if (!sa.columns || !sb.columns || sa.bias_per_column || sb.bias_per_column) return false;
  const uint32_t ka = a.n_operands - 1, kb = b.n_operands - 1;  // b W x, or W x: the input is last
  if (ka > 2 || kb > 2 || !(*sa.x[ka] == *sb.x[kb])) return false;
  const Operand &x = plan.operands[a.operands + ka], &y = plan.operands[b.operands + kb];
  if (x.kind != y.kind || x.base != y.base || x.stride != y.stride) return false;
  return x.kind != Operand::indexed ||
         std::equal(plan.index.begin() + x.index, plan.index.begin() + x.index + a.count,
                    plan.index.begin() + y.index);
}

}  // namespace dyc
