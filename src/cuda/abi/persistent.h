// LaunchArgs::extra of kernels/persistent.cu: many small launches, the steps of one persistent kernel or
// chain.
#pragma once
#include "cuda/abi/launch_args.h"
#include "cuda/abi/persistent_weights.h"
#include "ops/updates.h"

namespace dyc::cuda {

// Numbers of kernel bodies: those of ops are op * kPasses + pass, followed by these.
enum Pass : uint32_t { kForward, kBackward, kBackwardSecond, kPasses };
enum KernelId : uint32_t {
  kProductWx,  // + ProductKind
  kProductWdy,
  kProductDyx,
  kLargeProductWx,  // likewise
  kLargeProductWdy,
  kLargeProductDyx,
  kFewColumnsWx,  // likewise
  kFewColumnsWdy,
  kSmallProductWx,  // likewise: kernels/matmul.cu in small tiles
  kSmallProductWdy,
  kSmallProductDyx,
  kAddFew,
  kAddMany,
  kLookupForward,
  kGather,
  kPersistentProduct,                    // in persistent kernels only
  kLastPersistent = kPersistentProduct,  // the others are launched by themselves
  kTf32ProductWx,                        // + ProductKind: large products by tensor cores
  kTf32ProductWdy,
  kTf32ProductDyx,
  kBf16ProductWx,  // likewise
  kBf16ProductWdy,
  kBf16ProductDyx,
  kArgmax,
  kTakeArray,
  kSumSquares,
  kTotalSquares,
  kUpdate,  // + 2 * UpdateRule, + 1 with a gradient
  kKernelIds = kUpdate + 2 * kUpdateRules
};

struct PersistentStep {
  uint32_t kernel_id;
  bool needs_grid_sync;  // for all steps before
  const LaunchArgs* args;
};

struct PersistentArgs {
  const PersistentStep* steps;
  uint32_t count;
  uint32_t* arrived;        // see wait_for_grid()
  const WeightLoad* loads;  // in the order of their steps
  uint32_t load_count;
  bool loads_first;  // the first step reads what is loaded before it
  uint32_t* fault;   // host memory: step + 1 at which blocks gave up waiting
};

}  // namespace dyc::cuda
