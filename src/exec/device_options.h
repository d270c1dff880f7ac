// What a CUDA device may do to be fast. Tests and benchmarks turn parts of it off; environment variables set
// some of it when the device is opened (exec/device.cc).
#pragma once
#include <cstdint>

#include "cuda/driver/matmul_variants.h"
#include "exec/tuning.h"

namespace dyc {

struct DeviceOptions {
  bool persistent = true;         // many small launches become steps of one persistent kernel
  uint32_t persistent_after = 0;  // compile one after so many requests; 0: as suits the device
  bool keep_weights = true;       // thread blocks of persistent kernels keep weights in shared memory
  bool skip_barriers = true;      // no grid barrier before a step that reads only its block's own row slice
  bool chains = true;             // launches that instances go through by themselves become one
  bool graphs = true;             // command lists that repeat become CUDA graphs
  bool measured = true;           // which of these is used is measured (exec/cuda/launch_choices.h)
  bool cublas = true;             // NVIDIA's library may make large products
  int matmul_variant = -1;        // the MatmulVariant to use wherever it can be; -1: the fastest by the rule
  cuda::Precision precision = cuda::Precision::float32;  // of large products
  bool update = true;                                    // trainers update parameters on the device
  uint64_t snapshot_every = tuning::kSnapshotEvery;      // updates between host snapshots of the parameters
  bool unfused = false;  // launches as DyNet makes them (exec/cuda/launch_strategy.h)

  bool joins_launches() const { return persistent && !unfused; }
};

}  // namespace dyc
