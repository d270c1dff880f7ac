// The kernels of kernels/members.cu, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/per_node.cu"

#include "cuda/emulation/ops.h"

namespace dyc::cuda {

namespace {

template <class Op>
void add_row(emulation::Kernels& to) {
  if constexpr (Op::meta.kind == OpKind::per_node) {
    to.push_back({"per_node", expression_of<Op>("member_forward"), emulation::run<member_forward<Op>>});
    if constexpr (!Op::meta.nondiff)
      to.push_back({"per_node", expression_of<Op>("member_backward"), emulation::run<member_backward<Op>>});
  }
}

const emulation::Source kSource([](emulation::Kernels& to) {
  each_row(AllOps{}, [&to]<class Op>() { add_row<Op>(to); });
});

}  // namespace

}  // namespace dyc::cuda
