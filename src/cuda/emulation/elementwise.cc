// The kernels of kernels/elementwise.cu, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/elementwise.cu"

#include "cuda/emulation/ops.h"

namespace dyc::cuda {

namespace {

template <class Op>
void add(emulation::Kernels& to, const char* kernel, emulation::Run run, const char* after = "") {
  to.push_back({"elementwise", expression_of<Op>(kernel, after), run});
}

template <class Op>
void add_row(emulation::Kernels& to) {
  using emulation::run;
  if constexpr (Op::meta.kind == OpKind::unary) {
    add<Op>(to, "unary_forward", run<unary_forward<Op>>);
    add<Op>(to, "unary_backward", run<unary_backward<Op>>);
  } else if constexpr (Op::meta.kind == OpKind::binary) {
    add<Op>(to, "binary_forward", run<binary_forward<Op>>);
    add<Op>(to, "binary_backward", run<binary_backward<Op, 0>>, ", 0");
    add<Op>(to, "binary_backward", run<binary_backward<Op, 1>>, ", 1");
  }
}

const emulation::Registration kSource([](emulation::Kernels& to) {
  each_op(AllOps{}, [&to]<class Op>() { add_row<Op>(to); });
});

}  // namespace

}  // namespace dyc::cuda
