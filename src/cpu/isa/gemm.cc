// The GEMM kernels of one instruction set.
#include "cpu/isa/column_sum.h"
#include "cpu/isa/gemm_nn.h"
#include "cpu/isa/gemm_nt.h"
#include "cpu/isa/gemm_tn.h"

#define DYC_JOIN2(a, b) a##b
#define DYC_JOIN(a, b) DYC_JOIN2(a, b)

namespace dyc {

const GemmKernels& DYC_JOIN(gemm_kernels_, DYC_ISA)() {
  using namespace DYC_ISA;
  static constexpr GemmKernels kernels{
      gemm_nn,
      gemm_tn,
      gemm_tn_sum,
      gemm_nt,
      column_sum,
      [](float* sum, float* low, const float* part, int64_t n) { add_parts(sum, low, part, n); },
      [](float* sum, const float* low, int64_t n) { join_parts(sum, low, n); },
      kLanes,
      kTnChunk,
      kTnPiece,
      kNtBlock,
      kNtLong};
  return kernels;
}

}  // namespace dyc
