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
    if (o.kind == Operand::unused)
      o = args != kNone ? operand_of_offsets(graph_, plan_, l, k, args + k * l.count) : mixed_operand(l, k);
    plan_.operands.push_back(o);
  }
}

// Sets the properties that the nodes of a launch share, where they have different signatures.
void OperandResolver::inspect_nodes(Launch& l) {
  if (l.uniform) return;
  const NodeId* nodes = plan_.nodes.data() + l.nodes;
  l.sig = graph_.node(nodes[0]).sig;
  l.uniform = l.flat = true;
  l.requires_grad = false;
  l.requires_grad_args = 0;
  l.out_index = static_cast<uint32_t>(plan_.index.size());
  for (uint32_t i = 0; i < l.count; ++i) {
    const uint32_t number = graph_.node(nodes[i]).sig;
    const Sig& s = graph_.sig_number(number);
    l.uniform = l.uniform && number == l.sig;
    l.flat = l.flat && s.flat;
    l.requires_grad = l.requires_grad || s.requires_grad;
    if (l.fixed_arity) l.requires_grad_args |= s.requires_grad_mask;
    plan_.index.push_back(graph_.offsets()[nodes[i]]);
  }
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

ReadRange range_of(const Graph& graph, const Plan& plan, const Launch& l, uint32_t k) {
  const Operand& o = plan.operands[l.operands + k];
  const int64_t size = graph.sig_number(l.sig).x[k]->size();
  if (o.kind == Operand::indexed) {
    const int64_t* const at = plan.index.data() + o.index;
    int64_t low = at[0], high = at[0];
    for (uint32_t i = 1; i < l.count; ++i) {  // without branches that depend on the places
      low = std::min(low, at[i]);
      high = std::max(high, at[i]);
    }
    return {low, high + size};
  }
  if (o.kind == Operand::contiguous && o.stride == 0) return {o.base, o.base + l.total};
  const bool run = o.kind == Operand::contiguous || o.kind == Operand::strided;
  const int64_t last = o.base + (run ? int64_t{l.count - 1} * o.stride : 0);
  return {std::min(o.base, last), std::max(o.base, last) + size};
}

// For nodes of several shapes: contiguous only if all arguments are of one size, or each as large as its
// result.
Operand OperandResolver::mixed_operand(const Launch& l, uint32_t k) {
  const uint32_t begin = static_cast<uint32_t>(plan_.index.size());
  bool gapless = true, one_size = true, as_result = true;
  int64_t end = -1, first_size = -1;
  for (uint32_t i = 0; i < l.count; ++i) {
    const NodeId id = plan_.nodes[l.nodes + i];
    const Sig& s = graph_.sig(id);
    const int64_t at = readable_offset(graph_.args(id)[k]), size = s.x[k]->size();
    plan_.index.push_back(at);
    if (i == 0) first_size = size;
    else gapless = gapless && at == end;
    end = at + size;
    one_size = one_size && size == first_size;
    as_result = as_result && size == s.size;
  }
  if (one_size) {
    const Operand o = operand_of_offsets(graph_, plan_, l, k, begin);
    if (o.kind != Operand::indexed) plan_.index.resize(begin);
    return o;
  }
  Operand o;
  o.base = plan_.index[begin];
  if (gapless && as_result) {
    o.kind = Operand::contiguous;
    plan_.index.resize(begin);
  } else {
    o.kind = Operand::indexed;
    o.index = begin;
  }
  return o;
}

void OperandResolver::resolve_lists(Launch& l) {
  Operand o;
  o.kind = Operand::indexed;
  o.index = static_cast<uint32_t>(plan_.index.size());
  l.arg_begin = static_cast<uint32_t>(plan_.starts.size());
  for (uint32_t i = 0; i < l.count; ++i) {
    plan_.starts.push_back(static_cast<uint32_t>(plan_.index.size()) - o.index);
    const NodeId id = plan_.nodes[l.nodes + i];
    const NodeId* args = graph_.args(id);
    for (uint32_t k = 0; k < graph_.node(id).n_args; ++k) plan_.index.push_back(readable_offset(args[k]));
  }
  plan_.starts.push_back(static_cast<uint32_t>(plan_.index.size()) - o.index);
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
