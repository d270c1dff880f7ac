// Launches that run together: blocks of products and what follows them instance by instance, and chains of
// element-wise launches.
#include <algorithm>

#include "plan/planner.h"

namespace dyc {

namespace {

constexpr uint32_t kMostLaunches = 24, kMostStages = 48;  // in a block
constexpr uint32_t kManyNodes = 512;        // of a graph whose smallest launches, too, are worth blocks
constexpr int64_t kWorthPlanning = 256;     // floats of the first launch, in other graphs
constexpr size_t kLargeWeight = 1 << 16;    // floats
constexpr int64_t kWorthSorting = 1 << 15;  // floats of a block that are worth more than a linear look

bool flat_elementwise(const Launch& l) {
  return l.kind == OpKind::unary || (l.kind == OpKind::binary && l.flat);
}

bool overlap(int64_t a, int64_t a_end, int64_t b, int64_t b_end) { return a < b_end && b < a_end; }

}  // namespace

void Planner::fuse(uint32_t first) {
  const uint32_t n = static_cast<uint32_t>(plan.launches.size());
  for (uint32_t head = first; head < n;) {
    const uint32_t begin = static_cast<uint32_t>(plan.stages.size());
    uint32_t end = fused_end(head, begin);
    if (end - head > 1) {
      close_group(plan.launches[head], end - head - 1, begin);
    } else {
      end = elementwise_end(head);
      plan.launches[head].elementwise = end - head - 1;
    }
    head = end;
  }
}

// ---------------------------------------------------------------- chains

// Runs of element-wise launches over the same number of floats, each reading what lies element for
// element beside its result, become one: a tile goes through all of them while it is in the cache.
uint32_t Planner::elementwise_end(uint32_t head) const {
  const Launch& l = plan.launches[head];
  uint32_t end = head + 1;
  if (!flat_elementwise(l) || !joins_elementwise(l, head, head)) return end;
  while (end < plan.launches.size() && joins_elementwise(l, head, end)) ++end;
  return end;
}

// May launch `last` run tile by tile together with [first, last)? Every operand of it and of those
// before must be one gapless block that is a result of the chain from its start, or is apart from all
// results; and two such blocks outside coincide or are apart (their gradients are added to in tiles).
bool Planner::joins_elementwise(const Launch& head, uint32_t first, uint32_t last) const {
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

// ---------------------------------------------------------------- blocks

// As many launches from `head` on as make one block; their stages are those of plan.stages from `begin` on.
// One instance alone is worth a block for the sake of its products only: a chain runs in parts of an
// instance. In a small graph, a few floats are not worth the planning.
uint32_t Planner::fused_end(uint32_t head, uint32_t begin) {
  const Launch& l = plan.launches[head];
  const Sig& sig = graph_.sig_number(l.sig);
  const bool product = l.kind == OpKind::matmul && sig.n_args > 1, small = pending_ < kManyNodes;
  if (small && l.total < kWorthPlanning) return head + 1;
  if (l.count == 1 && !product) return head + 1;
  if (l.count == 1 && small && sig.x[l.op == op_id<Affine>]->size() < kLargeWeight) return head + 1;
  uint32_t end = head;
  while (end < plan.launches.size() && end - head < kMostLaunches && joins_group(head, end, begin)) ++end;
  if (end - head > 1) return end;
  plan.stages.resize(begin);
  return head + 1;
}

// Cuts launch `at` into stages if it may be of the block from launch `head`, whose stages begin at `begin`.
bool Planner::joins_group(uint32_t head, uint32_t at, uint32_t begin) {
  const Launch& l = plan.launches[at];
  const uint32_t n = plan.launches[head].count;
  const bool product = l.kind == OpKind::matmul;
  if (!l.uniform || !l.fixed_arity || l.count % n != 0 || l.total == 0) return false;
  if (!product && l.kind != OpKind::unary && l.kind != OpKind::binary && l.kind != OpKind::per_node)
    return false;
  if (product && (l.count != n || !graph_.sig_number(l.sig).columns)) return false;
  const uint32_t cuts = l.count / n;
  if (plan.stages.size() - begin + cuts > kMostStages) return false;
  const size_t before = plan.stages.size(), operands = plan.operands.size();
  for (uint32_t j = 0; j < cuts; ++j) {
    cut_stage(plan.launches[at], n, j);
    if (reads_own_instance(plan.stages.back(), plan.launches[head].out, begin)) continue;
    plan.stages.resize(before);
    plan.operands.resize(operands);
    return false;
  }
  return true;
}

// Members [j n, (j + 1) n) of a launch as one of their own.
void Planner::cut_stage(const Launch& l, uint32_t n, uint32_t j) {
  Launch stage = l;
  const Sig& sig = graph_.sig_number(l.sig);
  const uint32_t from = j * n;
  stage.count = n;
  stage.nodes += from;
  stage.out += int64_t{from} * sig.size;
  stage.total = int64_t{n} * sig.size;
  if (l.count == n) {  // as a whole
    plan.stages.push_back(stage);
    return;
  }
  stage.operands = static_cast<uint32_t>(plan.operands.size());
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    Operand o = plan.operands[l.operands + k];
    if (o.kind == Operand::indexed) o = operand_of_offsets(stage, k, o.index + from);
    else if (o.kind == Operand::contiguous || o.kind == Operand::strided) o.base += from * o.stride;
    plan.operands.push_back(o);
  }
  plan.stages.push_back(stage);
}

// First and last place that the nodes read through an operand, and one further.
Planner::MemoryRange Planner::range_of(const Launch& l, uint32_t k) const {
  const Operand& o = plan.operands[l.operands + k];
  const int64_t size = graph_.sig_number(l.sig).x[k]->size();
  if (o.kind == Operand::indexed) {
    const int64_t* const at = plan.index.data() + o.index;
    int64_t low = at[0], high = at[0];
    for (uint32_t i = 1; i < l.count; ++i) {  // without branches that depend on the places
      low = std::min(low, at[i]);
      high = std::max(high, at[i]);
    }
    return {low, high + size};
  }
  const bool run = o.kind == Operand::contiguous || o.kind == Operand::strided;
  const int64_t last = o.base + (run ? int64_t{l.count - 1} * o.stride : 0);
  return {std::min(o.base, last), std::max(o.base, last) + size};
}

// Everything that a stage reads of the block, whose results begin at `low`, must be of the same instance.
bool Planner::reads_own_instance(const Launch& stage, int64_t low, uint32_t begin) const {
  for (uint32_t k = 0; k < stage.n_operands; ++k) {
    const Operand& o = plan.operands[stage.operands + k];
    if (o.kind == Operand::weight && o.base < 0) continue;  // in the parameter's own storage
    const MemoryRange s = range_of(stage, k);
    if (s.end <= low || s.begin >= stage.out + stage.total) continue;
    if (o.kind != Operand::contiguous && o.kind != Operand::strided) {
      if (o.kind == Operand::indexed && outside(stage, k, low)) continue;
      return false;
    }
    if (!made_by(s, o, begin, stage.count)) return false;
  }
  return true;
}

bool Planner::outside(const Launch& stage, uint32_t k, int64_t low) const {
  const int64_t size = graph_.sig_number(stage.sig).x[k]->size(), *at = plan.index.data();
  at += plan.operands[stage.operands + k].index;
  return std::none_of(at, at + stage.count,
                      [&](int64_t a) { return overlap(a, a + size, low, stage.out + stage.total); });
}

// Is an evenly spaced operand part of the results of an earlier stage, instance for instance?
bool Planner::made_by(const MemoryRange& s, const Operand& o, uint32_t begin, uint32_t n) const {
  for (uint32_t i = begin; i < plan.stages.size(); ++i) {
    const Launch& p = plan.stages[i];
    const int64_t size = p.total / n, stop = p.out + p.total;
    if (!overlap(s.begin, s.end, p.out, stop)) continue;
    const int64_t length = s.end - s.begin - int64_t{n - 1} * size;  // what one instance reads of it
    if (&p == &plan.stages.back()) return false;                     // itself
    return o.base >= p.out && s.end <= stop && o.base - p.out + length <= size &&
           (n == 1 || o.stride == size);
  }
  return false;
}

// Puts products that read nothing of the block first, and notes what an executor must know.
void Planner::close_group(Launch& head, uint32_t more, uint32_t begin) {
  head.fused = more;
  head.stages = begin;
  head.n_stages = static_cast<uint32_t>(plan.stages.size()) - begin;
  const auto reads_none = [&](const Launch& p) {
    for (uint32_t k = 0; k < p.n_operands; ++k) {
      const Operand& o = plan.operands[p.operands + k];
      if (o.kind == Operand::weight) continue;
      const MemoryRange s = range_of(p, k);
      if (o.kind == Operand::indexed ? !outside(p, k, head.out) : overlap(s.begin, s.end, head.out, p.out))
        return false;
    }
    return true;
  };
  const auto stages = plan.stages.begin() + begin;
  const auto rest = std::stable_partition(
      stages, plan.stages.end(), [&](const Launch& p) { return p.kind == OpKind::matmul && reads_none(p); });
  head.n_matmuls = static_cast<uint32_t>(rest - stages);
  head.disjoint_gradients = gradients_disjoint(head);
}

// Do stages other than products, run for one range of instances after the other, add to gradients that no
// other instance adds to?
bool Planner::gradients_disjoint(const Launch& head) {
  targets_.clear();
  int64_t floats = 0;
  bool sorted = true;
  const auto stages = plan.stages.begin() + head.stages;
  int64_t stop = 0;  // of the results of the block
  for (auto p = stages; p != stages + head.n_stages; ++p) stop = std::max(stop, p->out + p->total);
  for (auto p = stages; p != stages + head.n_stages; ++p) {
    if (p->kind == OpKind::matmul) continue;
    floats += p->total;
    for (uint32_t k = 0; k < p->n_operands; ++k) {
      const Operand& o = plan.operands[p->operands + k];
      const int64_t size = graph_.sig_number(p->sig).x[k]->size();
      if (o.kind == Operand::shared && p->count > 1) return false;
      if (o.kind != Operand::indexed && o.base >= head.out && o.base < stop)
        continue;  // of the same instance
      const MemoryRange s = range_of(*p, k);
      bool rising = true;
      if (o.kind == Operand::indexed)
        for (uint32_t i = 1; i < p->count; ++i)
          rising = rising && plan.index[o.index + i] - plan.index[o.index + i - 1] >= size;
      else rising = p->count == 1 || o.stride >= size;
      const auto same = [&](const GradientTarget& t) {
        return o.kind != Operand::indexed && t.o.kind == o.kind && t.o.base == o.base &&
               t.o.stride == o.stride;
      };
      for (const GradientTarget& t : targets_)
        sorted = sorted && (same(t) || !overlap(s.begin, s.end, t.span.begin, t.span.end));
      sorted = sorted && rising;
      targets_.push_back({o, s, size, p->count});
    }
  }
  if (sorted) return true;
  return floats >= kWorthSorting && targets_disjoint();
}

// The same by looking at every target.
bool Planner::targets_disjoint() {
  ranges_.clear();
  for (const GradientTarget& t : targets_)
    for (uint32_t i = 0; i < t.count; ++i) {
      const int64_t at = t.o.kind == Operand::indexed ? plan.index[t.o.index + i] : t.o.base + i * t.o.stride;
      ranges_.push_back({at, at + t.size, i});
    }
  std::sort(ranges_.begin(), ranges_.end(),
            [](const GradientRange& a, const GradientRange& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges_.size(); ++i) {
    GradientRange &before = ranges_[i - 1], &p = ranges_[i];
    if (p.begin >= before.end) continue;
    if (p.instance != before.instance) return false;
    p.end = std::max(p.end, before.end);
  }
  return true;
}

}  // namespace dyc
