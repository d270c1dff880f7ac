// LaunchArgs::extra of per-node ops that take scratch memory (OpInfo::scratch).
#pragma once
#include <cstdint>

namespace dyc::cuda {

// `bytes` for each of `workers`, one after the other; further workers do nothing. A worker is
// a warp where Meta::thread_group says so, else a thread.
struct ScratchMemory {
  char* memory;
  uint64_t bytes;
  uint32_t workers;
};

}  // namespace dyc::cuda
