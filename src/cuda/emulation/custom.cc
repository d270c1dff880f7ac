// The kernels of kernels/custom.cu, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/custom.cu"

#include "cuda/emulation/ops.h"

namespace dyc::cuda {

namespace {

template <class Op>
void add_row(emulation::Kernels& to) {
  if constexpr (Op::meta.kind == OpKind::custom) {
    to.push_back({"custom", expression_of<Op>("custom_forward"), emulation::run<custom_forward<Op>>});
    to.push_back({"custom", expression_of<Op>("custom_backward"), emulation::run<custom_backward<Op>>});
  }
}

const emulation::Registration kSource([](emulation::Kernels& to) {
  each_op(AllOps{}, [&to]<class Op>() { add_row<Op>(to); });
});

}  // namespace

}  // namespace dyc::cuda
