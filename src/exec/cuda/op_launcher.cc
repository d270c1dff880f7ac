#include "exec/cuda/op_launcher.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "cuda/abi/lookup.h"
#include "exec/cuda/parameters.h"
#include "exec/cuda/tuning.h"

namespace dyc {

using cuda::LaunchArgs;

namespace {

bool is_elementwise(const Launch& l) { return l.kind == OpKind::unary || l.kind == OpKind::binary; }

// A warp for each node, or more of them where they can share large nodes.
int64_t threads_of_nodes(const Launch& l) {
  const int64_t threads = int64_t{l.count} * kWarpThreads;
  return op_info(l.op).meta->warps_share ? std::max(threads, l.total / cuda::kShareElements) : threads;
}

}  // namespace

void OpLauncher::forward(const Launch& l) {
  if (l.kind == OpKind::lookup) return forward_lookup(l);
  if (l.kind == OpKind::parameter) return forward_parameter(l);
  c_.counters.operand_bytes += c_.launches.operand_bytes(l);
  if (l.total == 0) return;
  LaunchArgs args = encoder_.encode(l, false);
  if (l.kind == OpKind::binary) encoder_.encode_axes(l, args);
  c_.commands.launch(CudaDevice::kernel_id(l.op, cuda::kForward), args,
                     is_elementwise(l) ? l.total : threads_of_nodes(l), c_.needs_grid_sync);
  note_sliced(l, false, 0, l.n_operands);
  if (l.kind != OpKind::custom) c_.commands.note_link(c_.link);
}

// The launch made last can be sliced where element i of a vector, or of a column, is computed from elements i
// of others; that of an LSTM's cell from those of all gates. Backward it adds to the gradients of operands
// [first, end), and writes no values.
void OpLauncher::note_sliced(const Launch& l, bool backward, uint32_t first, uint32_t end) {
  const Sig& sig = c_.graph().sig_number(l.sig);
  const bool cell = l.op == op_id<LstmCell>, elements = is_elementwise(l) && l.flat;
  if (!c_.commands.keeps_weights() || !(cell || elements) || !l.uniform || l.count > kSlicedNodes) return;
  const int64_t period = cell ? sig.x[1]->rows() : sig.y->rows();
  const float* const arena = backward ? c_.gradients() : c_.values();
  std::vector<MemoryRange> accesses;
  accesses.push_back(access_to(arena, 1, l.total, period, !backward || cell, [&](int64_t) { return l.out; }));
  for (uint32_t k = first; k < end; ++k) {
    const Operand& o = c_.launches.operand(l, k);
    if (backward && !c_.launches.wanted(l, k)) continue;
    accesses.push_back(
        access_to(arena, l.count, static_cast<int64_t>(sig.x[k]->size()), period, backward,
                  [&](int64_t i) { return c_.launches.argument(l, o, static_cast<uint32_t>(i)); }));
  }
  c_.commands.note_sliced(period, elements, std::move(accesses));
}

void OpLauncher::forward_lookup(const Launch& l) {
  Storage& storage = c_.graph().parameters.storage(c_.graph().sig_number(l.sig).attrs[0]);
  c_.counters.operand_bytes += 4 * l.total;
  for (uint32_t i = 0; i < l.count; ++i)
    LaunchReader::check_rows(storage, c_.graph().ids(c_.plan().nodes[l.nodes + i]));
  const ParameterTable::Values v = c_.graph().parameters.values_of(storage);
  LaunchArgs args = encoder_.encode(l, false);
  cuda::LookupArgs table{};
  table.rows =
      c_.device.parameters().values(c_.graph().parameters.shared_storage(storage.uid), v.raw, v.version);
  table.factor = v.factor;
  table.row_size = static_cast<int64_t>(storage.row_size());
  args.extra = c_.commands.put(&table, 1);
  c_.commands.launch(CudaDevice::kernel_id(cuda::kLookupForward), args, l.total, c_.needs_grid_sync);
}

void OpLauncher::forward_parameter(const Launch& l) {
  const float* const from = parameters_.values(c_.graph().parameter_use(c_.plan().nodes[l.nodes]));
  c_.commands.copy(c_.values() + l.out, from, static_cast<size_t>(l.total));
  c_.counters.gathered_bytes += static_cast<size_t>(l.total) * sizeof(float);
}

void OpLauncher::backward(const Launch& l, std::vector<RowGradient>& rows) {
  switch (l.kind) {
    case OpKind::unary:
    case OpKind::binary:
      return backward_elementwise(l);
    case OpKind::per_node:
      return l.fixed_arity ? backward_per_node(l) : backward_lists(l);
    case OpKind::custom:
      return backward_custom(l);
    case OpKind::lookup:
      return backward_lookup(l, rows);
    default:
      return;
  }
}

// True if the operand's description alone shows that no two nodes have the same argument k.
bool OpLauncher::is_regular(const Launch& l, uint32_t k) const {
  const Operand& o = c_.launches.operand(l, k);
  if (l.count == 1) return true;
  if (!l.uniform) return o.kind == Operand::contiguous;
  const int64_t size = static_cast<int64_t>(c_.graph().sig_number(l.sig).x[k]->size());
  return o.kind == Operand::contiguous ||
         (o.kind == Operand::strided && (o.stride >= size || o.stride <= -size));
}

CommandList::Array<GradientOperand> OpLauncher::gradient_operands(const Launch& l) {
  const auto dx = c_.commands.array<GradientOperand>(l.n_operands);
  std::fill_n(dx.host, l.n_operands, GradientOperand{});
  return dx;
}

// The gradient of operand k, at the offset of the operand itself or (not null) at those of `targets`.
GradientOperand OpLauncher::gradient_operand(const Launch& l, uint32_t k, const GradientRange* targets) {
  if (!targets) {
    const ValueOperand p = encoder_.operand(l, c_.launches.operand(l, k), c_.gradients());
    return {const_cast<float*>(p.base), p.index, p.stride, static_cast<GradientOperand::Kind>(p.kind), false};
  }
  const auto index = c_.commands.array<int64_t>(l.count);
  for (uint32_t i = 0; i < l.count; ++i) index[i] = targets[i].at;
  return {c_.gradients(), index.device, 0, GradientOperand::indexed, false};
}

std::vector<GradientRange> OpLauncher::targets_of(const Launch& l, uint32_t k) const {
  std::vector<GradientRange> targets;
  targets.reserve(l.count);
  const Operand& o = c_.launches.operand(l, k);
  for (uint32_t i = 0; i < l.count; ++i)
    targets.push_back(
        {c_.launches.argument(l, o, i), static_cast<int64_t>(c_.launches.item(l, i).sig->x[k]->size())});
  return targets;
}

// Notes what the commands from `first` on, which make the gradient of argument k, read and add to.
void OpLauncher::note_added(const Launch& l, uint32_t k, size_t first) {
  ArenaRange reads, adds;
  for (uint32_t i = 0; i < l.count; ++i) {
    const LaunchReader::Item it = c_.launches.item(l, i);
    reads.include({it.out, it.out + static_cast<int64_t>(it.sig->size)});
    const int64_t at = c_.launches.argument(l, c_.launches.operand(l, k), i);
    adds.include({at, at + static_cast<int64_t>(it.sig->x[k]->size())});
  }
  c_.commands.followers().note_added(reads, adds, first, c_.commands.size() - 1);
}

// One launch for each argument.
void OpLauncher::backward_elementwise(const Launch& l) {
  std::optional<LaunchArgs> encoded;
  const auto encode = [&]() -> LaunchArgs& {
    if (!encoded) {
      encoded = encoder_.encode(l, true);
      if (l.kind == OpKind::binary) encoder_.encode_axes(l, *encoded);
    }
    return *encoded;
  };
  const bool copies = c_.strategy().copies_gradients();
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    if (!c_.launches.wanted(l, k)) continue;
    const auto dx = gradient_operands(l);
    std::vector<Addition> additions;
    bool repeats = false;
    if (is_regular(l, k)) {
      dx[k] = gradient_operand(l, k, nullptr);
    } else {
      std::vector<GradientRange> targets = targets_of(l, k);
      const GradientReducer::Overlap how = GradientReducer::overlap(targets);
      repeats = how == GradientReducer::Overlap::same && l.count <= kFewNodes && !copies;
      if ((how != GradientReducer::Overlap::none || copies) && !repeats)
        additions = reducer_.through_scratch(targets, copies);
      dx[k] = gradient_operand(l, k, additions.empty() ? nullptr : targets.data());
      dx[k].repeats = repeats;
    }
    if (additions.empty() && !repeats && followers_.backward(l, k)) continue;
    const size_t first = c_.commands.size();
    LaunchArgs& args = encode();
    args.dx = dx.device;
    args.own = l.kind == OpKind::binary ? encoder_.sizes(l, k) : args.results;
    c_.commands.launch(CudaDevice::kernel_id(l.op, k == 0 ? cuda::kBackward : cuda::kBackwardSecond), args,
                       repeats ? args.own.largest : args.own.total);
    reducer_.add(additions);
    note_added(l, k, first);
    if (!additions.empty() || repeats) continue;
    note_sliced(l, true, k, k + 1);
    c_.commands.note_link(c_.link);
  }
}

void OpLauncher::backward_per_node(const Launch& l) {
  LaunchArgs args = encoder_.encode(l, true);
  const auto dx = gradient_operands(l);
  args.dx = dx.device;
  std::vector<GradientRange> targets;
  std::vector<Addition> additions;
  if (!c_.launches.distinct(l)) {
    for (uint32_t k = 0; k < l.n_operands; ++k) {
      if (!c_.launches.wanted(l, k)) continue;
      const std::vector<GradientRange> more = targets_of(l, k);
      targets.insert(targets.end(), more.begin(), more.end());
    }
    additions = reducer_.through_scratch(targets, c_.strategy().copies_gradients());
  }
  const GradientRange* next = additions.empty() ? nullptr : targets.data();
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    if (!c_.launches.wanted(l, k)) continue;
    dx[k] = gradient_operand(l, k, next);
    if (next) next += l.count;
  }
  c_.commands.launch(CudaDevice::kernel_id(l.op, cuda::kBackward), args, threads_of_nodes(l));
  reducer_.add(additions);
  if (!additions.empty()) return;
  note_sliced(l, true, 0, l.n_operands);
  c_.commands.note_link(c_.link);
}

// Of nodes whose arguments are lists.
void OpLauncher::backward_lists(const Launch& l) {
  LaunchArgs args = encoder_.encode(l, true);
  const int64_t* const offsets = c_.plan().index.data() + c_.launches.operand(l, 0).index;
  const uint32_t* const starts = c_.plan().starts.data() + l.arg_begin;
  // f(number of the argument in all lists, its size), for arguments that take a gradient
  const auto each_wanted = [&](auto f) {
    for (uint32_t i = 0; i < l.count; ++i) {
      const Sig& sig = *c_.launches.item(l, i).sig;
      for (uint32_t a = 0; a < sig.n_args; ++a)
        if (c_.launches.full() || sig.requires_grad_args[a])
          f(starts[i] + a, static_cast<int64_t>(sig.x[a]->size()));
    }
  };
  std::vector<GradientRange> targets;
  each_wanted([&](uint32_t a, int64_t size) { targets.push_back({offsets[a], size}); });
  const bool copies = c_.strategy().copies_gradients() && l.count > 1;
  const std::vector<Addition> additions = reducer_.through_scratch(targets, copies);
  const auto lists = c_.commands.array<float*>(starts[l.count] - starts[0]);
  std::fill_n(lists.host, lists.n, nullptr);
  size_t next = 0;
  each_wanted([&](uint32_t a, int64_t) { lists[a - starts[0]] = c_.gradients() + targets[next++].at; });
  args.gradient_lists = lists.device;
  c_.commands.launch(CudaDevice::kernel_id(l.op, cuda::kBackward), args, threads_of_nodes(l));
  reducer_.add(additions);
}

// One launch for each argument.
void OpLauncher::backward_custom(const Launch& l) {
  LaunchArgs args = encoder_.encode(l, true);
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    if (!c_.launches.wanted(l, k)) continue;
    const auto dx = gradient_operands(l);
    std::vector<Addition> additions;
    std::vector<GradientRange> targets;
    if (!is_regular(l, k)) {
      targets = targets_of(l, k);
      additions = reducer_.through_scratch(targets, c_.strategy().copies_gradients());
    }
    dx[k] = gradient_operand(l, k, additions.empty() ? nullptr : targets.data());
    args.dx = dx.device;
    args.arg = k;
    args.own = encoder_.sizes(l, k);
    const int64_t threads = k > 0 ? kWarpThreads : 1;  // of an element: long sums, each by a warp
    c_.commands.launch(CudaDevice::kernel_id(l.op, cuda::kBackward), args, args.own.total * threads);
    reducer_.add(additions);
  }
}

void OpLauncher::backward_lookup(const Launch& l, std::vector<RowGradient>& rows) {
  const Sig& first = c_.graph().sig_number(l.sig);
  if (!first.attrs[1]) return;  // update=False
  Storage& storage = c_.graph().parameters.storage(first.attrs[0]);
  const int64_t row = static_cast<int64_t>(storage.row_size());
  for (uint32_t i = 0; i < l.count; ++i) {
    const LaunchReader::Item it = c_.launches.item(l, i);
    const Graph::Ids ids = c_.graph().ids(it.id);
    for (uint32_t j = 0; j < ids.n; ++j) rows.push_back({&storage, ids.data[j], !ids.list, it.out + j * row});
  }
}

}  // namespace dyc
