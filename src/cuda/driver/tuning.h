// Numbers that decide what the driver keeps and how it copies. Chosen by reasoning for an H100-class device;
// none is measured. Those of products choose a kernel, and with it the order of sums; the others change no
// result.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cuda/abi/tuning.h"

namespace dyc::cuda::tuning {

// ---- CUDA graphs. Making one takes the host about as long as running its list twice.
constexpr size_t kMostGraphs = 16;  // each has a copy of the list, and memory of the driver
constexpr uint32_t kSeenBefore =
    2;  // times that a list ran: its kernels are loaded, and it is likely to repeat
constexpr size_t kSeenLists = 128;  // that are remembered, by hash

// ---- memory
constexpr size_t kSmall = 1 << 20;                        // bytes
constexpr size_t kSmallStep = 512, kLargeStep = 2 << 20;  // bytes to which sizes are rounded up
constexpr size_t kStagingPiece = 4 << 20;                 // bytes of pinned memory of a copy
constexpr int kStagingPieces = 4;                         // that copies take turns with

// ---- products. A call of cuBLAS costs as much as a launch and cannot be a step of a persistent kernel. It
// is worth that where the product takes about ten times as long: 50 us at 20 TFLOPS. Copying a float costs
// two accesses of memory: at 20 operations for each byte that a device moves, 768 operations are five times
// as long.
constexpr int64_t kLeastSide = 64, kLeastOperations = int64_t{1} << 30, kOperationsPerFloat = 768;
// Inner index of a product of large tiles, at least: two parts of it in shared memory.
constexpr int64_t kLeastInner = 2 * kLargeDepth;
// A large tile has 8 times as many elements as one of kernels/matmul.cu and makes each in half the time, as
// it reads less of shared memory for it.
constexpr int64_t kLargeTileCost = 4;

// ---- cuBLAS: bytes of its workspace that NVIDIA recommends, for Hopper and later, and before
constexpr size_t kWorkspace = 32 << 20, kOldWorkspace = 4 << 20;

}  // namespace dyc::cuda::tuning
