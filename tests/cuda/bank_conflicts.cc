// Counts the banks that products ask of shared memory. Compiled with -fsanitize=thread, whose calls before
// each access come here: a thread runs a kernel by itself, without barriers, as addresses do not depend on
// values. The n-th access of each thread of a warp is one instruction. It prints, for each kernel, how many
// accesses there were and how often the worst of them asks for a bank, where once is what its bytes need.
#include <algorithm>
#include <cstdio>
#include <set>
#include <vector>

#include "cuda/emulation/device.h"

#include "cuda/kernels/large_products.cu"
#include "cuda/kernels/matmul.cu"

namespace {

constexpr size_t kBanks = 32, kWord = 4, kPhase = 128;  // bytes that all banks have at once

struct Access {
  size_t at, bytes;
};
alignas(16) float shared[1 << 14];
dyc::cuda::ProductHead head;  // whole from the beginning: each thread would copy its share alone
std::vector<Access>* log_of_thread = nullptr;

// Not itself noted.
__attribute__((no_sanitize("thread"))) void note(const void* at, size_t bytes) {
  const size_t from = static_cast<size_t>(static_cast<const char*>(at) - reinterpret_cast<char*>(shared));
  std::vector<Access>* const log = log_of_thread;
  if (!log || from >= sizeof shared) return;
  log_of_thread = nullptr;
  log->push_back({from, bytes});
  log_of_thread = log;
}

}  // namespace

namespace emulation {
Index3 thread_index, block_index, block_extent, grid_extent;
void wait_for_block() {}
void wait_for_warp() {}
void pause() {}
void trap() { std::abort(); }
void fence() {}
void note_atomic(const void*) {}
void note_copy(void*, size_t) {}
void note_copy_group() {}
void note_copies_ended() {}
void note_copies_ended(size_t) {}
void exchange(const void* mine, void* theirs, uint32_t bytes, uint32_t) { std::memcpy(theirs, mine, bytes); }
void* shared_memory(const void*, size_t bytes) {
  if (bytes == sizeof head) return &head;
  return bytes <= sizeof shared ? shared : nullptr;
}
void multiply_fragments(float*, const Fragments&, bool) {}
float round_to_tf32(float x) { return x; }
uint32_t pair_of_bf16(float, float) { return 0; }
}  // namespace emulation

#define DYC_CALL extern "C" __attribute__((no_sanitize("thread"))) void
#define DYC_ACCESS(bytes)                                    \
  DYC_CALL __tsan_read##bytes(void* at) { note(at, bytes); } \
  DYC_CALL __tsan_write##bytes(void* at) { note(at, bytes); }
DYC_ACCESS(1)
DYC_ACCESS(2)
DYC_ACCESS(4)
DYC_ACCESS(8)
DYC_ACCESS(16)
DYC_CALL __tsan_read_range(void* at, size_t bytes) { note(at, bytes); }
DYC_CALL __tsan_write_range(void* at, size_t bytes) { note(at, bytes); }
DYC_CALL __tsan_unaligned_read16(void* at) { note(at, 16); }
DYC_CALL __tsan_unaligned_write16(void* at) { note(at, 16); }
DYC_CALL __tsan_init() {}
DYC_CALL __tsan_func_entry(void*) {}
DYC_CALL __tsan_func_exit() {}

namespace {

using namespace dyc::cuda;

// Words that the busiest bank has to give, of threads that ask at once.
size_t busiest(const std::vector<Access>& asked) {
  std::set<size_t> words[kBanks];
  for (const Access& a : asked)
    for (size_t word = a.at / kWord; word < (a.at + a.bytes) / kWord; ++word)
      words[word % kBanks].insert(word);
  return std::max_element(words, words + kBanks, [](auto& a, auto& b) { return a.size() < b.size(); })
      ->size();
}

void count(const char* name, void (*kernel)(const LaunchArgs*), bool a_inner, bool b_inner) {
  constexpr int64_t size = 256;
  std::vector<float> a(size * size), b(size * size), c(size * size);
  const Matrix<const float> left{a.data(), nullptr, size}, right{b.data(), nullptr, size};
  Term term{};
  term.a = left;
  term.b = right;
  term.inner = size;
  Product p{};
  p.c = {c.data(), nullptr, size};
  p.m = p.n = size;
  p.terms = 1;
  Products all{};
  all.products = &p;
  all.terms = &term;
  all.count = all.tiles = all.each = 1;  // the first tile
  alignas(16) char record[kProductsAt + kHeadBytes];
  const auto args = new (record) LaunchArgs;
  char* to = record + kProductsAt;
  const auto add = [&](const auto& part) { to = reinterpret_cast<char*>(new (to) auto(part) + 1); };
  add(all);
  add(p);
  add(term);
  std::memcpy(head.words, record + kProductsAt, kHeadBytes);
  size_t accesses = 0, worst = 0;
  for (uint32_t warp = 0; warp < kBlock / kWarp; ++warp) {
    std::vector<Access> logs[kWarp];
    for (uint32_t lane = 0; lane < kWarp; ++lane) {
      emulation::thread_index.x = warp * kWarp + lane;
      emulation::block_extent.x = kBlock;
      emulation::grid_extent.x = 1;
      log_of_thread = &logs[lane];
      kernel(args);
      log_of_thread = nullptr;
      if (logs[lane].size() != logs[0].size()) std::printf("%s: threads part\n", name);
    }
    for (size_t n = 0; n < logs[0].size(); ++n) {
      const size_t at_once = std::min<size_t>(kWarp, kPhase / logs[0][n].bytes);
      for (uint32_t first = 0; first < kWarp; first += at_once) {
        std::vector<Access> asked;
        for (uint32_t lane = first; lane < first + at_once; ++lane) asked.push_back(logs[lane][n]);
        worst = std::max(worst, busiest(asked));
      }
    }
    accesses += logs[0].size();
  }
  std::printf("%s %d%d %zu %zu\n", name, a_inner, b_inner, accesses, worst);
}

template <bool A, bool B>
void count_all() {
  count("product", product<A, B>, A, B);
  count("small", product<A, B, kSmallTile>, A, B);
  count("large", large_product<A, B>, A, B);
  count("tf32", large_product<A, B, TensorSums<Tf32>>, A, B);
  count("bf16", large_product<A, B, TensorSums<Bf16>>, A, B);
}

}  // namespace

int main() {
  count_all<true, false>();
  count_all<false, false>();
  count_all<true, true>();
}
