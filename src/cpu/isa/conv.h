// Kernels of custom ops: kernels_of(row).
#pragma once
#include "cpu/simd.h"

#include "cpu/gemm.h"
#include "cpu/kernel_table.h"
#include "ops/conv.h"

namespace dyc::DYC_ISA {

void conv2d_forward(const KernelArgs* m, int64_t n, Range pieces);
void conv2d_backward(const KernelArgs* m, int64_t n, uint32_t arg, bool shared, Range pieces);
void filter1d_forward(const KernelArgs* m, int64_t n, Range pieces);
void filter1d_backward(const KernelArgs* m, int64_t n, uint32_t arg, bool shared, Range pieces);

inline constexpr CustomKernels kConvKernels{conv2d_forward, conv2d_backward};
constexpr CustomKernels kernels_of(Conv2d) { return kConvKernels; }
constexpr CustomKernels kernels_of(Conv2dBias) { return kConvKernels; }
constexpr CustomKernels kernels_of(Filter1dNarrow) { return {filter1d_forward, filter1d_backward}; }

}  // namespace dyc::DYC_ISA
