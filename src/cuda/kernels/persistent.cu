// A kernel that runs many launches one after the other, all blocks together: walk<12, 3, 40> has the bodies
// of tasks 12, 3 and 40 (cuda/abi/persistent.h).
#include "cuda/device/prelude.h"

#include "cuda/device/grid.h"
#include "cuda/abi/persistent.h"
#include "cuda/device/worker.h"

#ifndef DYC_EMULATION
#include "cuda/kernels/elementwise.cu"
#include "cuda/kernels/few_columns.cu"
#include "cuda/kernels/large_products.cu"
#include "cuda/kernels/lookup.cu"
#include "cuda/kernels/matmul.cu"
#include "cuda/kernels/per_node.cu"
#include "cuda/kernels/memory.cu"
#include "cuda/kernels/persistent_weights.cu"
#endif

namespace dyc::cuda {

// Blocks that have nothing to do in a step go on to the next one that waits.
template <class Run>
__device__ void run_walk(const Record& r, Run run) {
  const Walk& walk = *static_cast<const Walk*>(r.more);
  for (uint32_t s = 0; s < walk.count; ++s) {
    const Step& step = walk.steps[s];
    if (step.waits) wait_for_grid(walk.arrived);
    else __syncthreads();  // shared memory
    run(step);
  }
}

#ifndef DYC_EMULATION

// Floats of shared memory that a task asks for.
constexpr int task_floats(uint32_t task) {
  if (task < dyc::kOps * kWays) return 0;
  const uint32_t other = task - dyc::kOps * kWays;
  if (other <= kProductDyx) return kProductFloats;
  if (other <= kLargeProductDyx) return kLargeFloats;
  return other <= kFewColumnsWdy ? kFewFloats : 0;
}
template <uint32_t... tasks>
constexpr int most_floats() {
  int most = 1;
  ((most = task_floats(tasks) > most ? task_floats(tasks) : most), ...);
  return most;
}

template <uint32_t task>
__device__ void run_task(const Record& r, const Worker& w, float* memory) {
  if constexpr (task >= dyc::kOps * kWays) {
    constexpr uint32_t other = task - dyc::kOps * kWays;
    static_assert(other <= kLastWalking);
    if constexpr (other == kProductWx) run_product<true, false>(r, memory);
    else if constexpr (other == kProductWdy) run_product<false, false>(r, memory);
    else if constexpr (other == kProductDyx) run_product<true, true>(r, memory);
    else if constexpr (other == kLargeProductWx) run_large_product<true, false>(r, memory);
    else if constexpr (other == kLargeProductWdy) run_large_product<false, false>(r, memory);
    else if constexpr (other == kLargeProductDyx) run_large_product<true, true>(r, memory);
    else if constexpr (other == kFewColumnsWx) run_few_columns<true>(r, memory);
    else if constexpr (other == kFewColumnsWdy) run_few_columns<false>(r, memory);
    else if constexpr (other == kResidentWx) run_resident_product<true>(r);
    else if constexpr (other == kResidentWdy) run_resident_product<false>(r);
    else if constexpr (other == kAddFew) run_add_few(r, w);
    else if constexpr (other == kAddMany) run_add_many(r, w);
    else if constexpr (other == kLookupForward) run_lookup_forward(r, w);
    else run_gather(r, w);
  } else {
    using Op = Row<task / kWays>;
    constexpr OpKind kind = Op::meta.kind;
    constexpr bool forward = task % kWays == kForward;
    static_assert(kind == OpKind::unary || kind == OpKind::binary || kind == OpKind::per_node);
    if constexpr (kind == OpKind::unary && forward) run_unary_forward<Op>(r, w);
    else if constexpr (kind == OpKind::unary) run_unary_backward<Op>(r, w);
    else if constexpr (kind == OpKind::binary && forward) run_binary_forward<Op>(r, w);
    else if constexpr (kind == OpKind::binary) run_binary_backward<Op, task % kWays - kBackward>(r, w);
    else if constexpr (forward) run_member_forward<Op>(r, w);
    else run_member_backward<Op>(r, w);
  }
}

// Two blocks fit on a multiprocessor, whatever the tasks: one alone would wait for memory most of the time.
template <uint32_t... tasks>
__global__ void __launch_bounds__(kBlock, 2) walk(const Record* record) {
  const Worker w;
  DYC_SHARED(float, memory, most_floats<tasks...>());
  run_walk(*record, [&](const Step& step) {
    (void)((step.task == tasks && (run_task<tasks>(*step.record, w, memory), true)) || ...);
  });
}

#endif

}  // namespace dyc::cuda
