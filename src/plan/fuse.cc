// Launches that run together: blocks of products and what follows them instance by instance, and chains of
// element-wise launches.
#include <algorithm>

#include "plan/planner.h"

namespace dyc {

namespace {

constexpr uint32_t kMostLaunches = 24, kMostPieces = 48;  // in a block
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
    const uint32_t begin = static_cast<uint32_t>(plan.pieces.size());
    uint32_t end = block_end(head, begin);
    if (end - head > 1) {
      close_block(plan.launches[head], end - head - 1, begin);
    } else {
      end = chain_end(head);
      plan.launches[head].chain = end - head - 1;
    }
    head = end;
  }
}

// ---------------------------------------------------------------- chains

// Runs of element-wise launches over the same number of floats, each reading what lies element for
// element beside its result, become one: a tile goes through all of them while it is in the cache.
uint32_t Planner::chain_end(uint32_t head) const {
  const Launch& l = plan.launches[head];
  uint32_t end = head + 1;
  if (!flat_elementwise(l) || !joins_chain(l, head, head)) return end;
  while (end < plan.launches.size() && joins_chain(l, head, end)) ++end;
  return end;
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

// ---------------------------------------------------------------- blocks

// As many launches from `head` on as make one block; their pieces are those of plan.pieces from `begin` on.
// One instance alone is worth a block for the sake of its products only: a chain runs in parts of an
// instance. In a small graph, a few floats are not worth the planning.
uint32_t Planner::block_end(uint32_t head, uint32_t begin) {
  const Launch& l = plan.launches[head];
  const Sig& sig = graph_.sig_number(l.sig);
  const bool product = l.kind == OpKind::matmul && sig.n_args > 1, small = pending_ < kManyNodes;
  if (small && l.total < kWorthPlanning) return head + 1;
  if (l.count == 1 && !product) return head + 1;
  if (l.count == 1 && small && sig.x[l.op == op_id<Affine>]->size() < kLargeWeight) return head + 1;
  uint32_t end = head;
  while (end < plan.launches.size() && end - head < kMostLaunches && joins_block(head, end, begin)) ++end;
  if (end - head > 1) return end;
  plan.pieces.resize(begin);
  return head + 1;
}

// Cuts launch `at` into pieces if it may be of the block from launch `head`, whose pieces begin at `begin`.
bool Planner::joins_block(uint32_t head, uint32_t at, uint32_t begin) {
  const Launch& l = plan.launches[at];
  const uint32_t n = plan.launches[head].count;
  const bool product = l.kind == OpKind::matmul;
  if (!l.uniform || !l.fixed_arity || l.count % n != 0 || l.total == 0) return false;
  if (!product && l.kind != OpKind::unary && l.kind != OpKind::binary && l.kind != OpKind::per_node)
    return false;
  if (product && (l.count != n || !graph_.sig_number(l.sig).columns)) return false;
  const uint32_t cuts = l.count / n;
  if (plan.pieces.size() - begin + cuts > kMostPieces) return false;
  const size_t before = plan.pieces.size(), operands = plan.operands.size();
  for (uint32_t j = 0; j < cuts; ++j) {
    cut_piece(plan.launches[at], n, j);
    if (reads_own_instance(plan.pieces.back(), plan.launches[head].out, begin)) continue;
    plan.pieces.resize(before);
    plan.operands.resize(operands);
    return false;
  }
  return true;
}

// Members [j n, (j + 1) n) of a launch as one of their own.
void Planner::cut_piece(const Launch& l, uint32_t n, uint32_t j) {
  Launch piece = l;
  const Sig& sig = graph_.sig_number(l.sig);
  const uint32_t from = j * n;
  piece.count = n;
  piece.members += from;
  piece.out += int64_t{from} * sig.size;
  piece.total = int64_t{n} * sig.size;
  if (l.count == n) {  // as a whole
    plan.pieces.push_back(piece);
    return;
  }
  piece.operands = static_cast<uint32_t>(plan.operands.size());
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    Operand o = plan.operands[l.operands + k];
    if (o.kind == Operand::indexed) o = describe_run(piece, k, o.index + from);
    else if (o.kind == Operand::contiguous || o.kind == Operand::strided) o.base += from * o.stride;
    plan.operands.push_back(o);
  }
  plan.pieces.push_back(piece);
}

// First and last place that the members read through an operand, and one further.
Planner::Span Planner::span(const Launch& l, uint32_t k) const {
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

// Everything that a piece reads of the block, whose results begin at `low`, must be of the same instance.
bool Planner::reads_own_instance(const Launch& piece, int64_t low, uint32_t begin) const {
  for (uint32_t k = 0; k < piece.n_operands; ++k) {
    const Operand& o = plan.operands[piece.operands + k];
    if (o.kind == Operand::weight && o.base < 0) continue;  // in the parameter's own storage
    const Span s = span(piece, k);
    if (s.end <= low || s.begin >= piece.out + piece.total) continue;
    if (o.kind != Operand::contiguous && o.kind != Operand::strided) {
      if (o.kind == Operand::indexed && outside(piece, k, low)) continue;
      return false;
    }
    if (!made_by(s, o, begin, piece.count)) return false;
  }
  return true;
}

bool Planner::outside(const Launch& piece, uint32_t k, int64_t low) const {
  const int64_t size = graph_.sig_number(piece.sig).x[k]->size(), *at = plan.index.data();
  at += plan.operands[piece.operands + k].index;
  return std::none_of(at, at + piece.count,
                      [&](int64_t a) { return overlap(a, a + size, low, piece.out + piece.total); });
}

// Is an evenly spaced operand part of the results of an earlier piece, instance for instance?
bool Planner::made_by(const Span& s, const Operand& o, uint32_t begin, uint32_t n) const {
  for (uint32_t i = begin; i < plan.pieces.size(); ++i) {
    const Launch& p = plan.pieces[i];
    const int64_t size = p.total / n, stop = p.out + p.total;
    if (!overlap(s.begin, s.end, p.out, stop)) continue;
    const int64_t length = s.end - s.begin - int64_t{n - 1} * size;  // what one instance reads of it
    if (&p == &plan.pieces.back()) return false;                     // itself
    return o.base >= p.out && s.end <= stop && o.base - p.out + length <= size &&
           (n == 1 || o.stride == size);
  }
  return false;
}

// Puts products that read nothing of the block first, and notes what an executor must know.
void Planner::close_block(Launch& head, uint32_t more, uint32_t begin) {
  head.block = more;
  head.pieces = begin;
  head.n_pieces = static_cast<uint32_t>(plan.pieces.size()) - begin;
  const auto reads_none = [&](const Launch& p) {
    for (uint32_t k = 0; k < p.n_operands; ++k) {
      const Operand& o = plan.operands[p.operands + k];
      if (o.kind == Operand::weight) continue;
      const Span s = span(p, k);
      if (o.kind == Operand::indexed ? !outside(p, k, head.out) : overlap(s.begin, s.end, head.out, p.out))
        return false;
    }
    return true;
  };
  const auto pieces = plan.pieces.begin() + begin;
  const auto rest = std::stable_partition(
      pieces, plan.pieces.end(), [&](const Launch& p) { return p.kind == OpKind::matmul && reads_none(p); });
  head.products = static_cast<uint32_t>(rest - pieces);
  head.apart = gradients_apart(head);
}

// Do pieces other than products, run for one range of instances after the other, add to gradients that no
// other instance adds to?
bool Planner::gradients_apart(const Launch& head) {
  targets_.clear();
  int64_t floats = 0;
  bool sorted = true;
  const auto pieces = plan.pieces.begin() + head.pieces;
  int64_t stop = 0;  // of the results of the block
  for (auto p = pieces; p != pieces + head.n_pieces; ++p) stop = std::max(stop, p->out + p->total);
  for (auto p = pieces; p != pieces + head.n_pieces; ++p) {
    if (p->kind == OpKind::matmul) continue;
    floats += p->total;
    for (uint32_t k = 0; k < p->n_operands; ++k) {
      const Operand& o = plan.operands[p->operands + k];
      const int64_t size = graph_.sig_number(p->sig).x[k]->size();
      if (o.kind == Operand::shared && p->count > 1) return false;
      if (o.kind != Operand::indexed && o.base >= head.out && o.base < stop)
        continue;  // of the same instance
      const Span s = span(*p, k);
      bool rising = true;
      if (o.kind == Operand::indexed)
        for (uint32_t i = 1; i < p->count; ++i)
          rising = rising && plan.index[o.index + i] - plan.index[o.index + i - 1] >= size;
      else rising = p->count == 1 || o.stride >= size;
      const auto same = [&](const Target& t) {
        return o.kind != Operand::indexed && t.o.kind == o.kind && t.o.base == o.base &&
               t.o.stride == o.stride;
      };
      for (const Target& t : targets_)
        sorted = sorted && (same(t) || !overlap(s.begin, s.end, t.span.begin, t.span.end));
      sorted = sorted && rising;
      targets_.push_back({o, s, size, p->count});
    }
  }
  if (sorted) return true;
  return floats >= kWorthSorting && targets_apart();
}

// The same by looking at every target.
bool Planner::targets_apart() {
  places_.clear();
  for (const Target& t : targets_)
    for (uint32_t i = 0; i < t.count; ++i) {
      const int64_t at = t.o.kind == Operand::indexed ? plan.index[t.o.index + i] : t.o.base + i * t.o.stride;
      places_.push_back({at, at + t.size, i});
    }
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < places_.size(); ++i) {
    Place &before = places_[i - 1], &p = places_[i];
    if (p.begin >= before.end) continue;
    if (p.instance != before.instance) return false;
    p.end = std::max(p.end, before.end);
  }
  return true;
}

}  // namespace dyc
