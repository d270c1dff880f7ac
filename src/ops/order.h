// The order of floats, as integers.
#pragma once
#include "ops/kernel_args.h"

namespace dyc {

constexpr uint32_t kNanOrder = 0xffffffffu;

// Ascends with v; the same for 0 and -0. A NaN is above all others.
DYC_INLINE uint32_t order_of(float v) {
  uint32_t bits = 0;
  __builtin_memcpy(&bits, &v, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return kNanOrder;
  if (bits == 0x80000000u) bits = 0;
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

}  // namespace dyc
