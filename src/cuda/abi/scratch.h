// What LaunchArgs::extra is for member rows that take scratch memory (OpInfo::scratch).
#pragma once
#include <cstdint>

namespace dyc::cuda {

// Of each worker `bytes`, one after the other, for `workers` of them; more than that do nothing. A worker is
// a warp where Meta::thread_group says so, else a thread.
struct ScratchMemory {
  char* memory;
  uint64_t bytes;
  uint32_t workers;
};

}  // namespace dyc::cuda
