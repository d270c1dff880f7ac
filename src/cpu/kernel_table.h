// The CPU kernels of every op for one instruction set, and the choice among the sets at run time.
#pragma once
#include <cstddef>

#include "cpu/column_losses.h"
#include "cpu/gemm.h"
#include "cpu/update_kernels.h"
#include "ops/table.h"

namespace dyc {

// Kernels of a custom op, over the nodes of a launch. Chunks of pieces run on different threads.
struct CustomKernels {
  // Pieces of the results, numbered through the nodes.
  void (*forward)(const KernelArgs* m, int64_t n, Range pieces) = nullptr;
  // Pieces of the gradient of argument `arg`, KernelArgs::dx. `shared`: the nodes add to one gradient,
  // whose pieces these are; else they are numbered through the nodes.
  void (*backward)(const KernelArgs* m, int64_t n, uint32_t arg, bool shared, Range pieces) = nullptr;
};

// Kernels of one op; null where its kind has none.
struct OpKernels {
  // unary ops, flat
  void (*map1)(const float* x, float* y, size_t n, const float* attrs) = nullptr;
  void (*map1_back)(const float* x, const float* y, const float* dy, float* dx, size_t n,
                    const float* attrs) = nullptr;
  // binary ops on operands of equal shapes, flat; dx or dy may be null
  void (*map2)(const float* x, const float* y, float* z, size_t n, const float* attrs) = nullptr;
  void (*map2_back)(const float* x, const float* y, const float* z, const float* dz, float* dx, float* dy,
                    size_t n, const float* attrs) = nullptr;
  // one node: per_node ops, and binary ops that broadcast
  void (*forward)(const KernelArgs& m) = nullptr;
  void (*backward)(const KernelArgs& m, uint32_t arg) = nullptr;
  void (*backward_all)(const KernelArgs& m, float* const* dx) = nullptr;
  CustomKernels custom;
  ColumnLossKernels column_loss;
};

struct KernelTable {
  const char* isa;
  OpKernels ops[kOps];
  const GemmKernels* gemm;
  const UpdateTable* updates;
};

const KernelTable& kernels_baseline();
const KernelTable& kernels_avx2();
const KernelTable& kernels_avx512();

// The best set this CPU has, or the one named by DYNET_COMPAT_ISA when it is first asked for.
const KernelTable& kernels();
// The name of the best set.
const char* best_isa();

}  // namespace dyc
