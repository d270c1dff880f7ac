#include "exec/cuda/cuda_executor.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "exec/cuda/parameters.h"
#include "exec/cuda/tuning.h"
#include "plan/fuse.h"

namespace dyc {

CudaExecutor::CudaExecutor(Graph& graph, Plan& plan, CudaDevice& device)
    : Executor(graph, plan), device_(device), arenas_(graph, plan, device), commands_(device) {}

void CudaExecutor::forward(uint32_t& next, uint32_t end) {
  if (next >= end) return;
  const auto lock = device_.lock();
  try {
    arenas_.upload_for(next, end);
    unsynced_ = {};
    for (uint32_t head = next; head < end;) {
      ++counters.launches;  // as the plan has them; see device_counters() for the device's
      const uint32_t group_end = std::min(end, end_of_group(head));
      for (const uint32_t i : order_of_group(head, group_end)) {
        const LaunchTimer timer(*this, i, i + 1, false);
        context_.link = link_of(head, i);
        run(plan_.launches[i], i > head && plan_.launches[head].elementwise);
        submit_timed();
      }
      head = group_end;
    }
    submit();
  } catch (...) {
    discard();
    device_.rethrow();
  }
  arenas_.ran(next, end);
  argmax_.ran(next, end);
  next = end;
}

uint32_t CudaExecutor::end_of_group(uint32_t head) const {
  const Launch& l = plan_.launches[head];
  return head + 1 + l.elementwise + l.fused;
}

// The launches of a group in the order in which they run forward: first products that read nothing of it, so
// that they can be one launch, and what follows them a chain.
std::vector<uint32_t> CudaExecutor::order_of_group(uint32_t head, uint32_t end) const {
  std::vector<uint32_t> order(end - head);
  std::iota(order.begin(), order.end(), head);
  const Launch& group = plan_.launches[head];
  if (!group.fused || context_.strategy().syncs_always()) return order;
  const auto stages = plan_.stages.begin() + group.stages;
  std::stable_partition(order.begin(), order.end(), [&](uint32_t i) {
    const Launch& l = plan_.launches[i];
    return std::any_of(stages, stages + group.n_matmuls,
                       [&](const Launch& stage) { return stage.nodes == l.nodes; });
  });
  return order;
}

// Of a launch of this group: instances, or elements, go through what is not a product by themselves.
Link CudaExecutor::link_of(uint32_t head, uint32_t launch) const {
  const Launch &group = plan_.launches[head], &l = plan_.launches[launch];
  if (!device_.options.chains || context_.strategy().syncs_always()) return {};
  if (group.elementwise) return {head + 1, 0, group.total};
  if (!group.fused || l.kind == OpKind::matmul || op_info(l.op).scratch) return {};
  const Sig& sig = graph_.sig_number(l.sig);
  size_t size = sig.size;  // of an instance: one block has all of it
  for (const Dim* x : sig.x) size = std::max(size, x->size());
  if (size > kLinkFloats || l.total >= cuda::kDivisible) return {};
  return {head + 1, group.count, 0};
}

void CudaExecutor::run(const Launch& l, bool grouped) {
  counters.nodes += l.count;
  if (followers_.forward(l)) return note_unsynced(l, grouped);
  decide_sync(l, grouped);
  launch(l);
  if (commands_.size()) commands_.followers().note_written({l.out, l.out + l.total}, commands_.size() - 1);
}

void CudaExecutor::launch(const Launch& l) {
  if (op_info(l.op).check) check(l);
  switch (l.kind) {
    case OpKind::unary:
    case OpKind::binary:
    case OpKind::per_node:
    case OpKind::custom:
    case OpKind::lookup:
    case OpKind::parameter:
      return ops_.forward(l);
    case OpKind::matmul:
      return matmuls_.forward(l);
    case OpKind::user:
      submit();  // what it reads
      return call_functions(l, arenas_.values(), nullptr, arenas_.values_memory());
    default:
      throw RuntimeError(text("no kernel for ", op_info(l.op).meta->name));
  }
}

// A launch of an element-wise group reads what the same thread wrote, and may read what was there before the
// group.
void CudaExecutor::decide_sync(const Launch& l, bool grouped) {
  if (!grouped) unsynced_before_group_ = unsynced_;
  context_.needs_grid_sync = context_.strategy().syncs_always() || reads(l, unsynced_before_group_);
  if (context_.needs_grid_sync) unsynced_ = unsynced_before_group_ = {};
  unsynced_.include({l.out, l.out + l.total});
}

// The launch is part of one before: no thread of its group has made what it makes.
void CudaExecutor::note_unsynced(const Launch& l, bool grouped) {
  const ArenaRange made{l.out, l.out + l.total};
  unsynced_.include(made);
  if (grouped) unsynced_before_group_.include(made);
  else unsynced_before_group_ = unsynced_;
}

// May the launch read something in this range?
bool CudaExecutor::reads(const Launch& l, ArenaRange range) const {
  if (range.empty()) return false;
  const Sig& sig = graph_.sig_number(l.sig);
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    const Operand& o = operand(l, k);
    if (o.kind == Operand::weight && o.base < 0) continue;
    if (!l.uniform || !l.fixed_arity) return true;
    const int64_t size = static_cast<int64_t>(sig.x[k]->size());
    if (o.kind == Operand::indexed) {
      const int64_t* const at = plan_.index.data() + o.index;
      for (uint32_t i = 0; i < l.count; ++i)
        if (range.meets({at[i], at[i] + size})) return true;
      continue;
    }
    const bool spaced = o.kind == Operand::contiguous || o.kind == Operand::strided;
    const int64_t last = o.base + (spaced ? int64_t{l.count - 1} * o.stride : 0);
    if (range.meets({std::min(o.base, last), std::max(o.base, last) + size})) return true;
  }
  return false;
}

void CudaExecutor::submit() {
  commands_.submit();
  parameters_.submitted();
  discard();
}

// With profiling, each launch is submitted by itself, so that its time can be measured.
void CudaExecutor::submit_timed() {
  if (!profiling && !trace) return;
  submit();
  device_.backend().wait();
}

void CudaExecutor::discard() {
  commands_.discard();
  parameters_.discarded();
  encoder_.forget();
  context_.needs_grid_sync = true;
}

const float* CudaExecutor::parameter_values(ParameterUse& use) {
  return graph_.parameters.values(use, [&](float* to) {
    const auto lock = device_.lock();
    try {
      if (use.on_device && device_.parameters().download(*use.storage, use.version, to)) return;
    } catch (...) {
      device_.rethrow();
    }
    std::copy_n(use.pinned, use.storage->size(), to);
  });
}

void CudaExecutor::cut_back(uint32_t launches) {
  DeviceLock lock;  // first, as it may throw
  if (launches == 0) lock = device_.lock();
  arenas_.cut_back(launches);
  if (launches == 0) device_.parameters().forget();
}

void CudaExecutor::set_input(NodeId id, std::shared_ptr<DeviceMemory> memory) {
  const int64_t offset = graph_.offset_of(id);
  if (memory) arenas_.set_input(offset, graph_.sig(id).size, std::move(memory));
  else arenas_.forget_input(offset);
}

std::shared_ptr<DeviceMemory> CudaExecutor::copy_on_device(NodeId id) {
  const auto lock = device_.lock();
  try {
    auto memory = std::make_shared<DeviceMemory>(device_.backend(), "values for other libraries", 0);
    memory->reserve(std::max<size_t>(graph_.sig(id).size, 1) * sizeof(float), 0);
    if (graph_.sig(id).size) copy_values(id, memory->address());
    memory->share();
    return memory;
  } catch (...) {
    discard();
    device_.rethrow();
  }
}

void CudaExecutor::copy_values(NodeId id, cuda::Backend::Address to) {
  const NodeId base = graph_.base_of(id);
  const size_t bytes = graph_.sig(id).size * sizeof(float);
  const float* from = nullptr;
  if (graph_.is_parameter(base)) {
    from = parameters_.values(graph_.parameter_use(base)) + (base == id ? 0 : graph_.node(id).aux);
    submit();
  } else if (base < plan_.launch_of.size() && plan_.launch_of[base] != kNone) {
    from = arenas_.values() + graph_.offset_of(id);
  } else {  // an input
    int64_t begin = 0;
    const auto memory = arenas_.input_at(graph_.offset_of(id), &begin);
    if (!memory)
      return device_.backend().upload(to, graph_.values_arena.base() + graph_.offset_of(id), bytes);
    from = memory->at<float>() + (graph_.offset_of(id) - begin);
  }
  device_.backend().copy(to, reinterpret_cast<cuda::Backend::Address>(from), bytes);
}

void CudaExecutor::expect_read(NodeId id) {
  const NodeId base = graph_.base_of(id);
  const uint32_t launch = base < plan_.launch_of.size() ? plan_.launch_of[base] : kNone;
  if (launch != kNone && graph_.offset_of(id) >= 0)
    arenas_.expect_read(launch, graph_.offset_of(id), graph_.sig(id).size);
}

uint32_t CudaExecutor::argmax(uint32_t launch, int64_t offset) {
  const uint32_t node = argmax_.node_at(launch, offset);
  if (node == kNone) return kNone;
  if (!argmax_.is_known(launch)) {
    const auto lock = device_.lock();
    try {
      argmax_.find(launch);
      submit();
      argmax_.download(launch);
    } catch (const Error&) {
      discard();
      if (device_.backend().lost()) device_.rethrow();
      argmax_.give_up();  // the values are there
      return kNone;
    } catch (...) {
      discard();
      throw;
    }
  }
  return argmax_.index(launch, node);
}

void CudaExecutor::backward(NodeId root, const std::vector<uint8_t>& live,
                            const std::vector<uint32_t>& live_nodes) {
  {
    const auto lock = device_.lock();
    try {
      run_backward(root, live, live_nodes);
    } catch (...) {
      discard();
      device_.rethrow();
    }
  }
  parameters_.forget_unreached();
  if (direct_) accumulate();
}

void CudaExecutor::run_backward(NodeId root, const std::vector<uint8_t>& live,
                                const std::vector<uint32_t>& live_nodes) {
  arenas_.clear_gradients();
  parameters_.begin_backward();
  seed(root);
  uint32_t end = static_cast<uint32_t>(plan_.launches.size());
  std::vector<uint32_t> heads;
  for (uint32_t i = 0; i < end; i = end_of_group(i)) heads.push_back(i);
  for (auto head = heads.rbegin(); head != heads.rend(); end = *head++) {
    const std::vector<uint32_t> order = order_of_group(*head, end);
    const bool chained = may_chain_backward(*head);
    for (auto i = order.rbegin(); i != order.rend(); ++i) {
      if (!live_nodes[*i]) continue;
      const LaunchTimer timer(*this, *i, *i + 1, true, live_nodes[*i]);
      const bool whole = live_nodes[*i] == plan_.launches[*i].count;
      context_.link = chained && whole ? link_of(*head, *i) : Link{};
      backward_live(*i, live, live_nodes);
      submit_timed();
    }
  }
  add_weight_gradients();
  submit();
}

// Does no instance, or element, of the group add to gradients that another adds to or reads?
bool CudaExecutor::may_chain_backward(uint32_t head) {
  const Launch& group = plan_.launches[head];
  if (group.elementwise || group.disjoint_gradients) return true;
  return group.fused && device_.options.chains && Fuser(graph_, plan_).gradients_disjoint(group, true);
}

void CudaExecutor::add_weight_gradients() {
  const int64_t start = profile_clock();
  {
    const ProfileTrace::Scope weights(trace, ProfileSpan::weights, "weight gradients");
    matmuls_.add_all_weight_gradients();
    submit_timed();
  }
  if (profiling) charge_weights(1e-9 * static_cast<double>(profile_clock() - start));
}

void CudaExecutor::seed(NodeId root) {
  int64_t at = graph_.offset_of(root);
  if (at < 0) {
    const ParameterUse& use = graph_.parameter_use(graph_.base_of(root));
    if (use.gradient < 0) return;
    parameters_.mark_reached(use);
    at = use.gradient;
  }
  arenas_.set_gradient(at, root_gradient);
}

void CudaExecutor::backward_live(uint32_t number, const std::vector<uint8_t>& live,
                                 const std::vector<uint32_t>& live_nodes) {
  const Launch& l = plan_.launches[number];
  run_deferred_of(l);
  if (l.kind == OpKind::parameter) return;  // its gradient is added when all is done
  ++counters.launches;
  if (live_nodes[number] == l.count) return backward(l);
  const PlanMark mark = plan_.mark();
  backward(live_part({&number, 1}, live, live_nodes));
  plan_.revert(mark);
  encoder_.forget_index();
}

void CudaExecutor::backward(const Launch& l) {
  if (!op_info(l.op).meta->nondiff && l.total > 0) {
    if (l.kind == OpKind::matmul) {
      matmuls_.backward(l);
    } else if (l.kind == OpKind::user) {
      submit();
      call_functions(l, arenas_.values(), arenas_.gradients(), arenas_.values_memory(),
                     arenas_.gradients_memory());
    } else {
      ops_.backward(l, rows_);
    }
  }
  if (!context_.strategy().defers_weight_gradients()) matmuls_.add_all_weight_gradients();
}

void CudaExecutor::accumulate() {
  parameters_.accumulate(rows_);
  rows_.clear();
}

const float* CudaExecutor::parameter_gradient(NodeId id) {
  const ParameterUse& use = graph_.parameter_use(id);
  if (use.gradient < 0) return nullptr;
  fetch_gradients(use.gradient, use.storage->size());
  return grads() + use.gradient;
}

}  // namespace dyc
