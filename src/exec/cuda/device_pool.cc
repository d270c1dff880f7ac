#include "exec/cuda/device_pool.h"

#include <algorithm>

#include "cuda/abi/products.h"
#include "exec/cuda/tuning.h"

namespace dyc {

namespace {

size_t aligned(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// The last chunk is the largest: the others were too small.
template <class Chunks>
void keep_largest(Chunks& chunks) {
  if (chunks.size() > 1) chunks.erase(chunks.begin(), chunks.end() - 1);
  for (auto& c : chunks) c.used = 0;
}

}  // namespace

cuda::Backend::Address DevicePool::take(size_t bytes) {
  const size_t size = aligned(bytes, kDeviceAlign);
  if (chunks_.empty() || chunks_.back().used + size > chunks_.back().memory->bytes()) {
    const size_t before = chunks_.empty() ? 0 : chunks_.back().memory->bytes();
    auto memory = std::make_unique<DeviceMemory>(backend_, name_, std::max(2 * before, kFirstChunk));
    memory->reserve(size, 0);
    chunks_.push_back({std::move(memory), 0});
  }
  Chunk& c = chunks_.back();
  const cuda::Backend::Address at = c.memory->address() + c.used;
  c.used += size;
  return at;
}

void DevicePool::reset() { keep_largest(chunks_); }

UploadPool::Allocation UploadPool::take(size_t bytes) {
  const size_t size = aligned(bytes, 16);
  if (chunks_.empty() || chunks_.back().used + size > chunks_.back().size) {
    Chunk c;
    c.size = std::max({size, chunks_.empty() ? 0 : 2 * chunks_.back().size, kFirstChunk});
    c.host = std::make_unique<char[]>(c.size);
    c.memory = std::make_unique<DeviceMemory>(backend_, "launch records");
    c.memory->reserve(c.size + cuda::kHeadBytes, 0);  // kernels may read so much more than they need
    chunks_.push_back(std::move(c));
  }
  Chunk& c = chunks_.back();
  const Allocation taken{c.host.get() + c.used, c.memory->address() + c.used};
  c.used += size;
  return taken;
}

void UploadPool::upload() {
  for (const Chunk& c : chunks_)
    if (c.used) backend_.upload(c.memory->address(), c.host.get(), c.used);
}

void UploadPool::reset() { keep_largest(chunks_); }

}  // namespace dyc
