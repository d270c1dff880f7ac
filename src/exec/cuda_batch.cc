#include "exec/cuda_batch.h"

#include <algorithm>

#include "base/error.h"
#include "exec/cuda_parameters.h"

namespace dyc {

namespace {

constexpr size_t kAlign = 256, kLeast = size_t{1} << 16;

size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

cuda::Backend::Address DevicePool::take(size_t bytes) {
  const size_t size = aligned(bytes);
  if (chunks_.empty() || chunks_.back().used + size > chunks_.back().memory->bytes()) {
    const size_t before = chunks_.empty() ? 0 : chunks_.back().memory->bytes();
    auto memory = std::make_unique<DeviceMemory>(backend_, name_);
    memory->reserve(std::max({size, 2 * before, kLeast}), 0);
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
  steps_.push_back({task, blocks, waits, put(&record, 1), nullptr, 0});
}

void CudaBatch::copy(float* to, const float* from, size_t floats) {
  steps_.push_back({kCopy, 0, true, to, from, floats * sizeof(float)});
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
      if (steps_[at].task != kCopy) tasks.push_back(steps_[at].task);
  };
  for (const Run& w : walks_) {
    add_until(w.begin);
    if (device_.emulated()) add_until(w.end);
    at = w.end;
  }
  add_until(steps_.size());
  device_.prepare(tasks);
}

void CudaBatch::run_step(const Step& s) {
  cuda::Backend& backend = device_.backend();
  if (s.task == kCopy)
    return backend.copy(reinterpret_cast<cuda::Backend::Address>(s.record),
                        reinterpret_cast<cuda::Backend::Address>(s.from), s.bytes);
  if (s.task == kWalk) return run_walk(s);
  cuda::Backend::Address record = reinterpret_cast<cuda::Backend::Address>(s.record);
  void* args[] = {&record};
  backend.launch(device_.kernel(s.task), {s.blocks, device_.threads()}, args);
}

void CudaBatch::run_walk(const Step& s) {
  const Run& w = walks_[s.run];
  if (launch_walk(s, w)) return;
  device_.prepare(w.tasks);
  for (size_t i = w.begin; i < w.end; ++i) run_step(apart_[i]);
}

// False where it was refused: then it has done nothing.
bool CudaBatch::launch_walk(const Step& s, const Run& w) {
  if (!device_.walk_kernel(w.tasks)) return false;  // since this flush began
  cuda::Backend::Address record = reinterpret_cast<cuda::Backend::Address>(s.record);
  void* args[] = {&record};
  try {
    device_.backend().launch(w.kernel, {s.blocks, device_.threads(), 0, true}, args);
    return true;
  } catch (const Error& e) {
    if (device_.backend().lost()) throw;
    device_.refuse_walk(w.tasks, e.what());
    return false;
  }
}

// ---------------------------------------------------------------- graphs

// What is still many launches after walks, because they are large or their walk is not compiled, may come
// again just so: the same computation writes its records to the same memory. What went up is no part of it.
bool CudaBatch::replay() {
  // A graph takes the host as long as three or four launches; a few more for finding it. Of a very long list
  // the device is not done before the host, and graphs take memory for each launch.
  constexpr size_t kLeast = 8, kMost = 2048;
  if (!joins_ || !replaying || one_by_one || steps_.size() < kLeast || steps_.size() > kMost) return false;
  using Operation = cuda::Backend::Operation;
  operations_.clear();
  scratch_.each_used([&](cuda::Backend::Address to, size_t bytes) {
    operations_.push_back({Operation::clearing, nullptr, {}, to, 0, bytes});
  });
  for (const Step& s : steps_) operations_.push_back(operation(s));
  return device_.backend().replay(operations_);
}

cuda::Backend::Operation CudaBatch::operation(const Step& s) const {
  using Operation = cuda::Backend::Operation;
  const auto to = reinterpret_cast<cuda::Backend::Address>(s.record);
  if (s.task == kCopy)
    return {Operation::copying, nullptr, {}, to, reinterpret_cast<cuda::Backend::Address>(s.from), s.bytes};
  const bool walks = s.task == kWalk;
  return {Operation::launching,
          walks ? walks_[s.run].kernel : device_.kernel(s.task),
          {s.blocks, device_.threads(), 0, walks},
          to,
          0,
          0};
}

// ---------------------------------------------------------------- walks

// A small launch takes less time than the gap before it.
bool CudaBatch::may_walk(const Step& step) const {
  constexpr uint32_t kBlocksPerProcessor = 2;
  return step.task < kWalk && CudaDevice::walks(step.task) &&
         step.blocks <= kBlocksPerProcessor * device_.backend().limits().processors;
}

void CudaBatch::find_walks() {
  constexpr size_t kLeast = 3;  // steps
  walks_.clear();
  if (!joins_ || !walking || one_by_one) return;
  for (size_t i = 0; i < steps_.size();) {
    size_t end = i;
    while (end < steps_.size() && may_walk(steps_[end])) ++end;
    if (end - i >= kLeast) {
      Run run{i, end, nullptr, {}};
      for (size_t k = i; k < end; ++k) run.tasks.push_back(steps_[k].task);
      std::sort(run.tasks.begin(), run.tasks.end());
      run.tasks.erase(std::unique(run.tasks.begin(), run.tasks.end()), run.tasks.end());
      walks_.push_back(std::move(run));
    }
    i = std::max(end, i + 1);
  }
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
  const size_t n = w.end - w.begin;
  const auto steps = room<cuda::Step>(n);
  uint32_t blocks = 1;
  for (size_t i = 0; i < n; ++i) {
    const Step& s = steps_[w.begin + i];
    const uint64_t body = device_.emulated() ? device_.backend().body(device_.kernel(s.task)) : 0;
    steps[i] = {s.task, s.waits && i > 0, static_cast<const cuda::Record*>(s.record), body};
    blocks = std::max(blocks, s.blocks);
  }
  cuda::Walk all{};
  all.steps = steps.device;
  all.count = static_cast<uint32_t>(n);
  all.arrived = reinterpret_cast<uint32_t*>(zeros(1));
  cuda::Record r;
  r.count = all.count;
  r.more = put(&all, 1);
  const CudaDevice::WalkKernel& made = *device_.walk_kernel(w.tasks);
  w.kernel = made.kernel;
  return {kWalk, std::min(blocks, made.blocks), true, put(&r, 1), nullptr, 0, number};
}

// Work that is under way may still use the memory: it is given back, or used again, in the order of the
// stream.
void CudaBatch::discard() {
  device_.parameters().launches_submitted();
  steps_.clear();
  apart_.clear();
  walks_.clear();
  if (chunks_.size() > 1) chunks_.erase(chunks_.begin(), chunks_.end() - 1);
  for (Chunk& c : chunks_) c.used = 0;
  scratch_.reset();
  room_.reset();
}

}  // namespace dyc
