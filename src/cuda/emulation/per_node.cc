// The kernels of kernels/per_node.cu, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/per_node.cu"

#include "cuda/emulation/ops.h"

namespace dyc::cuda {

namespace {

template <class Op>
void add_row(emulation::Kernels& to) {
  if constexpr (Op::meta.kind == OpKind::per_node) {
    to.push_back({"per_node", expression_of<Op>("node_forward"), emulation::run<node_forward<Op>>});
    if constexpr (!Op::meta.nondiff)
      to.push_back({"per_node", expression_of<Op>("node_backward"), emulation::run<node_backward<Op>>});
  }
}

const emulation::Registration kSource([](emulation::Kernels& to) {
  each_op(AllOps{}, [&to]<class Op>() { add_row<Op>(to); });
});

}  // namespace

}  // namespace dyc::cuda
