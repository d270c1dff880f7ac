// The device's instruction sets: who runs the text of a per-node op (ops/element_loops.h).
#pragma once
#include "cuda/device/grid.h"

namespace dyc::cuda {

// A thread for itself.
struct SingleThread {
  using V = float;
  static constexpr int lanes = 1;
};

// The threads of a warp together.
struct WarpGroup {
  using V = float;
  static constexpr int lanes = 1;
  static DYC_INLINE uint32_t worker() { return lane(); }
  static DYC_INLINE uint32_t workers() { return kWarp; }
  static DYC_INLINE float sum(float a) { return warp_sum(a); }
  // The same in all threads also where some have NaN: the order of x and y does not matter.
  static DYC_INLINE float max(float a) {
    return warp_join(a, [](float x, float y) { return x > y || x != x ? x : y; });
  }
  static DYC_INLINE float min(float a) {
    return warp_join(a, [](float x, float y) { return x < y || x != x ? x : y; });
  }
  static DYC_INLINE size_t least(size_t a) {
    return warp_join(a, [](size_t x, size_t y) { return x < y ? x : y; });
  }
  static DYC_INLINE void sync() { __syncwarp(); }
};

// Which part of its node a warp computes.
struct NodePart {
  uint32_t part, parts;
};
DYC_INLINE NodePart& part_of_warp() {
  DYC_SHARED(NodePart, all, 1024 / kWarp);
  return all[threadIdx.x / kWarp];
}

// The threads of several warps, also of different blocks.
struct SharedWarps {
  using V = float;
  using Warp = WarpGroup;
  static constexpr int lanes = 1;
  static DYC_INLINE uint32_t part() { return part_of_warp().part; }
  static DYC_INLINE uint32_t parts() { return part_of_warp().parts; }
  static DYC_INLINE uint32_t first_worker() { return part() * kWarp; }
  static DYC_INLINE uint32_t worker() { return first_worker() + lane(); }
  static DYC_INLINE uint32_t workers() { return parts() * kWarp; }
  static DYC_INLINE void sync() { __syncwarp(); }
};

}  // namespace dyc::cuda
