// The GEMM kernels of one instruction set.
#include "cpu/isa/column_sum.h"
#include "cpu/isa/gemm_nn.h"
#include "cpu/isa/gemm_nt.h"
#include "cpu/isa/gemm_tn.h"

#define DYC_JOIN2(a, b) a##b
#define DYC_JOIN(a, b) DYC_JOIN2(a, b)

namespace dyc {

const GemmKernels& DYC_JOIN(gemm_kernels_, DYC_ISA)() {
  static constexpr GemmKernels kernels{DYC_ISA::gemm_nn, DYC_ISA::gemm_tn,    DYC_ISA::gemm_tn_sum,
                                       DYC_ISA::gemm_nt, DYC_ISA::column_sum, DYC_ISA::kLanes};
  return kernels;
}

}  // namespace dyc
