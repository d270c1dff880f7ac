#include "plan/operands.h"

#include <algorithm>

#include "plan/tuning.h"

namespace dyc {

uint32_t OperandResolver::begin(uint32_t first_launch) {
  first_launch_ = first_launch;
  copies_.clear();
  return copies_expected_;
}

void OperandResolver::resolve(Launch& l, uint32_t args) {
  inspect_nodes(l);
  if (!l.fixed_arity) return resolve_lists(l);
  const Sig& sig = graph_.sig_number(l.sig);
  l.n_operands = sig.n_args;
  l.operands = static_cast<uint32_t>(plan_.operands.size());
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    Operand o = weight_operand(l, k);
    if (o.kind == Operand::unused) {
      const uint32_t begin = args != kNone ? args + k * l.count : list_offsets(l, k);
      o = l.uniform ? operand_of_offsets(graph_, plan_, l, k, begin) : mixed_operand(l, k, begin);
    }
    plan_.operands.push_back(o);
  }
}

// Sets the properties that the nodes of a launch share, where they have different signatures. If these differ
// only in which arguments take gradients (the first step of a recurrence reads zeros), the one that has all
// of them stands for all: nobody reads the gradients that the others get.
void OperandResolver::inspect_nodes(Launch& l) {
  if (l.uniform) return;
  const NodeId* nodes = plan_.nodes.data() + l.nodes;
  const Sig& first = graph_.sig(nodes[0]);
  uint32_t widest = kNone;
  // The script's functions, and kernels that look at the targets of all nodes, need each node's own
  // arguments.
  const bool node_by_node = l.kind == OpKind::user || l.kind == OpKind::custom;
  bool one = true, same_shapes = l.fixed_arity && !node_by_node && first.n_args < Sig::kMaskedArgs;
  l.flat = true;
  l.requires_grad = false;
  l.requires_grad_args = 0;
  l.out_index = static_cast<uint32_t>(plan_.index.size());
  plan_.index.resize(l.out_index + l.count);
  sigs_.resize(l.count);
  const Sig* last = nullptr;
  for (uint32_t i = 0; i < l.count; ++i) {
    plan_.index[l.out_index + i] = graph_.offsets()[nodes[i]];
    const uint32_t number = graph_.node(nodes[i]).sig;
    const Sig& s = *(sigs_[i] = &graph_.sig_number(number));
    if (&s == last) continue;
    last = &s;
    one = one && &s == &first;
    same_shapes = same_shapes && s.y == first.y && s.x == first.x;
    l.flat = l.flat && s.flat;
    l.requires_grad = l.requires_grad || s.requires_grad;
    if (l.fixed_arity) l.requires_grad_args |= s.requires_grad_mask;
    if (s.requires_grad_mask == l.requires_grad_args) widest = number;
  }
  l.sig = graph_.node(nodes[0]).sig;
  l.uniform = one;
  if (same_shapes && graph_.sig_number(widest).requires_grad_mask == l.requires_grad_args) {
    l.sig = widest;
    l.uniform = true;
  }
  if (!l.uniform) return;
  plan_.index.resize(l.out_index);
  l.out_index = 0;
}

// An argument in weight position that is the same for the whole graph; otherwise an unused operand.
Operand OperandResolver::weight_operand(const Launch& l, uint32_t k) {
  Operand o;
  const Sig& sig = graph_.sig_number(l.sig);
  if (!WeightPositions(l.op).has(k)) return o;
  const NodeId first = graph_.args(plan_.nodes[l.nodes])[k];
  if (!graph_.node(first).value_number || !(sig.columns || l.count == 1)) return o;
  if (graph_.offset_of(first) == kParameter && graph_.base_of(first) != first)
    copy_parameter(graph_.base_of(first));
  o.kind = Operand::weight;
  o.node = graph_.offset_of(first) == kParameter ? first : graph_.base_of(first);
  o.base = graph_.offset_of(first);
  return o;
}

namespace {

// at[i] == at[0] + i * (at[1] - at[0]) for all i?
bool evenly_spaced(const int64_t* at, uint32_t n) {
  const int64_t stride = at[1] - at[0];
  for (uint32_t i = 1; i < n;) {
    int64_t off = 0;
    for (const uint32_t end = std::min(n, i + tuning::kOffsetsAtOnce); i < end; ++i)
      off |= at[i] - at[i - 1] - stride;
    if (off) return false;
  }
  return true;
}

}  // namespace

Operand operand_of_offsets(const Graph& graph, const Plan& plan, const Launch& l, uint32_t k,
                           uint32_t begin) {
  const int64_t* at = plan.index.data() + begin;
  Operand o;
  o.kind = Operand::contiguous;
  o.base = at[0];
  o.stride = graph.sig_number(l.sig).x[k]->size();
  if (l.count == 1) return o;
  const int64_t stride = at[1] - at[0];
  if (!evenly_spaced(at, l.count)) {
    o.kind = Operand::indexed;
    o.index = begin;
  } else if (stride != o.stride) {
    o.kind = stride == 0 ? Operand::shared : Operand::strided;
    o.stride = stride;
  }
  return o;
}

// Without branches that depend on the offsets, in two chains of instructions.
Extremes extremes(const int64_t* at, size_t n) {
  int64_t low = at[0], high = at[0], other_low = low, other_high = high;
  size_t i = 1;
  for (; i + 1 < n; i += 2) {
    low = std::min(low, at[i]);
    high = std::max(high, at[i]);
    other_low = std::min(other_low, at[i + 1]);
    other_high = std::max(other_high, at[i + 1]);
  }
  if (i < n) {
    low = std::min(low, at[i]);
    high = std::max(high, at[i]);
  }
  return {std::min(low, other_low), std::max(high, other_high)};
}

ReadRange range_of(const Graph& graph, const Plan& plan, const Launch& l, uint32_t k) {
  const Operand& o = plan.operands[l.operands + k];
  const int64_t size = graph.sig_number(l.sig).x[k]->size();
  if (o.kind == Operand::indexed) {
    const auto [least, greatest] = extremes(plan.index.data() + o.index, l.count);
    return {least, greatest + size};
  }
  if (o.kind == Operand::contiguous && o.stride == 0) return {o.base, o.base + l.total};
  const bool run = o.kind == Operand::contiguous || o.kind == Operand::strided;
  const int64_t last = o.base + (run ? int64_t{l.count - 1} * o.stride : 0);
  return {std::min(o.base, last), std::max(o.base, last) + size};
}

// Appends the offsets of argument k of all nodes; returns where they begin.
uint32_t OperandResolver::list_offsets(const Launch& l, uint32_t k) {
  const auto begin = static_cast<uint32_t>(plan_.index.size());
  for (uint32_t i = 0; i < l.count; ++i)
    plan_.index.push_back(readable_offset(graph_.args(plan_.nodes[l.nodes + i])[k]));
  return begin;
}

// For nodes of several shapes, whose signatures are in sigs_: contiguous only if all arguments are of one
// size, or each as large as its result.
Operand OperandResolver::mixed_operand(const Launch& l, uint32_t k, uint32_t begin) {
  const int64_t* const at = plan_.index.data() + begin;
  const auto size_of = [&](uint32_t i) -> int64_t {
    return l.flat ? sigs_[i]->size : sigs_[i]->x[k]->size();
  };
  const int64_t first_size = size_of(0);
  int64_t size = first_size;
  bool gapless = true, one_size = true, as_result = size == sigs_[0]->size;
  for (uint32_t i = 1; i < l.count; ++i) {
    gapless = gapless && at[i] == at[i - 1] + size;
    if (sigs_[i] == sigs_[i - 1]) continue;
    size = size_of(i);
    one_size = one_size && size == first_size;
    as_result = as_result && size == sigs_[i]->size;
  }
  if (one_size) return operand_of_offsets(graph_, plan_, l, k, begin);
  Operand o;
  o.base = at[0];
  o.kind = gapless && as_result ? Operand::contiguous : Operand::indexed;
  if (o.kind == Operand::indexed) o.index = begin;
  return o;
}

void OperandResolver::resolve_lists(Launch& l) {
  Operand o;
  o.kind = Operand::indexed;
  o.index = static_cast<uint32_t>(plan_.index.size());
  l.arg_begin = static_cast<uint32_t>(plan_.starts.size());
  uint32_t end = 0;
  for (uint32_t i = 0; i < l.count; ++i) {
    const NodeId id = plan_.nodes[l.nodes + i];
    const NodeId* const args = graph_.args(id);
    const uint32_t n = graph_.node(id).n_args;
    plan_.starts.push_back(end);
    plan_.index.resize(o.index + end + n);
    int64_t* const to = plan_.index.data() + o.index + end;
    for (uint32_t k = 0; k < n; ++k) {
      const int64_t at = graph_.offsets()[args[k]];
      to[k] = at >= 0 ? at : readable_offset(args[k]);
    }
    end += n;
  }
  plan_.starts.push_back(end);
  l.operands = static_cast<uint32_t>(plan_.operands.size());
  l.n_operands = 1;
  plan_.operands.push_back(o);
}

int64_t OperandResolver::readable_offset(NodeId id) {
  const int64_t at = graph_.offset_of(id);
  if (at >= 0) return at;
  if (!graph_.is_parameter(graph_.base_of(id)))
    throw RuntimeError(text("internal error: node ", id, " has no place"));
  copy_parameter(graph_.base_of(id));
  return graph_.offset_of(id);
}

// A parameter that is read as an ordinary value is copied into the value arena by a launch of its own.
int64_t OperandResolver::copy_parameter(NodeId id) {
  const int64_t out = graph_.values_arena.allocate(graph_.sig(id).size, 16);
  graph_.set_offset(id, out);
  if (plan_.launch_of.size() <= id) plan_.launch_of.resize(graph_.size(), kNone);
  plan_.launch_of[id] = first_launch_;
  copies_.push_back(id);
  return out;
}

// Launches that copy parameters come first in the extension, which reserved as many launches for them as the
// last extension needed. If there are more now, the other launches move back.
void OperandResolver::insert_copies(const Selection& selection) {
  const uint32_t n = static_cast<uint32_t>(copies_.size());
  if (n != copies_expected_) {
    const uint32_t old = first_launch_ + copies_expected_, more = n - copies_expected_;  // modulo 2^32
    const auto shift = [&](uint32_t& launch) { launch += launch >= old && launch != kNone ? more : 0; };
    selection.for_each_id([&](NodeId id) { shift(plan_.launch_of[id]); });
    const auto begin = plan_.launches.begin() + first_launch_;
    if (n < copies_expected_) plan_.launches.erase(begin, begin + (copies_expected_ - n));
    else plan_.launches.insert(begin, more, Launch{});
    copies_expected_ = n;
  }
  for (uint32_t i = 0; i < n; ++i) {
    const NodeId id = copies_[i];
    Launch& l = plan_.launches[first_launch_ + i];
    l = Launch{};
    l.op = op_id<ParameterNode>;
    l.kind = OpKind::parameter;
    l.sig = graph_.node(id).sig;
    l.batch_key = graph_.sig(id).batch_key;
    l.count = 1;
    l.nodes = static_cast<uint32_t>(plan_.nodes.size());
    l.total = graph_.sig(id).size;
    l.out = graph_.offset_of(id);
    plan_.nodes.push_back(id);
    plan_.launch_of[id] = first_launch_ + i;
  }
}

}  // namespace dyc
