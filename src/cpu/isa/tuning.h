// Numbers that decide how kernels of one instruction set go through memory. Found by trial while the kernels
// were written, for 32 KB and 1 MB of cache; no measurements are kept. Tiles that fill the registers stand
// with the kernels that are written around them (conv_tiles.h, gemm_*.h).
#pragma once
#include "cpu/simd.h"

namespace dyc::DYC_ISA {

// ---- convolutions
inline constexpr int64_t kTapBlock = 64;          // terms of one chain of additions: longer ones lose bits
inline constexpr int64_t kMapPlaces = 2048;       // positions of items whose planes are laid out as one map
inline constexpr int64_t kMapFloats = 64 * 1024;  // floats of such a map, in the second-level cache

// ---- sums
inline constexpr size_t kSlopeBlock = 16 * kLanes;  // slopes of a row that are computed before they are added
inline constexpr size_t kSquaresBlock = 2048;       // squares added in float; their sums are added in double

}  // namespace dyc::DYC_ISA
