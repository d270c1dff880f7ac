// Products of small matrices by tensor cores: factors are rounded to another format of numbers, products are
// added in float32. For kernels only, and for sm_80 and later.
//
// One instruction adds A B to C, where A is 16 x K, B is K x 8, and K is 8 or 16. Of 32 threads that call it
// together, thread t has rows g and g + 8 of A and of C, and column g of B, where g = t / 4; of these it has
// the inner indices, or columns of C, that t % 4 names.
#pragma once
#include "cuda/device/product_tiles.h"

namespace dyc::cuda {

constexpr int kTensorThreads = 32;  // of an instruction, also where a warp of the emulation has fewer

#ifdef DYC_EMULATION

using emulation::pair_of_bf16, emulation::round_to_tf32;

DYC_INLINE void multiply_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulation::multiply_fragments(c, {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, false);
}
DYC_INLINE void multiply_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulation::multiply_fragments(c, {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, true);
}

#else

// Halves away from zero.
DYC_INLINE float round_to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}
// Halves to even; `first` is in the lower bits.
DYC_INLINE uint32_t pair_of_bf16(float first, float second) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  return bits;
}

#define DYC_MULTIPLY(shape, type)                                                     \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type                \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
DYC_INLINE void multiply_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  DYC_MULTIPLY("m16n8k8", "tf32");
}
DYC_INLINE void multiply_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  DYC_MULTIPLY("m16n8k16", "bf16");
}
#undef DYC_MULTIPLY

#endif

// Of a factor, for four neighbouring rows (columns): a word has the elements of one inner index, or of two.
struct Words {
  uint32_t at[4];
};

// Formats of numbers. The inner indices may come in any order that is the same for both factors: those of a
// word are 4 apart, so that the four threads of a row read neighbouring rows of shared memory, which are
// `step` floats apart.
struct Tf32 {
  static constexpr int kIndices = 1;
  static DYC_INLINE float to_shared(float x) { return round_to_tf32(x); }
  static DYC_INLINE Words words(const float* from, int) { return __builtin_bit_cast(Words, four(from)); }
  static DYC_INLINE void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    multiply_tf32(c, a, b);
  }
};

struct Bf16 {
  static constexpr int kIndices = 2;
  static DYC_INLINE float to_shared(float x) { return x; }
  static DYC_INLINE Words words(const float* from, int step) {
    const Four first = four(from), second = four(from + 4 * step);
    Words both;
    for (int i = 0; i < 4; ++i) both.at[i] = pair_of_bf16(first.at[i], second.at[i]);
    return both;
  }
  static DYC_INLINE void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    multiply_bf16(c, a, b);
  }
};

}  // namespace dyc::cuda
