// What kernels/ is compiled with on the host (op_kernels.cc, other_kernels.cc, persistent.cc), and the table
// of the kernels.
//
// The text of a kernel is in the namespace dyc_emulated there (device.h): its inline functions
// are not those of the same name that the host compiles with other flags or other scalar functions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emulation {

struct Index3 {
  uint32_t x = 0, y = 0, z = 0;
};

// ---- of the thread that runs. One launch at a time runs in a process.
extern Index3 thread_index, block_index, block_extent, grid_extent;

// Fewer than a GPU's: several warps in small blocks. Tests of kernels also take a GPU's.
#ifndef DYC_EMULATED_WARP
#define DYC_EMULATED_WARP 8
#define DYC_EMULATED_BLOCK 64
#endif
constexpr uint32_t kWarpThreads = DYC_EMULATED_WARP, kBlockThreads = DYC_EMULATED_BLOCK;

// Returns when all threads of the block (of its warp) have called it.
void wait_for_block();
void wait_for_warp();
void pause();  // lets other threads run
[[noreturn]] void trap();
void fence();
// ---- for races.h
void note_atomic(const void* at);
void note_copy(void* to, size_t bytes);  // that has begun
void note_copy_group();                  // of those since the group before
void note_copies_ended();
void note_copies_ended(size_t but_groups);  // those of the last groups may go on

// Stores `bytes` (8 at most) of this thread, waits for its warp, reads those of thread `lane` of the warp.
void exchange(const void* mine, void* theirs, uint32_t bytes, uint32_t lane);

// ---- tensor cores (tensor_cores.cc). Groups of 32 threads use them together, whatever a warp is.
constexpr uint32_t kTensorThreads = 32;
struct Fragments {
  uint32_t a[4], b[2];
};
// Those of the group, by thread; until the next call.
const Fragments* share_fragments(const Fragments& mine);
// Adds A B to this thread's part of C: four floats.
void multiply_fragments(float* c, const Fragments& mine, bool bf16);
float round_to_tf32(float x);
uint32_t pair_of_bf16(float first, float second);

// Memory of the block, the same for each thread that asks with this key. Filled with NaN at first.
void* shared_memory(const void* key, size_t bytes);
void* dynamic_shared_memory();

// ---- the table

using Run = void (*)(void** args);  // one thread
struct Kernel {
  std::string file, expression;
  Run run;
};
using Kernels = std::vector<Kernel>;

// Each file with kernels has a variable of this type, whose `add` adds them when the first device is made.
struct Registration {
  explicit Registration(void (*add)(Kernels& to));
};

}  // namespace emulation
