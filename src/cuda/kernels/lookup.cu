// Rows of tables.
#include "cuda/device/prelude.h"

#include "cuda/abi/launch_args.h"
#include "cuda/abi/lookup.h"
#include "cuda/device/worker.h"

namespace dyc::cuda {

// The results of all nodes are gapless, so they are as many rows as there are indices.
__device__ inline void run_lookup_forward(const LaunchArgs& r, const Worker& w) {
  const LookupArgs table = extra_of<LookupArgs>(r);
  const float* const rows = in_device_memory(table.rows);
  const uint32_t* const ids = in_device_memory(r.ids);
  for (int64_t i = w.thread; i < r.results.total; i += w.threads) {
    const int64_t row = i / table.row_size;
    r.y[i] = rows[ids[row] * table.row_size + i % table.row_size] * table.factor;
  }
}

__global__ void lookup_forward(const LaunchArgs* args) { run_lookup_forward(*args, Worker()); }

}  // namespace dyc::cuda
