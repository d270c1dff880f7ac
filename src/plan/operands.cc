// Describes filled launches: each run of arguments in as few words as it allows.
#include <algorithm>

#include "plan/planner.h"

namespace dyc {

void Planner::resolve_operands(uint32_t launch) {
  Launch& l = plan.launches[launch];
  inspect_nodes(l);
  if (!l.fixed_arity) return resolve_lists(l);
  const Sig& sig = graph_.sig_number(l.sig);
  const uint32_t begin = args_begin_[launch - first_];
  l.n_operands = sig.n_args;
  l.operands = static_cast<uint32_t>(plan.operands.size());
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    Operand o = weight_operand(l, k);
    if (o.kind == Operand::unused)
      o = begin != kNone ? operand_of_offsets(l, k, begin + k * l.count) : mixed_operand(l, k);
    plan.operands.push_back(o);
  }
}

// What nodes of several signatures have in common.
void Planner::inspect_nodes(Launch& l) {
  if (l.uniform) return;
  const NodeId* nodes = plan.nodes.data() + l.nodes;
  l.sig = graph_.node(nodes[0]).sig;
  l.uniform = l.flat = true;
  l.requires_grad = false;
  l.requires_grad_args = 0;
  l.out_index = static_cast<uint32_t>(plan.index.size());
  for (uint32_t i = 0; i < l.count; ++i) {
    const uint32_t number = graph_.node(nodes[i]).sig;
    const Sig& s = graph_.sig_number(number);
    l.uniform = l.uniform && number == l.sig;
    l.flat = l.flat && s.flat;
    l.requires_grad = l.requires_grad || s.requires_grad;
    if (l.fixed_arity) l.requires_grad_args |= s.requires_grad_mask;
    plan.index.push_back(graph_.offsets()[nodes[i]]);
  }
}

// An argument in weight position that is the same for the whole graph; else an unused operand.
Operand Planner::weight_operand(const Launch& l, uint32_t k) {
  Operand o;
  const Sig& sig = graph_.sig_number(l.sig);
  if (l.kind != OpKind::matmul || !weight_position(l.op == op_id<Affine>, k)) return o;
  const NodeId first = graph_.args(plan.nodes[l.nodes])[k];
  if (!graph_.node(first).value_number || !(sig.columns || l.count == 1)) return o;
  if (graph_.offset_of(first) == kParameter && graph_.base_of(first) != first)
    copy_parameter(graph_.base_of(first));
  o.kind = Operand::weight;
  o.node = graph_.offset_of(first) == kParameter ? first : graph_.base_of(first);
  o.base = graph_.offset_of(first);
  return o;
}

namespace {

// at[i] == at[0] + i * (at[1] - at[0])? Looked at in blocks that need no branch inside.
bool evenly_spaced(const int64_t* at, uint32_t n) {
  const int64_t stride = at[1] - at[0];
  for (uint32_t i = 1; i < n;) {
    int64_t off = 0;
    for (const uint32_t end = std::min(n, i + 32); i < end; ++i) off |= at[i] - at[i - 1] - stride;
    if (off) return false;
  }
  return true;
}

}  // namespace

// Members of equal extents; plan.index holds the offsets of argument k from `begin` on.
Operand Planner::operand_of_offsets(const Launch& l, uint32_t k, uint32_t begin) const {
  const int64_t* at = plan.index.data() + begin;
  Operand o;
  o.kind = Operand::contiguous;
  o.base = at[0];
  o.stride = graph_.sig_number(l.sig).x[k]->size();
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

// Members of several extents: gapless only if every argument is as large as its result, or all alike.
Operand Planner::mixed_operand(const Launch& l, uint32_t k) {
  const uint32_t begin = static_cast<uint32_t>(plan.index.size());
  bool gapless = true, one_size = true, as_result = true;
  int64_t end = -1, first_size = -1;
  for (uint32_t i = 0; i < l.count; ++i) {
    const NodeId id = plan.nodes[l.nodes + i];
    const Sig& s = graph_.sig(id);
    const int64_t at = readable_offset(graph_.args(id)[k]), size = s.x[k]->size();
    plan.index.push_back(at);
    if (i == 0) first_size = size;
    else gapless = gapless && at == end;
    end = at + size;
    one_size = one_size && size == first_size;
    as_result = as_result && size == s.size;
  }
  if (one_size) {
    const Operand o = operand_of_offsets(l, k, begin);
    if (o.kind != Operand::indexed) plan.index.resize(begin);
    return o;
  }
  Operand o;
  o.base = plan.index[begin];
  if (gapless && as_result) {
    o.kind = Operand::contiguous;
    plan.index.resize(begin);
  } else {
    o.kind = Operand::indexed;
    o.index = begin;
  }
  return o;
}

void Planner::resolve_lists(Launch& l) {
  Operand o;
  o.kind = Operand::indexed;
  o.index = static_cast<uint32_t>(plan.index.size());
  l.arg_begin = static_cast<uint32_t>(plan.starts.size());
  for (uint32_t i = 0; i < l.count; ++i) {
    plan.starts.push_back(static_cast<uint32_t>(plan.index.size()) - o.index);
    const NodeId id = plan.nodes[l.nodes + i];
    const NodeId* args = graph_.args(id);
    for (uint32_t k = 0; k < graph_.node(id).n_args; ++k) plan.index.push_back(readable_offset(args[k]));
  }
  plan.starts.push_back(static_cast<uint32_t>(plan.index.size()) - o.index);
  l.operands = static_cast<uint32_t>(plan.operands.size());
  l.n_operands = 1;
  plan.operands.push_back(o);
}

int64_t Planner::readable_offset(NodeId id) {
  const int64_t at = graph_.offset_of(id);
  if (at >= 0) return at;
  if (!graph_.is_parameter(graph_.base_of(id)))
    throw RuntimeError(text("internal error: node ", id, " has no place"));
  copy_parameter(graph_.base_of(id));
  return graph_.offset_of(id);
}

// A parameter read like any other value is copied into the value arena by a launch of its own.
int64_t Planner::copy_parameter(NodeId id) {
  const int64_t out = graph_.values_arena.allocate(graph_.sig(id).size, 16);
  graph_.set_offset(id, out);
  if (plan.launch_of.size() <= id) plan.launch_of.resize(graph_.size(), kNone);
  plan.launch_of[id] = first_;
  copies_.push_back(id);
  return out;
}

// The copies of parameters come before all launches of the demand, where room was kept for as many as
// the last demand had.
void Planner::insert_copies() {
  const uint32_t n = static_cast<uint32_t>(copies_.size());
  if (n != copies_expected_) {
    const uint32_t old = first_ + copies_expected_, more = n - copies_expected_;  // modulo 2^32
    const auto shift = [&](uint32_t& launch) { launch += launch >= old && launch != kNone ? more : 0; };
    if (listed_)
      for (const NodeId id : list_) shift(plan.launch_of[id]);
    else
      for (NodeId id = from_; id < to_; ++id) shift(plan.launch_of[id]);
    const auto begin = plan.launches.begin() + first_;
    if (n < copies_expected_) plan.launches.erase(begin, begin + (copies_expected_ - n));
    else plan.launches.insert(begin, more, Launch{});
    copies_expected_ = n;
  }
  for (uint32_t i = 0; i < n; ++i) {
    const NodeId id = copies_[i];
    Launch& l = plan.launches[first_ + i];
    l = Launch{};
    l.op = op_id<ParameterNode>;
    l.kind = OpKind::parameter;
    l.sig = graph_.node(id).sig;
    l.count = 1;
    l.nodes = static_cast<uint32_t>(plan.nodes.size());
    l.total = graph_.sig(id).size;
    l.out = graph_.offset_of(id);
    plan.nodes.push_back(id);
    plan.launch_of[id] = first_ + i;
  }
}

}  // namespace dyc
