// Launches backward on the device.
#include <algorithm>

#include "exec/cuda/cuda_executor.h"

namespace dyc {

using cuda::LaunchArgs;

namespace {

constexpr uint32_t kFewNodes = 32;  // members that one thread may go through

}  // namespace

void CudaExecutor::back_live(const Launch& l, const std::vector<uint8_t>& live, uint32_t live_nodes) {
  run_deferred_of(l);
  if (l.kind == OpKind::parameter) return;  // its gradient stays where it is until the end
  ++counters.launches;
  if (live_nodes == l.count) {
    back(l);
    if (like_dynet) run_all_deferred();
    return;
  }
  const Plan::Mark mark = plan_.mark();
  const Launch part = live_part(l, live, live_nodes);
  back(part);
  if (like_dynet) run_all_deferred();
  plan_.revert(mark);
  index_from_ = nullptr;
}

void CudaExecutor::back(const Launch& l) {
  if (op_info(l.op).meta->nondiff || l.total == 0) return;
  switch (l.kind) {
    case OpKind::unary:
    case OpKind::binary:
      return back_elementwise(l);
    case OpKind::per_node:
      return back_per_node(l);
    case OpKind::custom:
      return back_custom(l);
    case OpKind::matmul:
      return back_matmul(l);
    case OpKind::lookup:
      return back_lookup(l);
    default:
      return;
  }
}

// Do the members' arguments k lie apart, as far as their description alone tells?
bool CudaExecutor::regular(const Launch& l, uint32_t k) const {
  const Operand& o = plan_.operands[l.operands + k];
  if (l.count == 1) return true;
  if (!l.uniform) return o.kind == Operand::contiguous;
  const int64_t size = static_cast<int64_t>(graph_.sig_number(l.sig).x[k]->size());
  return o.kind == Operand::contiguous ||
         (o.kind == Operand::strided && (o.stride >= size || o.stride <= -size));
}

// The gradient of operand k; `targets` (if any) where it does not lie where the operand does.
CudaExecutor::GradientOperand CudaExecutor::gradient_place(const Launch& l, uint32_t k,
                                                           const std::vector<GradientRange>* targets) {
  if (!targets) {
    const ValueOperand p = place(l, plan_.operands[l.operands + k], gradients());
    return {const_cast<float*>(p.base), p.index, p.stride, static_cast<GradientOperand::Kind>(p.kind), false};
  }
  const auto index = batch_.room<int64_t>(l.count);
  for (uint32_t i = 0; i < l.count; ++i) index[i] = (*targets)[i].at;
  return {gradients(), index.device, 0, GradientOperand::indexed, false};
}

std::vector<CudaExecutor::GradientRange> CudaExecutor::targets_of(const Launch& l, uint32_t k) const {
  std::vector<GradientRange> targets;
  targets.reserve(l.count);
  for (uint32_t i = 0; i < l.count; ++i)
    targets.push_back(
        {argument(l, plan_.operands[l.operands + k], i), static_cast<int64_t>(item(l, i).sig->x[k]->size())});
  return targets;
}

// One launch for each argument.
void CudaExecutor::back_elementwise(const Launch& l) {
  LaunchArgs r = record(l, true);
  if (l.kind == OpKind::binary) encode_axes(l, r);
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    if (!wanted(l, k)) continue;
    const auto dx = batch_.room<GradientOperand>(l.n_operands);
    std::fill_n(dx.host, l.n_operands, GradientOperand{});
    bool through_scratch = false, repeats = false;
    if (regular(l, k)) {
      dx[k] = gradient_place(l, k, nullptr);
    } else {
      std::vector<GradientRange> targets = targets_of(l, k);
      const Overlap how = overlap(targets);
      repeats = how == Overlap::same && l.count <= kFewNodes && !like_dynet;
      through_scratch =
          (how != Overlap::none || like_dynet) && !repeats && reduce_through_scratch(targets, like_dynet);
      dx[k] = gradient_place(l, k, through_scratch ? &targets : nullptr);
      dx.host[k].repeats = repeats;
    }
    r.dx = dx.device;
    r.own = l.kind == OpKind::binary ? extents(l, k) : r.results;
    batch_.launch(CudaDevice::kernel_id(l.op, k == 0 ? cuda::kBackward : cuda::kBackwardSecond), r,
                  repeats ? r.own.largest : r.own.total);
    if (through_scratch) add_from_scratch();
    else if (!repeats) note_sliced(l, true, k, k + 1);
  }
}

void CudaExecutor::back_per_node(const Launch& l) {
  if (!l.fixed_arity) return back_lists(l);
  LaunchArgs r = record(l, true);
  const auto dx = batch_.room<GradientOperand>(l.n_operands);
  std::fill_n(dx.host, l.n_operands, GradientOperand{});
  r.dx = dx.device;
  bool through_scratch = false;
  std::vector<GradientRange> targets;
  if (!distinct(l)) {
    for (uint32_t k = 0; k < l.n_operands; ++k) {
      if (!wanted(l, k)) continue;
      const std::vector<GradientRange> more = targets_of(l, k);
      targets.insert(targets.end(), more.begin(), more.end());
    }
    through_scratch = reduce_through_scratch(targets, like_dynet);
  }
  size_t before = 0;
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    if (!wanted(l, k)) continue;
    if (!through_scratch) {
      dx[k] = gradient_place(l, k, nullptr);
      continue;
    }
    const std::vector<GradientRange> mine(targets.begin() + before, targets.begin() + before + l.count);
    before += l.count;
    dx[k] = gradient_place(l, k, &mine);
  }
  batch_.launch(CudaDevice::kernel_id(l.op, cuda::kBackward), r, int64_t{l.count} * 32);
  if (through_scratch) add_from_scratch();
  else note_sliced(l, true, 0, l.n_operands);
}

// Members whose arguments are lists.
void CudaExecutor::back_lists(const Launch& l) {
  LaunchArgs r = record(l, true);
  const int64_t* const places = plan_.index.data() + plan_.operands[l.operands].index;
  const uint32_t* const starts = plan_.starts.data() + l.arg_begin;
  std::vector<GradientRange> targets;
  for (uint32_t i = 0; i < l.count; ++i) {
    const Sig& sig = *item(l, i).sig;
    for (uint32_t a = 0; a < sig.n_args; ++a)
      if (full_ || sig.requires_grad_args[a])
        targets.push_back({places[starts[i] + a], static_cast<int64_t>(sig.x[a]->size())});
  }
  const bool through_scratch = reduce_through_scratch(targets, like_dynet && l.count > 1);
  const auto lists = batch_.room<float*>(starts[l.count] - starts[0]);
  size_t next = 0;
  for (uint32_t i = 0; i < l.count; ++i) {
    const Sig& sig = *item(l, i).sig;
    for (uint32_t a = 0; a < sig.n_args; ++a)
      lists[starts[i] - starts[0] + a] =
          full_ || sig.requires_grad_args[a] ? gradients() + targets[next++].at : nullptr;
  }
  r.gradient_lists = lists.device;
  batch_.launch(CudaDevice::kernel_id(l.op, cuda::kBackward), r, int64_t{l.count} * 32);
  if (through_scratch) add_from_scratch();
}

void CudaExecutor::back_custom(const Launch& l) {
  LaunchArgs r = record(l, true);
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    if (!wanted(l, k)) continue;
    const auto dx = batch_.room<GradientOperand>(l.n_operands);
    std::fill_n(dx.host, l.n_operands, GradientOperand{});
    bool through_scratch = false;
    std::vector<GradientRange> targets;
    if (!regular(l, k)) {
      targets = targets_of(l, k);
      through_scratch = reduce_through_scratch(targets, like_dynet);
    }
    dx[k] = gradient_place(l, k, through_scratch ? &targets : nullptr);
    r.dx = dx.device;
    r.arg = k;
    r.own = extents(l, k);
    const int64_t warp = k > 0 ? 32 : 1;  // long sums, each by a warp
    batch_.launch(CudaDevice::kernel_id(l.op, cuda::kBackward), r, r.own.total * warp);
    if (through_scratch) add_from_scratch();
  }
}

// What arrives at rows is added to the table's gradient by accumulate().
void CudaExecutor::back_lookup(const Launch& l) {
  const Sig& first = graph_.sig_number(l.sig);
  if (!first.attrs[1]) return;  // update=False
  Storage& storage = graph_.storage(first.attrs[0]);
  const int64_t row = static_cast<int64_t>(storage.row_size());
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    const Graph::Ids ids = graph_.ids(it.id);
    for (uint32_t j = 0; j < ids.n; ++j) rows_.push_back({&storage, ids.data[j], it.out + j * row});
  }
}

}  // namespace dyc
