#include "exec/cuda/command_list.h"

#include <algorithm>

#include "exec/cuda/parameters.h"
#include "exec/cuda/tuning.h"

namespace dyc {

using Operation = cuda::Backend::Operation;

void CommandList::launch(uint32_t kernel_id, const cuda::LaunchArgs& args, int64_t work,
                         bool needs_grid_sync) {
  const uint32_t threads = device_.threads();
  const int64_t blocks = std::clamp<int64_t>((work + threads - 1) / threads, 1, device_.most_blocks());
  launch_blocks(kernel_id, args, static_cast<uint32_t>(blocks), needs_grid_sync);
}

void CommandList::launch_blocks(uint32_t kernel_id, const cuda::LaunchArgs& args, uint32_t blocks,
                                bool needs_grid_sync) {
  const Array<cuda::LaunchArgs> to = array<cuda::LaunchArgs>(1);
  *to.host = args;
  last_args_ = to.host;
  commands_.push_back({kernel_id, blocks, needs_grid_sync, to.device, nullptr, 0});
}

void CommandList::copy(float* to, const float* from, size_t floats) {
  commands_.push_back({Command::kCopy, 0, true, to, from, floats * sizeof(float)});
}

void CommandList::gemm(const cuda::Gemm& product) {
  commands_.push_back({Command::kGemm, static_cast<uint32_t>(gemms_.size()), true, nullptr, nullptr, 0});
  gemms_.push_back(product);
}

bool CommandList::keeps_weights() const {
  const DeviceOptions& o = device_.options;
  return joins_ && o.joins_launches() && o.keep_weights && o.matmul_variant < 0;
}

void CommandList::submit() {
  try {
    run();
  } catch (...) {
    device_.choices().give_up();
    discard();
    throw;
  }
  discard();
}

void CommandList::run() {
  const LaunchWay way = choose_way();
  if (way != LaunchWay::persistent) pass_.clear();
  device_.prepare(pass_.kernel_ids());
  const size_t count = commands_.size();
  pass_.replace();
  upload_.upload();
  if (choice_) device_.choices().begin(*choice_, way, count);
  run_all(way);
  device_.choices().end();
}

// Without a measurement lists are joined as far as there are kernels for it, and what remains of them, or
// all, becomes a graph where it repeats.
LaunchWay CommandList::choose_way() {
  const DeviceOptions& options = device_.options;
  choice_ = nullptr;
  if (!joins_) return LaunchWay::plain;
  if (commands_.size() >= kPersistentSteps && device_.choices().measures()) {
    LaunchChoices::Ids ids;
    for (const Command& c : commands_) ids.push_back(c.kernel_id);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    choice_ = &device_.choices().find(ids, [](uint32_t id) {
      return id >= Command::kGemm ? std::to_string(id) : CudaDevice::kernel_name(id);
    });
  }
  LaunchChoices::Ways ways{};
  if (options.joins_launches() && (!choice_ || choice_->wants(LaunchWay::persistent))) {
    pass_.find();
    ways.later = pass_.compile();
    ways.persistent = pass_.has_stretches() && !ways.later;
  }
  if (!choice_) return LaunchWay::persistent;
  if (may_be_graph() && choice_->wants(LaunchWay::graph)) {
    std::vector<uint32_t> kernel_ids;
    for (const Command& c : commands_)
      if (c.has_kernel()) kernel_ids.push_back(c.kernel_id);
    device_.prepare(kernel_ids);
    ways.graph = device_.backend().may_run_as_graph(operations());
  }
  return device_.choices().choose(*choice_, ways);
}

void CommandList::run_all(LaunchWay way) {
  if (way != LaunchWay::plain && run_as_graph()) return;
  zeroed_.each_used([&](cuda::Backend::Address to, size_t bytes) { device_.backend().clear(to, bytes); });
  for (const Command& c : commands_) run_command(c);
}

void CommandList::run_command(const Command& c) {
  if (c.kernel_id == Command::kGemm) device_.backend().gemm(gemms_[c.blocks]);
  else if (c.kernel_id != Command::kPersistent) device_.backend().run(operation(c));
  else if (!pass_.launch(c, operation(c))) {  // its steps one by one
    const std::span<const Command> steps = pass_.steps(c);
    std::vector<uint32_t> kernel_ids;
    for (const Command& step : steps) kernel_ids.push_back(step.kernel_id);
    device_.prepare(kernel_ids);
    for (const Command& step : steps) run_command(step);
  }
}

// Commands that remain many launches may repeat exactly, as the same computation writes its arguments to the
// same memory: then they become a CUDA graph. The upload of the arguments is not part of it.
bool CommandList::may_be_graph() const {
  return device_.options.graphs && !device_.options.unfused && commands_.size() >= kGraphLeast &&
         commands_.size() <= kGraphMost && gemms_.empty();  // these are the library's own launches
}

std::vector<Operation> CommandList::operations() const {
  std::vector<Operation> operations;
  zeroed_.each_used([&](cuda::Backend::Address to, size_t bytes) {
    operations.push_back({Operation::clearing, nullptr, {}, to, 0, bytes});
  });
  for (const Command& c : commands_) operations.push_back(operation(c));
  return operations;
}

bool CommandList::run_as_graph() {
  if (!may_be_graph() || !device_.backend().run_as_graph(operations())) return false;
  pass_.count_all();
  return true;
}

Operation CommandList::operation(const Command& c) const {
  const auto to = reinterpret_cast<cuda::Backend::Address>(c.args);
  if (c.kernel_id == Command::kCopy)
    return {Operation::copying, nullptr, {}, to, reinterpret_cast<cuda::Backend::Address>(c.from), c.bytes};
  if (c.kernel_id == Command::kPersistent) return pass_.operation(c);
  return {Operation::launching, device_.kernel(c.kernel_id), {c.blocks, device_.threads()}, to, 0, 0};
}

// Memory that running kernels may still use is released, and reused, in the order of the stream.
void CommandList::discard() {
  device_.parameters().launches_submitted();
  pass_.clear();
  commands_.clear();
  products_.clear();
  sliced_.clear();
  made_weights_.clear();
  gemms_.clear();
  upload_.reset();
  zeroed_.reset();
  uninitialised_.reset();
}

}  // namespace dyc
