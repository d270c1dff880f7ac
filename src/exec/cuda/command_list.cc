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

void CommandList::launch_products(ProductLaunch launch, bool needs_grid_sync) {
  commands_.push_back(product_launches_.add(commands_.size(), std::move(launch), needs_grid_sync));
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
  product_launches_.finish(products_);
  choose_set();
  const DeviceOptions& options = device_.options;
  LaunchChoices::Ways ways{};
  if (joins_ && options.joins_launches() && (!choice_ || choice_->wants(LaunchWay::persistent))) {
    pass_.find();
    ways.later = pass_.compile();
    ways.persistent = pass_.has_stretches() && !ways.later;
  }
  const size_t count = commands_.size();
  LaunchWay way = joins_ ? LaunchWay::persistent : LaunchWay::plain;
  if (choice_ || !pass_.has_stretches()) {
    std::vector<Command> joined = chains_.joined(product_launches_.joined(commands_));
    ways.later = ways.later || chains_.is_to_come();
    if (choice_) way = choose_way(ways, joined);
    if (way != LaunchWay::persistent) pass_.clear();
    if (!pass_.has_stretches()) {
      commands_.swap(joined);
      chains_.use();
    }
  }
  product_launches_.count(device_.backend().counters, !pass_.has_stretches());
  device_.prepare(pass_.kernel_ids());
  pass_.replace();
  upload_.upload();
  if (choice_) device_.choices().begin(*choice_, way, count);
  run_all(way);
  device_.choices().end();
}

// Finds whether, and for which set of kernels, it is measured how this list runs best. Otherwise lists are
// joined as far as there are persistent kernels, and what remains, or all, becomes a graph where it repeats.
void CommandList::choose_set() {
  choice_ = nullptr;
  if (!joins_ || commands_.size() < kPersistentSteps || !device_.choices().measures()) return;
  LaunchChoices::Ids ids;
  for (const Command& c : commands_) ids.push_back(c.kernel_id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  choice_ = &device_.choices().find(ids, [](uint32_t id) {
    return id >= Command::kGemm ? std::to_string(id) : CudaDevice::kernel_name(id);
  });
}

LaunchWay CommandList::choose_way(LaunchChoices::Ways ways, const std::vector<Command>& joined) {
  if (choice_->wants(LaunchWay::graph)) {
    std::vector<uint32_t> kernel_ids;
    for (const Command& c : joined)
      if (c.has_kernel()) kernel_ids.push_back(c.kernel_id);
    device_.prepare(kernel_ids);
    const std::vector<Operation> operations = graph_of(joined);
    ways.graph = !operations.empty() && device_.backend().may_run_as_graph(operations);
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
// same memory: then they become a CUDA graph. The upload of the arguments is not part of it. Empty: they are
// not worth one, or some are the library's own launches.
std::vector<Operation> CommandList::graph_of(const std::vector<Command>& commands) const {
  std::vector<Operation> operations;
  if (!device_.options.graphs || device_.options.unfused || commands.size() < kGraphLeast ||
      commands.size() > kGraphMost || !gemms_.empty())
    return operations;
  zeroed_.each_used([&](cuda::Backend::Address to, size_t bytes) {
    operations.push_back({Operation::clearing, nullptr, {}, to, 0, bytes});
  });
  for (const Command& c : commands) operations.push_back(operation(c));
  return operations;
}

bool CommandList::run_as_graph() {
  const std::vector<Operation> operations = graph_of(commands_);
  if (operations.empty() || !device_.backend().run_as_graph(operations)) return false;
  pass_.count_all();
  return true;
}

Operation CommandList::operation(const Command& c) const {
  const auto to = reinterpret_cast<cuda::Backend::Address>(c.args);
  if (c.kernel_id == Command::kCopy)
    return {Operation::copying, nullptr, {}, to, reinterpret_cast<cuda::Backend::Address>(c.from), c.bytes};
  if (c.kernel_id == Command::kPersistent) return pass_.operation(c);
  if (c.kernel_id == Command::kChain) return chains_.operation(c);
  return {Operation::launching, device_.kernel(c.kernel_id), {c.blocks, device_.threads()}, to, 0, 0};
}

// Memory that running kernels may still use is released, and reused, in the order of the stream.
void CommandList::discard() {
  device_.parameters().launches_submitted();
  pass_.clear();
  chains_.clear();
  commands_.clear();
  product_launches_.clear();
  followers_.clear();
  products_.clear();
  sliced_.clear();
  made_weights_.clear();
  gemms_.clear();
  upload_.reset();
  zeroed_.reset();
  uninitialised_.reset();
}

}  // namespace dyc
