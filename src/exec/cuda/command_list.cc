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

CudaBatch::Place CudaBatch::take(size_t bytes) {
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
  const Place p{c.host.get() + c.used, c.memory->address() + c.used};
  c.used += size;
  return p;
}

void CudaBatch::launch(uint32_t task, const cuda::Record& record, int64_t work, bool waits) {
  const uint32_t threads = device_.threads();
  const int64_t blocks = std::clamp<int64_t>((work + threads - 1) / threads, 1, device_.most_blocks());
  launch_blocks(task, record, static_cast<uint32_t>(blocks), waits);
}

void CudaBatch::launch_blocks(uint32_t task, const cuda::Record& record, uint32_t blocks, bool waits) {
  const Room<cuda::Record> to = room<cuda::Record>(1);
  *to.host = record;
  last_record_ = to.host;
  steps_.push_back({task, blocks, waits, to.device, nullptr, 0});
}

void CudaBatch::copy(float* to, const float* from, size_t floats) {
  steps_.push_back({kCopy, 0, true, to, from, floats * sizeof(float)});
}

void CudaBatch::gemm(const cuda::Gemm& product) {
  steps_.push_back({kGemm, static_cast<uint32_t>(gemms_.size()), true, nullptr, nullptr, 0});
  gemms_.push_back(product);
}

void CudaBatch::submit() {
  try {
    run();
  } catch (...) {
    discard();
    throw;
  }
  discard();
}

void CudaBatch::run() {
  cuda::Backend& backend = device_.backend();
  find_walks();
  prepare();
  join_walks();
  for (const Chunk& c : chunks_)
    if (c.used) backend.upload(c.memory->address(), c.host.get(), c.used);
  if (replay()) return;
  scratch_.each_used([&](cuda::Backend::Address to, size_t bytes) { backend.clear(to, bytes); });
  for (const Step& s : steps_) run_step(s);
}

// Compiles what is missing; forgets walks that are not worth it, or for which that fails.
void CudaBatch::prepare() {
  std::erase_if(walks_, [this](const Run& w) { return !device_.walk_wanted(w.tasks); });
  std::vector<std::vector<uint32_t>> together;
  for (const Run& w : walks_) together.push_back(w.tasks);
  device_.prepare_walks(together);
  std::erase_if(walks_, [this](const Run& w) { return !device_.walk_kernel(w.tasks); });
  std::vector<uint32_t> tasks;
  size_t at = 0;
  const auto add_until = [&](size_t end) {
    for (; at < end; ++at)
      if (has_kernel(steps_[at])) tasks.push_back(steps_[at].task);
  };
  for (const Run& w : walks_) {
    add_until(w.begin);
    if (device_.emulated()) tasks.insert(tasks.end(), w.tasks.begin(), w.tasks.end());
    at = w.end;
  }
  add_until(steps_.size());
  device_.prepare(tasks);
}

void CudaBatch::run_step(const Step& s) {
  if (s.task == kGemm) device_.backend().gemm(gemms_[s.blocks]);
  else if (s.task == kWalk) run_walk(s);
  else device_.backend().run(operation(s));
}

void CudaBatch::run_walk(const Step& s) {
  const Run& w = walks_[s.run];
  if (launch_walk(s, w)) return;
  std::vector<uint32_t> tasks;
  for (size_t i = w.begin; i < w.end; ++i) tasks.push_back(apart_[i].task);
  device_.prepare(tasks);
  for (size_t i = w.begin; i < w.end; ++i) run_step(apart_[i]);
}

// False where it was refused: then it has done nothing.
bool CudaBatch::launch_walk(const Step& s, const Run& w) {
  if (!device_.walk_kernel(w.tasks)) return false;  // since this flush began
  try {
    device_.backend().run(operation(s));
    count(w);
    return true;
  } catch (const Error& e) {
    if (device_.backend().lost()) throw;
    device_.refuse_walk(w.tasks, e.what());
    return false;
  }
}

void CudaBatch::count(const Run& w) {
  cuda::Backend::Counters& all = device_.backend().counters;
  all.residents += w.residents;
  all.unit_steps += w.unit_steps;
  all.walk_waits += w.waits;
}

// ---------------------------------------------------------------- graphs

// What is still many launches after walks, because they are large or their walk is not compiled, may come
// again just so: the same computation writes its records to the same memory. What went up is no part of it.
bool CudaBatch::replay() {
  // A graph takes the host as long as three or four launches; a few more for finding it. Of a very long list
  // the device is not done before the host, and graphs take memory for each launch.
  constexpr size_t kLeast = 8, kMost = 2048;
  if (!joins_ || !replaying || one_by_one || steps_.size() < kLeast || steps_.size() > kMost) return false;
  if (!gemms_.empty()) return false;  // the library's own launches
  using Operation = cuda::Backend::Operation;
  operations_.clear();
  scratch_.each_used([&](cuda::Backend::Address to, size_t bytes) {
    operations_.push_back({Operation::clearing, nullptr, {}, to, 0, bytes});
  });
  for (const Step& s : steps_) operations_.push_back(operation(s));
  if (!device_.backend().replay(operations_)) return false;
  for (const Run& w : walks_) count(w);
  return true;
}

cuda::Backend::Operation CudaBatch::operation(const Step& s) const {
  using Operation = cuda::Backend::Operation;
  const auto to = reinterpret_cast<cuda::Backend::Address>(s.record);
  if (s.task == kCopy)
    return {Operation::copying, nullptr, {}, to, reinterpret_cast<cuda::Backend::Address>(s.from), s.bytes};
  const bool walks = s.task == kWalk;
  return {Operation::launching,
          walks ? walks_[s.run].kernel : device_.kernel(s.task),
          {s.blocks, device_.threads(), walks ? walks_[s.run].shared_bytes : 0, walks},
          to,
          0,
          0};
}

// ---------------------------------------------------------------- walks

// A small launch takes less time than the gap before it.
bool CudaBatch::may_walk(const Step& step) const {
  constexpr uint32_t kBlocksPerProcessor = 2;
  return has_kernel(step) && CudaDevice::walks(step.task) &&
         step.blocks <= kBlocksPerProcessor * device_.backend().limits().processors;
}

void CudaBatch::find_walks() {
  constexpr size_t kLeast = 3;  // steps
  walks_.clear();
  if (!joins_ || !walking || one_by_one) return;
  for (size_t i = 0; i < steps_.size();) {
    size_t end = i;
    while (end < steps_.size() && may_walk(steps_[end])) ++end;
    if (end - i >= kLeast) walks_.push_back(run_of(i, end));
    i = std::max(end, i + 1);
  }
}

CudaBatch::Run CudaBatch::run_of(size_t begin, size_t end) {
  Run run{begin, end};
  for (size_t k = begin; k < end; ++k) run.tasks.push_back(steps_[k].task);
  if (keeps_weights()) find_weights(run);
  std::sort(run.tasks.begin(), run.tasks.end());
  run.tasks.erase(std::unique(run.tasks.begin(), run.tasks.end()), run.tasks.end());
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

void CudaBatch::find_weights(Run& w) {
  w.products = part(products_, w.begin, w.end);
  w.units = part(units_, w.begin, w.end);
  if (joining_units)
    w.unit_runs =
        find_unit_runs(w.products, w.units, w.begin, [this](size_t step) { return steps_[step].waits; });
  w.weights = Residency(w.products);
  if (w.weights.wanted(true)) w.tasks.push_back(CudaDevice::task(cuda::kResidentWx));
  if (w.weights.wanted(false)) w.tasks.push_back(CudaDevice::task(cuda::kResidentWdy));
}

// Puts one launch in place of the steps of each walk.
void CudaBatch::join_walks() {
  if (walks_.empty()) return;
  std::vector<Step> joined;
  size_t at = 0;
  for (size_t i = 0; i < walks_.size(); ++i) {
    joined.insert(joined.end(), steps_.begin() + at, steps_.begin() + walks_[i].begin);
    joined.push_back(walk(i));
    at = walks_[i].end;
  }
  joined.insert(joined.end(), steps_.begin() + at, steps_.end());
  apart_.swap(steps_);
  steps_.swap(joined);
}

CudaBatch::Step CudaBatch::walk(size_t number) {
  Run& w = walks_[number];
  CudaDevice::WalkKernel& made = *device_.walk_kernel(w.tasks);
  w.kernel = made.kernel;
  uint32_t blocks = 1;
  for (size_t i = w.begin; i < w.end; ++i) blocks = std::max(blocks, steps_[i].blocks);
  blocks = reside(w, made, std::min(blocks, made.blocks));
  const std::vector<cuda::Step> steps = walk_steps(w);
  cuda::Walk all{};
  all.steps = put(steps);
  all.count = static_cast<uint32_t>(steps.size());
  all.arrived = reinterpret_cast<uint32_t*>(zeros(1));
  cuda::Record r;
  r.count = all.count;
  r.more = put(&all, 1);
  return {kWalk, blocks, true, put(&r, 1), nullptr, 0, number};
}

// How many blocks the walk has, and what each keeps of the weights: all that is used often if that fits into
// some number of blocks, else on every multiprocessor what fits.
uint32_t CudaBatch::reside(Run& w, CudaDevice::WalkKernel& made, uint32_t blocks) {
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
    w.weights = Residency();
  return blocks;
}

std::vector<cuda::Step> CudaBatch::walk_steps(Run& w) {
  std::vector<cuda::Step> steps;
  std::vector<uint8_t> kept;
  for (size_t i = w.begin; i < w.end; ++i) {
    const Step& s = steps_[i];
    steps.push_back({s.task, s.waits && i > w.begin, static_cast<const cuda::Record*>(s.record), 0});
    kept.push_back(use_weights(w, steps.back(), i));
  }
  for (UnitRun& u : w.unit_runs) {
    for (const WeightProduct& product : part(products_, u.begin, u.end))
      if (!kept[product.step - w.begin]) u.end = std::min(u.end, product.step);
    if (u.end > u.begin + 1) join_units(w, u, steps);
  }
  for (cuda::Step& step : steps) {
    w.waits += step.waits;
    if (device_.emulated()) step.kernel = device_.backend().body(device_.kernel(step.task));
  }
  return steps;
}

// Its records serve as well if each step is launched by itself.
void CudaBatch::join_units(Run& w, const UnitRun& u, std::vector<cuda::Step>& steps) {
  for (size_t i = u.begin + 1; i < u.end; ++i) steps[i - w.begin].waits = false;
  for (const UnitStep& one : part(units_, u.begin, u.end)) {
    one.record->unit = u.unit;
    ++w.unit_steps;
  }
  if (u.end < w.end) steps[u.end - w.begin].waits = true;  // may have relied on waits that are gone
}

// Where the step is a product of weights that the blocks keep. False: it is not.
bool CudaBatch::use_weights(Run& w, cuda::Step& step, size_t number) {
  const auto here = part(products_, number, number + 1);
  if (!w.shared_bytes || here.empty()) return false;
  const WeightProduct& product = here[0];
  const std::vector<cuda::ResidentTerm> terms = w.weights.terms(product);
  if (terms.empty()) return false;
  const cuda::Resident all{product.product, put(terms), static_cast<uint32_t>(terms.size()), product.unit};
  cuda::Record r;
  r.count = 1;
  r.more = put(&all, 1);
  step.task = CudaDevice::task(product.forward ? cuda::kResidentWx : cuda::kResidentWdy);
  step.record = put(&r, 1);
  ++w.residents;
  return true;
}

// Work that is under way may still use the memory: it is given back, or used again, in the order of the
// stream.
void CudaBatch::discard() {
  device_.parameters().launches_submitted();
  steps_.clear();
  apart_.clear();
  walks_.clear();
  products_.clear();
  units_.clear();
  gemms_.clear();
  if (chunks_.size() > 1) chunks_.erase(chunks_.begin(), chunks_.end() - 1);
  for (Chunk& c : chunks_) c.used = 0;
  scratch_.reset();
  room_.reset();
}

}  // namespace dyc
