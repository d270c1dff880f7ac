// What Record::more is for kernels/walk.cu: many launches as one.
#pragma once
#include "cuda/abi/launch_args.h"
#include "ops/updates.h"

namespace dyc::cuda {

// Bodies of kernels by number: those of rows are op * kWays + way, behind them come others.
enum Way : uint32_t { kForward, kBackward, kBackwardSecond, kWays };
enum Task : uint32_t {
  kProductWx,  // + ProductKind
  kProductWdy,
  kProductDyx,
  kLargeProductWx,  // likewise
  kLargeProductWdy,
  kLargeProductDyx,
  kFewColumnsWx,  // likewise
  kFewColumnsWdy,
  kAddFew,
  kAddMany,
  kLookupForward,
  kGather,
  kResidentWx,  // these two in walks only
  kResidentWdy,
  kLastWalking = kResidentWdy,  // the others are launched by themselves
  kArgmax,
  kSumSquares,
  kTotalSquares,
  kUpdate,  // + 2 * UpdateRule, + 1 with a gradient
  kTasks = kUpdate + 2 * kUpdateRules
};

struct Step {
  uint32_t task;
  bool waits;  // for all steps before
  const Record* record;
  uint64_t kernel;  // the emulation's kernel
};

struct Walk {
  const Step* steps;
  uint32_t count;
  uint32_t* arrived;  // see wait_for_grid()
};

}  // namespace dyc::cuda
