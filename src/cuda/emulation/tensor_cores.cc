// What tensor cores do (cuda/device/tensor_cores.h), on the host. Who has which element of a matrix is as in
// the tables of NVIDIA's "PTX ISA" for mma.m16n8k8 (tf32) and mma.m16n8k16 (bf16).
#include <bit>
#include <cmath>

#include "cuda/emulation/emulation.h"

namespace emulation {

namespace {

constexpr uint32_t kNan = 0x7fffffff;

// Elements of factors, as all threads of the group have them.
struct Factors {
  const Fragments* of;
  bool bf16;
  float element(const uint32_t* words, uint32_t k) const {
    if (!bf16) return std::bit_cast<float>(words[k / 4]);
    const uint32_t word = words[k / 8];
    return std::bit_cast<float>(k % 2 ? word & 0xffff0000u : word << 16);
  }
  const Fragments& holder(uint32_t across, uint32_t k) const {
    return of[across % 8 * 4 + (bf16 ? k % 8 / 2 : k % 4)];
  }
  float a(uint32_t row, uint32_t k) const {
    const uint32_t* const all = holder(row, k).a;
    const uint32_t words[] = {all[row / 8], all[row / 8 + 2]};
    return element(words, k);
  }
  float b(uint32_t k, uint32_t column) const { return element(holder(column, k).b, k); }
};

}  // namespace

float round_to_tf32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return std::bit_cast<float>(kNan);
  return std::isinf(x) ? x : std::bit_cast<float>((bits + 0x1000) & ~0x1fffu);
}

uint32_t pair_of_bf16(float first, float second) {
  const auto rounded = [](float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    return std::isnan(x) ? kNan >> 16 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  };
  return rounded(second) << 16 | rounded(first);
}

void multiply_fragments(float* c, const Fragments& mine, bool bf16) {
  const Factors factors{share_fragments(mine), bf16};
  const uint32_t thread = thread_index.x % kTensorThreads, row = thread / 4, column = thread % 4 * 2;
  for (uint32_t i = 0; i < 4; ++i)
    for (uint32_t k = 0; k < (bf16 ? 16u : 8u); ++k)
      c[i] = std::fma(factors.a(row + i / 2 * 8, k), factors.b(k, column + i % 2), c[i]);
}

}  // namespace emulation
