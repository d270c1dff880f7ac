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
    discard();
    throw;
  }
  discard();
}

void CommandList::run() {
  if (joins_ && device_.options.joins_launches()) pass_.find();
  pass_.compile();
  device_.prepare(pass_.kernel_ids());
  pass_.replace();
  upload_.upload();
  if (run_as_graph()) return;
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

// Commands that remain many launches, because these are large or their persistent kernel is not compiled, may
// repeat exactly, as the same computation writes its arguments to the same memory: then they become a CUDA
// graph. The upload of the arguments is not part of it.
bool CommandList::run_as_graph() {
  if (!joins_ || !device_.options.graphs || device_.options.unfused || commands_.size() < kGraphLeast ||
      commands_.size() > kGraphMost)
    return false;
  if (!gemms_.empty()) return false;  // the library's own launches
  std::vector<Operation> operations;
  zeroed_.each_used([&](cuda::Backend::Address to, size_t bytes) {
    operations.push_back({Operation::clearing, nullptr, {}, to, 0, bytes});
  });
  for (const Command& c : commands_) operations.push_back(operation(c));
  if (!device_.backend().run_as_graph(operations)) return false;
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
