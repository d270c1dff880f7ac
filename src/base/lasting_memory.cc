#include "base/lasting_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>

#include "base/tuning.h"

namespace dyc {

namespace {

using tuning::kLastingChunk, tuning::kLeastLasting, tuning::kMostLasting, tuning::kLastingShift;

constexpr size_t kLine = 64;
const auto kPage = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));

// At the beginning of its memory, which is aligned to its size.
struct Chunk {
  std::atomic<size_t> users{1};  // buffers, and one while it is filled
  std::atomic<size_t> freed{0};  // bytes of pages that went back to the system
  size_t used = kLine;           // of the thread that has it
};
static_assert(sizeof(Chunk) <= kLine);

// That is filled next. A thread takes it away while it does so: another one that finds none begins a new one.
std::atomic<Chunk*> current{nullptr};

void release(Chunk* chunk) noexcept {
  if (chunk && chunk->users.fetch_sub(1, std::memory_order_acq_rel) == 1) munmap(chunk, kLastingChunk);
}

Chunk* new_chunk() {
  void* const p =
      mmap(nullptr, 2 * kLastingChunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(p);
  const size_t before = -reinterpret_cast<uintptr_t>(p) % kLastingChunk;
  if (before) munmap(begin, before);
  munmap(begin + before + kLastingChunk, kLastingChunk - before);
  prefer_huge_pages(begin + before, kLastingChunk);
  return new (begin + before) Chunk;
}

}  // namespace

void* take_lasting(size_t bytes) {
  if (bytes < kLeastLasting || bytes > kMostLasting) return nullptr;
  bytes = (bytes + kLastingShift + kLine - 1) / kLine * kLine;
  Chunk* chunk = current.exchange(nullptr, std::memory_order_acquire);
  if (!chunk || chunk->used + bytes > kLastingChunk) {
    release(chunk);
    chunk = new_chunk();
    if (!chunk) return nullptr;
  }
  char* const buffer = reinterpret_cast<char*>(chunk) + chunk->used;
  chunk->used += bytes;
  chunk->users.fetch_add(1, std::memory_order_relaxed);
  release(current.exchange(chunk, std::memory_order_acq_rel));
  return buffer;
}

// A small buffer that stays would keep all of the chunk: the pages of the others go back at once, and when
// few are left, the system is not to put a huge page in their place.
void free_lasting(void* buffer, size_t bytes) noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(buffer);
  auto* const chunk = reinterpret_cast<Chunk*>(begin / kLastingChunk * kLastingChunk);
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage, end = (begin + bytes) / kPage * kPage;
  if (first < end && chunk->users.load(std::memory_order_relaxed) > 1) {
    (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
    const size_t freed = end - first, before = chunk->freed.fetch_add(freed, std::memory_order_relaxed);
    constexpr int kMadvNoHugepage = 15;  // MADV_NOHUGEPAGE on Linux
    if (before <= kLastingChunk / 2 && before + freed > kLastingChunk / 2)
      (void)madvise(chunk, kLastingChunk, kMadvNoHugepage);
  }
  release(chunk);
}

void prefer_huge_pages(void* p, size_t bytes) {
  constexpr int kMadvHugepage = 14;  // MADV_HUGEPAGE on Linux
  (void)madvise(p, bytes, kMadvHugepage);
}

}  // namespace dyc
