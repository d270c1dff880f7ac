// The kernel table of one instruction set, generated from the op table.
#include "cpu/isa/map.h"

#include "cpu/isa/column_losses.h"
#include "cpu/isa/conv.h"
#include "cpu/kernel_table.h"

namespace dyc::DYC_ISA {

struct Isa {
  using V = DYC_ISA::V;
  static constexpr int lanes = kLanes;
};

namespace {

template <class Op>
constexpr OpKernels make_kernels() {
  OpKernels k;
  constexpr OpKind kind = Op::meta.kind;
  if constexpr (kind == OpKind::unary) {
    k.map1 = &map1<Op>;
    k.map1_back = &map1_back<Op>;
  } else if constexpr (kind == OpKind::binary) {
    k.map2 = &map2<Op>;
    k.map2_back = &map2_back<Op>;
    k.forward = &broadcast_forward<Op, Isa>;
    k.backward = &broadcast_backward<Op, Isa>;
  } else if constexpr (kind == OpKind::per_node) {
    k.forward = &Op::template forward<Isa>;
    if constexpr (requires(const KernelArgs& m, float* const* dx) { Op::template backward_all<Isa>(m, dx); })
      k.backward_all = &Op::template backward_all<Isa>;
    if constexpr (requires(const KernelArgs& m) { Op::template backward<Isa>(m, 0u); })
      k.backward = &Op::template backward<Isa>;
    if constexpr (requires { typename Op::Summary; }) k.column_loss = column_loss_kernels<Op, Isa>();
  } else if constexpr (kind == OpKind::custom) {
    k.custom = kernels_of(Op{});
  }
  return k;
}

template <class... Ops>
constexpr KernelTable make_table(OpList<Ops...>, const GemmKernels* gemm, const UpdateTable* updates,
                                 const char* isa) {
  return {isa, {make_kernels<Ops>()...}, gemm, updates};
}

}  // namespace
}  // namespace dyc::DYC_ISA

#define DYC_PASTE2(a, b) a##b
#define DYC_PASTE(a, b) DYC_PASTE2(a, b)
#define DYC_TEXT2(a) #a
#define DYC_TEXT(a) DYC_TEXT2(a)

namespace dyc {

const KernelTable& DYC_PASTE(kernels_, DYC_ISA)() {
  static const KernelTable table =
      DYC_ISA::make_table(AllOps{}, &DYC_PASTE(gemm_kernels_, DYC_ISA)(),
                          &DYC_PASTE(update_table_, DYC_ISA)(), DYC_TEXT(DYC_ISA));
  return table;
}

}  // namespace dyc
