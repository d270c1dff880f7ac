#include "exec/cuda/persistent_pass.h"

#include <algorithm>

#include "base/error.h"
#include "exec/cuda/command_list.h"
#include "exec/cuda/tuning.h"

namespace dyc {

namespace {

// Those of commands [begin, end).
template <class T>
std::span<T> part(std::vector<T>& all, size_t begin, size_t end) {
  const auto before = [](const T& one, size_t step) { return one.step < step; };
  const auto first = std::lower_bound(all.begin(), all.end(), begin, before);
  return {first, std::lower_bound(first, all.end(), end, before)};
}

}  // namespace

// A small launch takes less time than the gap before it.
bool PersistentPass::may_be_step(const Command& c) const {
  return c.has_kernel() && PersistentKernels::can_run(c.kernel_id) &&
         c.blocks <= kPersistentBlocks * device_.backend().limits().processors;
}

void PersistentPass::find() {
  const std::vector<Command>& commands = list_.commands_;
  for (size_t i = 0; i < commands.size();) {
    size_t end = i;
    while (end < commands.size() && may_be_step(commands[end])) ++end;
    if (end - i >= kPersistentSteps) stretches_.push_back(stretch(i, end));
    i = std::max(end, i + 1);
  }
}

PersistentPass::Stretch PersistentPass::stretch(size_t begin, size_t end) {
  Stretch s{begin, end};
  for (size_t k = begin; k < end; ++k) s.kernel_ids.push_back(list_.commands_[k].kernel_id);
  if (list_.keeps_weights()) find_weights(s);
  std::sort(s.kernel_ids.begin(), s.kernel_ids.end());
  s.kernel_ids.erase(std::unique(s.kernel_ids.begin(), s.kernel_ids.end()), s.kernel_ids.end());
  return s;
}

void PersistentPass::find_weights(Stretch& s) {
  s.products = part(list_.products_, s.begin, s.end);
  s.sliced = part(list_.sliced_, s.begin, s.end);
  if (device_.options.skip_barriers)
    s.barrier_free_runs = find_barrier_free_runs(
        s.products, s.sliced, s.begin, [this](size_t step) { return list_.commands_[step].needs_grid_sync; });
  s.weights = PersistentWeights(s.products);
  if (s.weights.wanted()) s.kernel_ids.push_back(CudaDevice::kernel_id(cuda::kPersistentProduct));
}

bool PersistentPass::compile() {
  PersistentKernels& kernels = device_.persistent_kernels();
  std::erase_if(stretches_, [&](const Stretch& s) { return !kernels.is_possible(s.kernel_ids); });
  const size_t possible = stretches_.size();
  std::erase_if(stretches_, [&](const Stretch& s) { return !kernels.is_wanted(s.kernel_ids); });
  std::vector<std::vector<uint32_t>> wanted;
  for (const Stretch& s : stretches_) wanted.push_back(s.kernel_ids);
  kernels.prepare(wanted);
  std::erase_if(stretches_, [&](const Stretch& s) { return !kernels.find(s.kernel_ids); });
  return stretches_.size() < possible;
}

std::vector<uint32_t> PersistentPass::kernel_ids() const {
  std::vector<uint32_t> ids;
  size_t at = 0;
  const auto add_until = [&](size_t end) {
    for (; at < end; ++at)
      if (list_.commands_[at].has_kernel()) ids.push_back(list_.commands_[at].kernel_id);
  };
  for (const Stretch& s : stretches_) {
    add_until(s.begin);
    at = s.end;
  }
  add_until(list_.commands_.size());
  return ids;
}

void PersistentPass::replace() {
  if (stretches_.empty()) return;
  std::vector<Command>& commands = list_.commands_;
  std::vector<Command> joined;
  size_t at = 0;
  for (size_t i = 0; i < stretches_.size(); ++i) {
    joined.insert(joined.end(), commands.begin() + at, commands.begin() + stretches_[i].begin);
    joined.push_back(launch_of(i));
    at = stretches_[i].end;
  }
  joined.insert(joined.end(), commands.begin() + at, commands.end());
  replaced_.swap(commands);
  commands.swap(joined);
}

Command PersistentPass::launch_of(size_t number) {
  Stretch& s = stretches_[number];
  PersistentKernels::Kernel& kernel = *device_.persistent_kernels().find(s.kernel_ids);
  s.kernel = kernel.kernel;
  uint32_t blocks = 1;
  for (size_t i = s.begin; i < s.end; ++i) blocks = std::max(blocks, list_.commands_[i].blocks);
  blocks = place_weights(s, kernel, std::min(blocks, kernel.blocks));
  const std::vector<cuda::PersistentStep> steps = steps_of(s);
  for (const cuda::PersistentStep& step : steps) kernel.require(step.kernel_id);
  cuda::PersistentArgs all{};
  all.steps = list_.put(steps);
  all.count = static_cast<uint32_t>(steps.size());
  all.arrived = reinterpret_cast<uint32_t*>(list_.zeros(1));
  all.fault = device_.backend().fault();
  const std::vector<cuda::WeightLoad> loads = loads_of(s);
  all.loads = list_.put(loads);
  all.load_count = static_cast<uint32_t>(loads.size());
  all.loads_first = steps[0].kernel_id == CudaDevice::kernel_id(cuda::kPersistentProduct);
  cuda::LaunchArgs args;
  args.count = all.count;
  args.extra = list_.put(&all, 1);
  return {Command::kPersistent, blocks, true, list_.put(&args, 1), nullptr, 0, number};
}

// Weights are loaded when the kernel begins, except those that this list computes.
std::vector<cuda::WeightLoad> PersistentPass::loads_of(const Stretch& s) const {
  std::vector<cuda::WeightLoad> loads = s.weights.loads();
  for (cuda::WeightLoad& load : loads) {
    const bool made = std::count(list_.made_weights_.begin(), list_.made_weights_.end(), load.a.base) != 0;
    load.step = made ? load.step - static_cast<uint32_t>(s.begin) : 0;
  }
  std::stable_sort(loads.begin(), loads.end(),
                   [](const cuda::WeightLoad& a, const cuda::WeightLoad& b) { return a.step < b.step; });
  return loads;
}

// Returns the number of blocks, and chooses what each keeps of the weights: all that is used often if that
// fits into some number of blocks, else what fits on every multiprocessor.
uint32_t PersistentPass::place_weights(Stretch& s, PersistentKernels::Kernel& kernel, uint32_t blocks) {
  const cuda::Limits& limits = device_.backend().limits();
  if (!s.weights.wanted() || limits.shared_bytes <= kStaticShared) return blocks;
  const size_t most = limits.shared_bytes - kStaticShared;
  const auto keep = [&](uint32_t n, size_t bytes) {
    bytes = s.weights.choose(n, bytes);
    if (bytes == 0 || bytes > most || !device_.persistent_kernels().fits(kernel, n, bytes)) return false;
    s.shared_bytes = static_cast<uint32_t>(bytes);
    blocks = n;
    return true;
  };
  const uint32_t enough = std::min(std::max(blocks, s.weights.blocks()), kernel.blocks);
  if (!keep(enough, SIZE_MAX) && !keep(kernel.blocks, SIZE_MAX) && !keep(limits.processors, most))
    s.weights = PersistentWeights();
  return blocks;
}

std::vector<cuda::PersistentStep> PersistentPass::steps_of(Stretch& s) {
  std::vector<cuda::PersistentStep> steps;
  std::vector<uint8_t> kept;
  for (size_t i = s.begin; i < s.end; ++i) {
    const Command& c = list_.commands_[i];
    const auto* args = static_cast<const cuda::LaunchArgs*>(c.args);
    steps.push_back({c.kernel_id, c.needs_grid_sync && i > s.begin, args});
    kept.push_back(use_weights(s, steps.back(), i));
  }
  for (BarrierFreeRun& run : s.barrier_free_runs) {
    for (const WeightProduct& product : part(list_.products_, run.begin, run.end))
      if (!kept[product.step - s.begin]) run.end = std::min(run.end, product.step);
    if (run.end > run.begin + 1) skip_barriers(s, run, steps);
  }
  for (const cuda::PersistentStep& step : steps) s.grid_syncs += step.needs_grid_sync;
  return steps;
}

// The arguments serve as well if each step is launched by itself.
void PersistentPass::skip_barriers(Stretch& s, const BarrierFreeRun& run,
                                   std::vector<cuda::PersistentStep>& steps) {
  for (size_t i = run.begin + 1; i < run.end; ++i) steps[i - s.begin].needs_grid_sync = false;
  for (const SlicedStep& one : part(list_.sliced_, run.begin, run.end)) {
    one.args->period = run.period;
    ++s.sliced_steps;
  }
  // The step after the run may have relied on barriers that are gone.
  if (run.end < s.end) steps[run.end - s.begin].needs_grid_sync = true;
}

// True where the step is a product of weights that the blocks keep.
bool PersistentPass::use_weights(Stretch& s, cuda::PersistentStep& step, size_t number) {
  const auto here = part(list_.products_, number, number + 1);
  if (!s.shared_bytes || here.empty()) return false;
  const WeightProduct& product = here[0];
  const std::vector<cuda::PersistentTerm> terms = s.weights.terms(product);
  if (terms.empty()) return false;
  const cuda::PersistentProduct all{product.product, list_.put(terms), static_cast<uint32_t>(terms.size()),
                                    product.period};
  cuda::LaunchArgs args;
  args.count = 1;
  args.extra = list_.put(&all, 1);
  step.kernel_id = CudaDevice::kernel_id(cuda::kPersistentProduct);
  step.args = list_.put(&args, 1);
  ++s.persistent_products;
  return true;
}

cuda::Backend::Operation PersistentPass::operation(const Command& c) const {
  const Stretch& s = stretches_[c.persistent];
  return {cuda::Backend::Operation::launching,
          s.kernel,
          {c.blocks, device_.threads(), s.shared_bytes, true},
          reinterpret_cast<cuda::Backend::Address>(c.args),
          0,
          0};
}

bool PersistentPass::launch(const Command& c, const cuda::Backend::Operation& operation) {
  const Stretch& s = stretches_[c.persistent];
  if (!device_.persistent_kernels().find(s.kernel_ids)) return false;  // since compile()
  try {
    device_.backend().run(operation);
    count(s);
    return true;
  } catch (const Error& e) {
    if (device_.backend().lost()) throw;
    device_.persistent_kernels().mark_unsupported(s.kernel_ids, e.what());
    return false;
  }
}

std::span<const Command> PersistentPass::steps(const Command& c) const {
  const Stretch& s = stretches_[c.persistent];
  return std::span(replaced_).subspan(s.begin, s.end - s.begin);
}

void PersistentPass::count(const Stretch& s) {
  cuda::Backend::Counters& all = device_.backend().counters;
  all.persistent_products += s.persistent_products;
  all.sliced_steps += s.sliced_steps;
  all.grid_syncs += s.grid_syncs;
}

void PersistentPass::count_all() {
  for (const Stretch& s : stretches_) count(s);
}

void PersistentPass::clear() {
  stretches_.clear();
  replaced_.clear();
}

}  // namespace dyc
