// The pass over a command list that replaces stretches of small launches by one launch of a persistent kernel
// each, whose steps they become (cuda/abi/persistent.h).
#pragma once
#include <span>
#include <vector>

#include "exec/cuda/cuda_device.h"
#include "exec/cuda/persistent_weights.h"

namespace dyc {

class CommandList;

// A launch that may be a step of a chain, with those next to it of the same number (exec/cuda/chain_pass.h).
struct Link {
  uint32_t chain = 0;      // 0: none
  uint32_t instances = 0;  // as LaunchArgs has them, while it is in one
  int64_t period = 0;
  cuda::LaunchArgs* args = nullptr;  // in host memory, to be uploaded
};

struct Command {
  static constexpr uint32_t kCopy = 0xffffffffu, kPersistent = 0xfffffffeu, kGemm = 0xfffffffdu,
                            kChain = 0xfffffffcu;
  uint32_t kernel_id;  // or one of these
  uint32_t blocks;     // kGemm: number of the call
  bool needs_grid_sync;
  const void* args;  // copies: to
  const void* from;
  size_t bytes;
  size_t persistent = 0;  // kPersistent: number of the launch
  Link link = {};
  bool has_kernel() const { return kernel_id < kChain; }
};

class PersistentPass {
 public:
  PersistentPass(CommandList& list, CudaDevice& device) : list_(list), device_(device) {}

  // ---- in this order
  void find();
  // Compiles kernels that are missing. Stretches that are not worth it, or for which that fails, are
  // forgotten. True: of others the kernels are to come.
  bool compile();
  bool has_stretches() const { return !stretches_.empty(); }
  void replace();

  // Kernels that the list needs: of commands in no stretch.
  std::vector<uint32_t> kernel_ids() const;

  // ---- of commands with kernel_id kPersistent
  cuda::Backend::Operation operation(const Command& c) const;
  // False where it is not supported: then it has done nothing, and steps() are to run instead.
  bool launch(const Command& c, const cuda::Backend::Operation& operation);
  std::span<const Command> steps(const Command& c) const;
  void count_all();

  void clear();

 private:
  // A stretch of commands that becomes one launch.
  struct Stretch {
    size_t begin, end;  // in the list, later in replaced_
    std::vector<uint32_t> kernel_ids = {};
    PersistentWeights weights = {};
    std::span<WeightProduct> products = {};
    std::span<const SlicedStep> sliced = {};
    std::vector<BarrierFreeRun> barrier_free_runs = {};
    cuda::Backend::Kernel kernel = nullptr;
    uint32_t shared_bytes = 0;
    uint64_t persistent_products = 0, sliced_steps = 0, grid_syncs = 0;  // see cuda::Backend::Counters
  };
  bool may_be_step(const Command& c) const;
  Stretch stretch(size_t begin, size_t end);
  void find_weights(Stretch& s);
  Command launch_of(size_t number);
  std::vector<cuda::WeightLoad> loads_of(const Stretch& s) const;
  uint32_t place_weights(Stretch& s, PersistentKernels::Kernel& kernel, uint32_t blocks);
  std::vector<cuda::PersistentStep> steps_of(Stretch& s);
  void skip_barriers(Stretch& s, const BarrierFreeRun& run, std::vector<cuda::PersistentStep>& steps);
  bool use_weights(Stretch& s, cuda::PersistentStep& step, size_t number);
  void count(const Stretch& s);

  CommandList& list_;
  CudaDevice& device_;
  std::vector<Stretch> stretches_;
  std::vector<Command> replaced_;  // the list before replace()
};

}  // namespace dyc
