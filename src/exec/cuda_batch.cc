#include "exec/cuda_batch.h"

#include <algorithm>

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

void CudaBatch::launch(uint32_t kernel, const cuda::Record& record, int64_t work) {
  const uint32_t threads = device_.threads();
  const int64_t blocks = std::clamp<int64_t>((work + threads - 1) / threads, 1, device_.most_blocks());
  launch_blocks(kernel, record, static_cast<uint32_t>(blocks), threads);
}

void CudaBatch::launch_blocks(uint32_t kernel, const cuda::Record& record, uint32_t blocks,
                              uint32_t threads) {
  steps_.push_back({kernel, {blocks, threads}, put(&record, 1), nullptr, 0});
  kernels_.push_back(kernel);
}

void CudaBatch::copy(float* to, const float* from, size_t floats) {
  steps_.push_back({kCopy, {}, to, from, floats * sizeof(float)});
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
  device_.prepare(kernels_);
  for (const Chunk& c : chunks_)
    if (c.used) backend.upload(c.memory->address(), c.host.get(), c.used);
  scratch_.each_used([&](cuda::Backend::Address at, size_t bytes) { backend.clear(at, bytes); });
  for (const Step& s : steps_) {
    if (s.kernel == kCopy) {
      backend.copy(reinterpret_cast<cuda::Backend::Address>(s.record),
                   reinterpret_cast<cuda::Backend::Address>(s.from), s.bytes);
      continue;
    }
    cuda::Backend::Address record = reinterpret_cast<cuda::Backend::Address>(s.record);
    void* args[] = {&record};
    backend.launch(device_.kernel(s.kernel), s.grid, args);
  }
}

// Work that is under way may still use the memory: it is given back, or used again, in the order of the
// stream.
void CudaBatch::discard() {
  device_.launches_submitted();
  steps_.clear();
  kernels_.clear();
  if (chunks_.size() > 1) chunks_.erase(chunks_.begin(), chunks_.end() - 1);
  for (Chunk& c : chunks_) c.used = 0;
  scratch_.reset();
  room_.reset();
}

}  // namespace dyc
