#include "plan/fuse.h"

#include <algorithm>

#include "plan/tuning.h"

namespace dyc {

namespace {

bool flat_elementwise(const Launch& l) {
  return l.kind == OpKind::unary || (l.kind == OpKind::binary && l.flat);
}

// Does ColumnLosses run the launch, with others? It is not fused.
bool is_alone(const Launch& l) { return l.far || l.product != kNone; }

}  // namespace

void Fuser::fuse(uint32_t first, uint32_t nodes) {
  const uint32_t n = static_cast<uint32_t>(plan_.launches.size());
  for (uint32_t head = first; head < n;) {
    if (is_alone(plan_.launches[head])) {
      ++head;
      continue;
    }
    const uint32_t begin = static_cast<uint32_t>(plan_.stages.size());
    uint32_t end = fused_end(head, begin, nodes < tuning::kManyNodes);
    if (end - head > 1) {
      close_group(plan_.launches[head], end - head - 1, begin);
    } else {
      end = elementwise_end(head);
      plan_.launches[head].elementwise = end - head - 1;
    }
    head = end;
  }
}

// ---------------------------------------------------------------- element-wise groups

uint32_t Fuser::elementwise_end(uint32_t head) const {
  const Launch& l = plan_.launches[head];
  uint32_t end = head + 1;
  if (!flat_elementwise(l) || !joins_elementwise(l, head, head)) return end;
  while (end < plan_.launches.size() && joins_elementwise(l, head, end)) ++end;
  return end;
}

// May launch `last` run tile by tile together with [first, last)? Each of their operands must be contiguous
// memory that either is exactly the result of one of them or overlaps none of their results. Two operands
// that are not results must be equal or disjoint, too, as gradients are added to them tile by tile.
bool Fuser::joins_elementwise(const Launch& head, uint32_t first, uint32_t last) const {
  const Launch& l = plan_.launches[last];
  const int64_t total = head.total;
  if (!flat_elementwise(l) || is_alone(l) || l.total != total || last - first >= tuning::kMostElementwise)
    return false;
  auto apart = [total](int64_t a, int64_t b) { return a + total <= b || b + total <= a; };
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    const Operand& o = plan_.operands[l.operands + k];
    if (o.kind != Operand::contiguous) return false;
    for (uint32_t i = first; i <= last; ++i) {
      const Launch& other = plan_.launches[i];
      if (o.base != other.out && !apart(o.base, other.out)) return false;
      for (uint32_t j = 0; j < other.n_operands; ++j) {
        const int64_t base = plan_.operands[other.operands + j].base;
        if (o.base != base && !apart(o.base, base)) return false;
      }
    }
  }
  return true;
}

// ---------------------------------------------------------------- fused groups

// End of the fused group that begins with launch `head`, whose stages are appended to plan_.stages from
// `begin` on; head + 1 if there is none. A single instance is fused only for its products, because an
// element-wise group splits an instance, too. With few nodes (`small`) small launches are not worth the
// planning.
uint32_t Fuser::fused_end(uint32_t head, uint32_t begin, bool small) {
  const Launch& l = plan_.launches[head];
  const Sig& sig = graph_.sig_number(l.sig);
  const bool product = l.kind == OpKind::matmul && sig.n_args > 1;
  if (small && l.total < tuning::kFusedFloats) return head + 1;
  if (l.count == 1 && !product) return head + 1;
  if (l.count == 1 && small && sig.x[l.op == op_id<Affine>]->size() < tuning::kLargeWeight) return head + 1;
  uint32_t end = head;
  while (end < plan_.launches.size() && end - head < tuning::kMostLaunches && joins_group(head, end, begin))
    ++end;
  if (end - head > 1) return end;
  plan_.stages.resize(begin);
  return head + 1;
}

// Cuts launch `at` into stages if it can join the group of `head`, whose stages begin at `begin`.
bool Fuser::joins_group(uint32_t head, uint32_t at, uint32_t begin) {
  const Launch& l = plan_.launches[at];
  const uint32_t n = plan_.launches[head].count;
  const bool product = l.kind == OpKind::matmul;
  if (!l.uniform || !l.fixed_arity || l.count % n != 0 || l.total == 0 || is_alone(l)) return false;
  if (!product && l.kind != OpKind::unary && l.kind != OpKind::binary && l.kind != OpKind::per_node)
    return false;
  if (product && (l.count != n || !graph_.sig_number(l.sig).columns)) return false;
  const uint32_t cuts = l.count / n;
  if (plan_.stages.size() - begin + cuts > tuning::kMostStages) return false;
  const size_t before = plan_.stages.size(), operands = plan_.operands.size();
  for (uint32_t j = 0; j < cuts; ++j) {
    cut_stage(plan_.launches[at], n, j);
    if (reads_own_instance(plan_.stages.back(), plan_.launches[head].out, begin)) continue;
    plan_.stages.resize(before);
    plan_.operands.resize(operands);
    return false;
  }
  return true;
}

// Nodes [j n, (j + 1) n) of a launch as a stage.
void Fuser::cut_stage(const Launch& l, uint32_t n, uint32_t j) {
  Launch stage = l;
  const Sig& sig = graph_.sig_number(l.sig);
  const uint32_t from = j * n;
  stage.count = n;
  stage.nodes += from;
  stage.out += int64_t{from} * sig.size;
  stage.total = int64_t{n} * sig.size;
  if (l.count == n) {  // as a whole
    plan_.stages.push_back(stage);
    return;
  }
  stage.operands = static_cast<uint32_t>(plan_.operands.size());
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    Operand o = plan_.operands[l.operands + k];
    if (o.kind == Operand::indexed) o = operand_of_offsets(graph_, plan_, stage, k, o.index + from);
    else if (o.kind == Operand::contiguous || o.kind == Operand::strided) o.base += from * o.stride;
    plan_.operands.push_back(o);
  }
  plan_.stages.push_back(stage);
}

// Does each node of the stage read, of the group's results, which begin at `low`, only those of its instance?
bool Fuser::reads_own_instance(const Launch& stage, int64_t low, uint32_t begin) const {
  for (uint32_t k = 0; k < stage.n_operands; ++k) {
    const Operand& o = plan_.operands[stage.operands + k];
    if (o.kind == Operand::weight && o.base < 0) continue;  // in the parameter's own storage
    const ReadRange s = range_of(graph_, plan_, stage, k);
    if (s.end <= low || s.begin >= stage.out + stage.total) continue;
    if (o.kind != Operand::contiguous && o.kind != Operand::strided) {
      if (o.kind == Operand::indexed && outside(stage, k, low)) continue;
      return false;
    }
    if (!made_by(s, o, begin, stage.count)) return false;
  }
  return true;
}

bool Fuser::outside(const Launch& stage, uint32_t k, int64_t low) const {
  const int64_t size = graph_.sig_number(stage.sig).x[k]->size(), *at = plan_.index.data();
  at += plan_.operands[stage.operands + k].index;
  return std::none_of(at, at + stage.count,
                      [&](int64_t a) { return overlap(a, a + size, low, stage.out + stage.total); });
}

// Does an evenly spaced operand of node i read only the result of node i of an earlier stage?
bool Fuser::made_by(const ReadRange& s, const Operand& o, uint32_t begin, uint32_t n) const {
  for (uint32_t i = begin; i < plan_.stages.size(); ++i) {
    const Launch& p = plan_.stages[i];
    const int64_t size = p.total / n, stop = p.out + p.total;
    if (!overlap(s.begin, s.end, p.out, stop)) continue;
    const int64_t length = s.end - s.begin - int64_t{n - 1} * size;  // what one instance reads of it
    if (&p == &plan_.stages.back()) return false;                    // itself
    return o.base >= p.out && s.end <= stop && o.base - p.out + length <= size &&
           (n == 1 || o.stride == size);
  }
  return false;
}

// Moves products that read nothing of the group to the front, and fills in what an executor has to know.
void Fuser::close_group(Launch& head, uint32_t more, uint32_t begin) {
  head.fused = more;
  head.stages = begin;
  head.n_stages = static_cast<uint32_t>(plan_.stages.size()) - begin;
  const auto reads_none = [&](const Launch& p) {
    for (uint32_t k = 0; k < p.n_operands; ++k) {
      const Operand& o = plan_.operands[p.operands + k];
      if (o.kind == Operand::weight) continue;
      const ReadRange s = range_of(graph_, plan_, p, k);
      if (o.kind == Operand::indexed ? !outside(p, k, head.out) : overlap(s.begin, s.end, head.out, p.out))
        return false;
    }
    return true;
  };
  const auto stages = plan_.stages.begin() + begin;
  const auto rest = std::stable_partition(
      stages, plan_.stages.end(), [&](const Launch& p) { return p.kind == OpKind::matmul && reads_none(p); });
  head.n_matmuls = static_cast<uint32_t>(rest - stages);
  head.disjoint_gradients = gradients_disjoint(head, false);
}

bool Fuser::gradients_disjoint(const Launch& head, bool exactly) {
  targets_.clear();
  int64_t floats = 0;
  bool sorted = true;
  const auto stages = plan_.stages.begin() + head.stages;
  int64_t stop = 0;  // of the results of the block
  for (auto p = stages; p != stages + head.n_stages; ++p) stop = std::max(stop, p->out + p->total);
  for (auto p = stages; p != stages + head.n_stages; ++p) {
    if (p->kind == OpKind::matmul) continue;
    floats += p->total;
    for (uint32_t k = 0; k < p->n_operands; ++k) {
      const Operand& o = plan_.operands[p->operands + k];
      const int64_t size = graph_.sig_number(p->sig).x[k]->size();
      if (o.kind == Operand::shared && p->count > 1) return false;
      if (o.kind != Operand::indexed && o.base >= head.out && o.base < stop)
        continue;  // of the same instance
      const ReadRange s = range_of(graph_, plan_, *p, k);
      bool rising = true;
      if (o.kind == Operand::indexed)
        for (uint32_t i = 1; i < p->count; ++i)
          rising = rising && plan_.index[o.index + i] - plan_.index[o.index + i - 1] >= size;
      else rising = p->count == 1 || o.stride >= size;
      const auto same = [&](const GradientTarget& t) {
        return o.kind != Operand::indexed && t.o.kind == o.kind && t.o.base == o.base &&
               t.o.stride == o.stride;
      };
      for (const GradientTarget& t : targets_)
        sorted = sorted && (same(t) || !overlap(s.begin, s.end, t.range.begin, t.range.end));
      sorted = sorted && rising;
      targets_.push_back({o, s, size, p->count});
    }
  }
  if (sorted) return true;
  return (exactly || floats >= tuning::kSortedTargets) && targets_disjoint();
}

// The same for many targets, by sorting them.
bool Fuser::targets_disjoint() {
  ranges_.clear();
  for (const GradientTarget& t : targets_)
    for (uint32_t i = 0; i < t.count; ++i) {
      const int64_t at =
          t.o.kind == Operand::indexed ? plan_.index[t.o.index + i] : t.o.base + i * t.o.stride;
      ranges_.push_back({at, at + t.size, i});
    }
  std::sort(ranges_.begin(), ranges_.end(),
            [](const InstanceRange& a, const InstanceRange& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges_.size(); ++i) {
    InstanceRange &before = ranges_[i - 1], &p = ranges_[i];
    if (p.begin >= before.end) continue;
    if (p.instance != before.instance) return false;
    p.end = std::max(p.end, before.end);
  }
  return true;
}

}  // namespace dyc
