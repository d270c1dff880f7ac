#include "exec/cuda/command_list.h"

#include <algorithm>

#include "base/error.h"
#include "exec/cuda/parameters.h"

namespace dyc {

namespace {

constexpr size_t kAlign = 256, kLeast = size_t{1} << 16;

size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

cuda::Backend::Address DevicePool::take(size_t bytes) {
  const size_t size = aligned(bytes);
  if (chunks_.empty() || chunks_.back().used + size > chunks_.back().memory->bytes()) {
    const size_t before = chunks_.empty() ? 0 : chunks_.back().memory->bytes();
    auto memory = std::make_unique<DeviceMemory>(backend_, name_, std::max(2 * before, kLeast));
    memory->reserve(size, 0);
    chunks_.push_back({std::move(memory), 0});
  }
  Chunk& c = chunks_.back();
  const cuda::Backend::Address at = c.memory->address() + c.used;
  c.used += size;
  return at;
}

// The last chunk is the largest: the others were too small.
void DevicePool::reset() {
  if (chunks_.size() > 1) chunks_.erase(chunks_.begin(), chunks_.end() - 1);
  for (Chunk& c : chunks_) c.used = 0;
}

CommandList::Allocation CommandList::take(size_t bytes) {
  constexpr size_t kWord = 16;
  const size_t size = (bytes + kWord - 1) / kWord * kWord;
  if (chunks_.empty() || chunks_.back().used + size > chunks_.back().size) {
    Chunk c;
    c.size = std::max({size, chunks_.empty() ? 0 : 2 * chunks_.back().size, kLeast});
    c.host = std::make_unique<char[]>(c.size);
    c.memory = std::make_unique<DeviceMemory>(device_.backend(), "launch records");
    c.memory->reserve(c.size, 0);
    chunks_.push_back(std::move(c));
  }
  Chunk& c = chunks_.back();
  const Allocation p{c.host.get() + c.used, c.memory->address() + c.used};
  c.used += size;
  return p;
}

void CommandList::launch(uint32_t kernel_id, const cuda::LaunchArgs& record, int64_t work,
                         bool needs_grid_sync) {
  const uint32_t threads = device_.threads();
  const int64_t blocks = std::clamp<int64_t>((work + threads - 1) / threads, 1, device_.most_blocks());
  launch_blocks(kernel_id, record, static_cast<uint32_t>(blocks), needs_grid_sync);
}

void CommandList::launch_blocks(uint32_t kernel_id, const cuda::LaunchArgs& record, uint32_t blocks,
                                bool needs_grid_sync) {
  const Room<cuda::LaunchArgs> to = room<cuda::LaunchArgs>(1);
  *to.host = record;
  last_record_ = to.host;
  steps_.push_back({kernel_id, blocks, needs_grid_sync, to.device, nullptr, 0});
}

void CommandList::copy(float* to, const float* from, size_t floats) {
  steps_.push_back({kCopy, 0, true, to, from, floats * sizeof(float)});
}

void CommandList::gemm(const cuda::Gemm& product) {
  steps_.push_back({kGemm, static_cast<uint32_t>(gemms_.size()), true, nullptr, nullptr, 0});
  gemms_.push_back(product);
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
  cuda::Backend& backend = device_.backend();
  find_persistent_runs();
  prepare();
  replace_by_persistent();
  for (const Chunk& c : chunks_)
    if (c.used) backend.upload(c.memory->address(), c.host.get(), c.used);
  if (run_as_graph()) return;
  scratch_.each_used([&](cuda::Backend::Address to, size_t bytes) { backend.clear(to, bytes); });
  for (const Step& s : steps_) run_step(s);
}

// Compiles what is missing; forgets walks that are not worth it, or for which that fails.
void CommandList::prepare() {
  std::erase_if(persistent_runs_, [this](const Run& w) { return !device_.wants_persistent(w.kernel_ids); });
  std::vector<std::vector<uint32_t>> cooperative;
  for (const Run& w : persistent_runs_) cooperative.push_back(w.kernel_ids);
  device_.prepare_persistent(cooperative);
  std::erase_if(persistent_runs_, [this](const Run& w) { return !device_.persistent_kernel(w.kernel_ids); });
  std::vector<uint32_t> kernel_ids;
  size_t at = 0;
  const auto add_until = [&](size_t end) {
    for (; at < end; ++at)
      if (has_kernel(steps_[at])) kernel_ids.push_back(steps_[at].kernel_id);
  };
  for (const Run& w : persistent_runs_) {
    add_until(w.begin);
    if (device_.emulated()) kernel_ids.insert(kernel_ids.end(), w.kernel_ids.begin(), w.kernel_ids.end());
    at = w.end;
  }
  add_until(steps_.size());
  device_.prepare(kernel_ids);
}

void CommandList::run_step(const Step& s) {
  if (s.kernel_id == kGemm) device_.backend().gemm(gemms_[s.blocks]);
  else if (s.kernel_id == kPersistent) run_steps(s);
  else device_.backend().run(operation(s));
}

void CommandList::run_steps(const Step& s) {
  const Run& w = persistent_runs_[s.run];
  if (launch_persistent(s, w)) return;
  std::vector<uint32_t> kernel_ids;
  for (size_t i = w.begin; i < w.end; ++i) kernel_ids.push_back(unjoined_[i].kernel_id);
  device_.prepare(kernel_ids);
  for (size_t i = w.begin; i < w.end; ++i) run_step(unjoined_[i]);
}

// False where it was refused: then it has done nothing.
bool CommandList::launch_persistent(const Step& s, const Run& w) {
  if (!device_.persistent_kernel(w.kernel_ids)) return false;  // since this flush began
  try {
    device_.backend().run(operation(s));
    count(w);
    return true;
  } catch (const Error& e) {
    if (device_.backend().lost()) throw;
    device_.mark_unsupported(w.kernel_ids, e.what());
    return false;
  }
}

void CommandList::count(const Run& w) {
  cuda::Backend::Counters& all = device_.backend().counters;
  all.persistent_products += w.persistent_products;
  all.sliced_steps += w.sliced_steps;
  all.grid_syncs += w.needs_grid_sync;
}

// ---------------------------------------------------------------- graphs

// What is still many launches after walks, because they are large or their walk is not compiled, may come
// again just so: the same computation writes its records to the same memory. What went up is no part of it.
bool CommandList::run_as_graph() {
  // A graph takes the host as long as three or four launches; a few more for finding it. Of a very long list
  // the device is not done before the host, and graphs take memory for each launch.
  constexpr size_t kLeast = 8, kMost = 2048;
  if (!joins_ || !using_graphs || one_by_one || steps_.size() < kLeast || steps_.size() > kMost) return false;
  if (!gemms_.empty()) return false;  // the library's own launches
  using Operation = cuda::Backend::Operation;
  operations_.clear();
  scratch_.each_used([&](cuda::Backend::Address to, size_t bytes) {
    operations_.push_back({Operation::clearing, nullptr, {}, to, 0, bytes});
  });
  for (const Step& s : steps_) operations_.push_back(operation(s));
  if (!device_.backend().run_as_graph(operations_)) return false;
  for (const Run& w : persistent_runs_) count(w);
  return true;
}

cuda::Backend::Operation CommandList::operation(const Step& s) const {
  using Operation = cuda::Backend::Operation;
  const auto to = reinterpret_cast<cuda::Backend::Address>(s.record);
  if (s.kernel_id == kCopy)
    return {Operation::copying, nullptr, {}, to, reinterpret_cast<cuda::Backend::Address>(s.from), s.bytes};
  const bool runs_in_persistent = s.kernel_id == kPersistent;
  return {Operation::launching,
          runs_in_persistent ? persistent_runs_[s.run].kernel : device_.kernel(s.kernel_id),
          {s.blocks, device_.threads(), runs_in_persistent ? persistent_runs_[s.run].shared_bytes : 0,
           runs_in_persistent},
          to,
          0,
          0};
}

// ---------------------------------------------------------------- walks

// A small launch takes less time than the gap before it.
bool CommandList::may_be_persistent(const Step& step) const {
  constexpr uint32_t kBlocksPerProcessor = 2;
  return has_kernel(step) && CudaDevice::runs_in_persistent(step.kernel_id) &&
         step.blocks <= kBlocksPerProcessor * device_.backend().limits().processors;
}

void CommandList::find_persistent_runs() {
  constexpr size_t kLeast = 3;  // steps
  persistent_runs_.clear();
  if (!joins_ || !persistent || one_by_one) return;
  for (size_t i = 0; i < steps_.size();) {
    size_t end = i;
    while (end < steps_.size() && may_be_persistent(steps_[end])) ++end;
    if (end - i >= kLeast) persistent_runs_.push_back(run_of(i, end));
    i = std::max(end, i + 1);
  }
}

CommandList::Run CommandList::run_of(size_t begin, size_t end) {
  Run run{begin, end};
  for (size_t k = begin; k < end; ++k) run.kernel_ids.push_back(steps_[k].kernel_id);
  if (keeps_weights()) find_weights(run);
  std::sort(run.kernel_ids.begin(), run.kernel_ids.end());
  run.kernel_ids.erase(std::unique(run.kernel_ids.begin(), run.kernel_ids.end()), run.kernel_ids.end());
  return run;
}

namespace {

// Those of steps [begin, end).
template <class T>
std::span<T> part(std::vector<T>& all, size_t begin, size_t end) {
  const auto before = [](const T& one, size_t step) { return one.step < step; };
  const auto first = std::lower_bound(all.begin(), all.end(), begin, before);
  return {first, std::lower_bound(first, all.end(), end, before)};
}

}  // namespace

void CommandList::find_weights(Run& w) {
  w.products = part(products_, w.begin, w.end);
  w.sliced = part(sliced_, w.begin, w.end);
  if (skipping_barriers)
    w.barrier_free_runs = find_barrier_free_runs(
        w.products, w.sliced, w.begin, [this](size_t step) { return steps_[step].needs_grid_sync; });
  w.weights = PersistentWeights(w.products);
  if (w.weights.wanted(true)) w.kernel_ids.push_back(CudaDevice::kernel_id(cuda::kPersistentWx));
  if (w.weights.wanted(false)) w.kernel_ids.push_back(CudaDevice::kernel_id(cuda::kPersistentWdy));
}

// Puts one launch in place of the steps of each walk.
void CommandList::replace_by_persistent() {
  if (persistent_runs_.empty()) return;
  std::vector<Step> joined;
  size_t at = 0;
  for (size_t i = 0; i < persistent_runs_.size(); ++i) {
    joined.insert(joined.end(), steps_.begin() + at, steps_.begin() + persistent_runs_[i].begin);
    joined.push_back(walk(i));
    at = persistent_runs_[i].end;
  }
  joined.insert(joined.end(), steps_.begin() + at, steps_.end());
  unjoined_.swap(steps_);
  steps_.swap(joined);
}

CommandList::Step CommandList::walk(size_t number) {
  Run& w = persistent_runs_[number];
  CudaDevice::PersistentKernel& made = *device_.persistent_kernel(w.kernel_ids);
  w.kernel = made.kernel;
  uint32_t blocks = 1;
  for (size_t i = w.begin; i < w.end; ++i) blocks = std::max(blocks, steps_[i].blocks);
  blocks = place_weights(w, made, std::min(blocks, made.blocks));
  const std::vector<cuda::PersistentStep> steps = persistent_steps(w);
  cuda::PersistentArgs all{};
  all.steps = put(steps);
  all.count = static_cast<uint32_t>(steps.size());
  all.arrived = reinterpret_cast<uint32_t*>(zeros(1));
  cuda::LaunchArgs r;
  r.count = all.count;
  r.extra = put(&all, 1);
  return {kPersistent, blocks, true, put(&r, 1), nullptr, 0, number};
}

// How many blocks the walk has, and what each keeps of the weights: all that is used often if that fits into
// some number of blocks, else on every multiprocessor what fits.
uint32_t CommandList::place_weights(Run& w, CudaDevice::PersistentKernel& made, uint32_t blocks) {
  constexpr size_t kOthers = 48 << 10;  // bytes of shared memory that the tasks of walks have
  const cuda::Limits& limits = device_.backend().limits();
  if (!w.weights.wanted() || limits.shared_bytes <= kOthers) return blocks;
  const size_t most = limits.shared_bytes - kOthers;
  const auto keep = [&](uint32_t n, size_t bytes) {
    bytes = w.weights.choose(n, bytes);
    if (bytes == 0 || bytes > most || !device_.fits(made, n, bytes)) return false;
    w.shared_bytes = static_cast<uint32_t>(bytes);
    blocks = n;
    return true;
  };
  const uint32_t enough = std::min(std::max(blocks, w.weights.blocks()), made.blocks);
  if (!keep(enough, SIZE_MAX) && !keep(made.blocks, SIZE_MAX) && !keep(limits.processors, most))
    w.weights = PersistentWeights();
  return blocks;
}

std::vector<cuda::PersistentStep> CommandList::persistent_steps(Run& w) {
  std::vector<cuda::PersistentStep> steps;
  std::vector<uint8_t> kept;
  for (size_t i = w.begin; i < w.end; ++i) {
    const Step& s = steps_[i];
    steps.push_back(
        {s.kernel_id, s.needs_grid_sync && i > w.begin, static_cast<const cuda::LaunchArgs*>(s.record), 0});
    kept.push_back(use_weights(w, steps.back(), i));
  }
  for (BarrierFreeRun& u : w.barrier_free_runs) {
    for (const WeightProduct& product : part(products_, u.begin, u.end))
      if (!kept[product.step - w.begin]) u.end = std::min(u.end, product.step);
    if (u.end > u.begin + 1) skip_barriers(w, u, steps);
  }
  for (cuda::PersistentStep& step : steps) {
    w.needs_grid_sync += step.needs_grid_sync;
    if (device_.emulated()) step.kernel = device_.backend().body(device_.kernel(step.kernel_id));
  }
  return steps;
}

// Its records serve as well if each step is launched by itself.
void CommandList::skip_barriers(Run& w, const BarrierFreeRun& u, std::vector<cuda::PersistentStep>& steps) {
  for (size_t i = u.begin + 1; i < u.end; ++i) steps[i - w.begin].needs_grid_sync = false;
  for (const SlicedStep& one : part(sliced_, u.begin, u.end)) {
    one.record->period = u.period;
    ++w.sliced_steps;
  }
  if (u.end < w.end) steps[u.end - w.begin].needs_grid_sync = true;  // may have relied on waits that are gone
}

// Where the step is a product of weights that the blocks keep. False: it is not.
bool CommandList::use_weights(Run& w, cuda::PersistentStep& step, size_t number) {
  const auto here = part(products_, number, number + 1);
  if (!w.shared_bytes || here.empty()) return false;
  const WeightProduct& product = here[0];
  const std::vector<cuda::PersistentTerm> terms = w.weights.terms(product);
  if (terms.empty()) return false;
  const cuda::PersistentProduct all{product.product, put(terms), static_cast<uint32_t>(terms.size()),
                                    product.period};
  cuda::LaunchArgs r;
  r.count = 1;
  r.extra = put(&all, 1);
  step.kernel_id = CudaDevice::kernel_id(product.forward ? cuda::kPersistentWx : cuda::kPersistentWdy);
  step.record = put(&r, 1);
  ++w.persistent_products;
  return true;
}

// Work that is under way may still use the memory: it is given back, or used again, in the order of the
// stream.
void CommandList::discard() {
  device_.parameters().launches_submitted();
  steps_.clear();
  unjoined_.clear();
  persistent_runs_.clear();
  products_.clear();
  sliced_.clear();
  gemms_.clear();
  if (chunks_.size() > 1) chunks_.erase(chunks_.begin(), chunks_.end() - 1);
  for (Chunk& c : chunks_) c.used = 0;
  scratch_.reset();
  room_.reset();
}

}  // namespace dyc
