#include "exec/cuda_batch.h"

#include <algorithm>

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
  std::erase_if(walks_, [this](const Run& w) { return !device_.walk_wanted(w.tasks); });
  std::vector<uint32_t> tasks;
  std::vector<std::vector<uint32_t>> together;
  size_t at = 0;
  for (const Run& w : walks_) {
    for (; at < w.begin; ++at)
      if (has_kernel(steps_[at])) tasks.push_back(steps_[at].task);
    if (device_.emulated()) tasks.insert(tasks.end(), w.tasks.begin(), w.tasks.end());
    together.push_back(w.tasks);
    at = w.end;
  }
  for (; at < steps_.size(); ++at)
    if (has_kernel(steps_[at])) tasks.push_back(steps_[at].task);
  device_.prepare(tasks, together);
  join_walks();
  for (const Chunk& c : chunks_)
    if (c.used) backend.upload(c.memory->address(), c.host.get(), c.used);
  scratch_.each_used([&](cuda::Backend::Address to, size_t bytes) { backend.clear(to, bytes); });
  for (const Step& s : steps_) {
    if (s.task == kCopy) {
      backend.copy(reinterpret_cast<cuda::Backend::Address>(s.record),
                   reinterpret_cast<cuda::Backend::Address>(s.from), s.bytes);
      continue;
    }
    if (s.task == kGemm) {
      backend.gemm(gemms_[s.blocks]);
      continue;
    }
    cuda::Backend::Address record = reinterpret_cast<cuda::Backend::Address>(s.record);
    void* args[] = {&record};
    const bool walks = s.task == kWalk;
    backend.launch(walks ? s.kernel : device_.kernel(s.task), {s.blocks, device_.threads(), 0, walks}, args);
  }
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
    if (end - i >= kLeast) {
      Run run{i, end, {}};
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
  for (const Run& w : walks_) {
    joined.insert(joined.end(), steps_.begin() + at, steps_.begin() + w.begin);
    joined.push_back(walk(w.begin, w.end, w.tasks));
    at = w.end;
  }
  joined.insert(joined.end(), steps_.begin() + at, steps_.end());
  steps_.swap(joined);
}

CudaBatch::Step CudaBatch::walk(size_t begin, size_t end, const std::vector<uint32_t>& tasks) {
  cuda::Backend& backend = device_.backend();
  const auto steps = room<cuda::Step>(end - begin);
  uint32_t blocks = 1;
  for (size_t i = begin; i < end; ++i) {
    const Step& s = steps_[i];
    const uint64_t body = device_.emulated() ? backend.body(device_.kernel(s.task)) : 0;
    steps[i - begin] = {s.task, s.waits && i > begin, static_cast<const cuda::Record*>(s.record), body};
    blocks = std::max(blocks, s.blocks);
  }
  cuda::Walk all{};
  all.steps = steps.device;
  all.count = static_cast<uint32_t>(end - begin);
  all.arrived = reinterpret_cast<uint32_t*>(zeros(1));
  cuda::Record r;
  r.count = all.count;
  r.more = put(&all, 1);
  const cuda::Backend::Kernel kernel = device_.walk_kernel(tasks);
  const uint32_t fit = backend.resident_blocks(kernel, device_.threads(), 0);
  return {kWalk, std::clamp<uint32_t>(blocks, 1, std::max(fit, 1u)), true, put(&r, 1), nullptr, 0, kernel};
}

// Work that is under way may still use the memory: it is given back, or used again, in the order of the
// stream.
void CudaBatch::discard() {
  device_.parameters().launches_submitted();
  steps_.clear();
  gemms_.clear();
  if (chunks_.size() > 1) chunks_.erase(chunks_.begin(), chunks_.end() - 1);
  for (Chunk& c : chunks_) c.used = 0;
  scratch_.reset();
  room_.reset();
}

}  // namespace dyc
