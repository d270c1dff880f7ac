// Kernels that run many launches one after the other. persistent<12, 3, 40> has the kernel bodies 12, 3 and
// 40 (cuda/abi/persistent.h), and all of its blocks run at the same time. chain<12, 3, 40> is launched as any
// other: each block makes its slice of each step, and waits for none.
#include "cuda/device/prelude.h"

#include "cuda/device/grid.h"
#include "cuda/abi/persistent.h"
#include "cuda/device/persistent_product.h"
#include "cuda/device/product_head.h"
#include "cuda/device/worker.h"

#include "cuda/kernels/elementwise.cu"
#include "cuda/kernels/few_columns.cu"
#include "cuda/kernels/large_products.cu"
#include "cuda/kernels/lookup.cu"
#include "cuda/kernels/matmul.cu"
#include "cuda/kernels/per_node.cu"
#include "cuda/kernels/memory.cu"

namespace dyc::cuda {

// What all steps have in common, the arguments of a step and its record are in shared memory: a barrier of
// the grid empties the cache, and each load after it takes as long as a small step. They are copied while
// steps before run: arguments one step ahead, records two.
template <class T>
DYC_INLINE void copy_ahead(uint64_t* to, const T* what) {
  static_assert(kWords<T> * sizeof(uint64_t) == sizeof(T));
  copy_words(to, what, kWords<T>);
}
constexpr uint32_t kRecords = 3;  // of this step and the two after it

// load(all, next, step) is load_weights(), run(kernel_id, args) makes a step. Blocks that have nothing to do
// in a step continue until the next grid barrier.
template <bool Waits, class Load, class Run>
__device__ void run_steps(const PersistentArgs& given, Load load, Run run) {
  DYC_SHARED(uint64_t, common, kWords<PersistentArgs>);
  DYC_SHARED(uint64_t, args, 2 * kWords<LaunchArgs>);
  DYC_SHARED(uint64_t, records, kRecords* kWords<PersistentStep>);
  const auto record = [&](uint32_t s) { return records + s % kRecords * kWords<PersistentStep>; };
  copy_ahead(common, &given);
  copy_ahead(args, given.steps[0].args);
  for (uint32_t s = 0; s < 2 && s < given.count; ++s) copy_ahead(record(s), given.steps + s);
  wait_for_copies();
  __syncthreads();
  const PersistentArgs& all = *reinterpret_cast<const PersistentArgs*>(common);
  uint32_t next = load(all, 0, 0);
  for (uint32_t s = 0; s < all.count; ++s) {
    const PersistentStep step = *reinterpret_cast<const PersistentStep*>(record(s));
    if (s > 0 || all.loads_first) wait_for_copies();
    if (Waits && step.needs_grid_sync) wait_for_grid(all.arrived, all.fault, s);
    else __syncthreads();  // shared memory, and what the block has made
    if (const uint32_t before = next; s > 0 && (next = load(all, before, s)) != before) {
      wait_for_copies();
      __syncthreads();
    }
    if (s + 1 < all.count)
      copy_ahead(args + (s + 1) % 2 * kWords<LaunchArgs>,
                 reinterpret_cast<const PersistentStep*>(record(s + 1))->args);
    if (s + 2 < all.count) copy_ahead(record(s + 2), all.steps + s + 2);
    run(step.kernel_id, *reinterpret_cast<const LaunchArgs*>(args + s % 2 * kWords<LaunchArgs>));
  }
}

// Floats of shared memory that a kernel body needs.
constexpr int kernel_floats(uint32_t kernel_id) {
  if (kernel_id < dyc::kOps * kPasses) return 0;
  const uint32_t other = kernel_id - dyc::kOps * kPasses;
  if (other <= kProductDyx) return kProductFloats<kTile>;
  if (other <= kLargeProductDyx) return kLargeFloats;
  if (other <= kFewColumnsWdy) return kFewFloats;
  return other <= kSmallProductDyx ? kProductFloats<kSmallTile> : 0;
}
template <uint32_t... kernel_ids>
constexpr int most_floats() {
  int most = 1;
  ((most = kernel_floats(kernel_ids) > most ? kernel_floats(kernel_ids) : most), ...);
  return most;
}

template <uint32_t kernel_id>
__device__ void run_kernel(const LaunchArgs& r, const Worker& w, float* memory) {
  if constexpr (kernel_id >= dyc::kOps * kPasses) {
    constexpr uint32_t other = kernel_id - dyc::kOps * kPasses;
    static_assert(other <= kLastPersistent);
    if constexpr (other == kProductWx) run_product<true, false, kTile>(&extra_of<Products>(r), memory);
    else if constexpr (other == kProductWdy) run_product<false, false, kTile>(&extra_of<Products>(r), memory);
    else if constexpr (other == kProductDyx) run_product<true, true, kTile>(&extra_of<Products>(r), memory);
    else if constexpr (other == kLargeProductWx)
      run_large_product<true, false>(&extra_of<Products>(r), memory);
    else if constexpr (other == kLargeProductWdy)
      run_large_product<false, false>(&extra_of<Products>(r), memory);
    else if constexpr (other == kLargeProductDyx)
      run_large_product<true, true>(&extra_of<Products>(r), memory);
    else if constexpr (other == kFewColumnsWx) run_few_columns<true>(&extra_of<Products>(r), memory);
    else if constexpr (other == kFewColumnsWdy) run_few_columns<false>(&extra_of<Products>(r), memory);
    else if constexpr (other == kSmallProductWx)
      run_product<true, false, kSmallTile>(&extra_of<Products>(r), memory);
    else if constexpr (other == kSmallProductWdy)
      run_product<false, false, kSmallTile>(&extra_of<Products>(r), memory);
    else if constexpr (other == kSmallProductDyx)
      run_product<true, true, kSmallTile>(&extra_of<Products>(r), memory);
    else if constexpr (other == kPersistentProduct) run_persistent_product(r);
    else if constexpr (other == kAddFew) run_add_few(r, w);
    else if constexpr (other == kAddMany) run_add_many(r, w);
    else if constexpr (other == kLookupForward) run_lookup_forward(r, w);
    else run_gather(r, w);
  } else {
    using Op = OpById<kernel_id / kPasses>;
    constexpr OpKind kind = Op::meta.kind;
    constexpr bool forward = kernel_id % kPasses == kForward;
    static_assert(kind == OpKind::unary || kind == OpKind::binary || kind == OpKind::per_node);
    if constexpr (kind == OpKind::unary && forward) run_unary_forward<Op>(r, w);
    else if constexpr (kind == OpKind::unary) run_unary_backward<Op>(r, w);
    else if constexpr (kind == OpKind::binary && forward) run_binary_forward<Op>(r, w);
    else if constexpr (kind == OpKind::binary) run_binary_backward<Op, kernel_id % kPasses - kBackward>(r, w);
    else if constexpr (forward) run_node_forward<Op>(r, w);
    else run_node_backward<Op>(r, w);
  }
}

// Two blocks fit on a multiprocessor, whatever the steps: one alone would wait for memory most of the time.
template <uint32_t... kernel_ids>
__global__ void __launch_bounds__(kBlock, 2) persistent(const LaunchArgs* args) {
  const Worker w;
  DYC_SHARED(float, memory, (most_floats<kernel_ids...>()));
  const auto load = [](const PersistentArgs& all, uint32_t next, uint32_t step) {
    if constexpr (((kernel_ids == dyc::kOps * kPasses + kPersistentProduct) || ...))
      return load_weights(all, next, step);
    else return next;
  };
  run_steps<true>(extra_of<PersistentArgs>(*args), load, [&](uint32_t kernel_id, const LaunchArgs& r) {
    (void)((kernel_id == kernel_ids && (run_kernel<kernel_ids>(r, w, memory), true)) || ...);
  });
}

template <uint32_t... kernel_ids>
__global__ void __launch_bounds__(kBlock, 2) chain(const LaunchArgs* args) {
  const Worker w;
  const auto load = [](const PersistentArgs&, uint32_t next, uint32_t) { return next; };
  run_steps<false>(extra_of<PersistentArgs>(*args), load, [&](uint32_t kernel_id, const LaunchArgs& r) {
    (void)((kernel_id == kernel_ids && (run_kernel<kernel_ids>(r, w, nullptr), true)) || ...);
  });
}

}  // namespace dyc::cuda
