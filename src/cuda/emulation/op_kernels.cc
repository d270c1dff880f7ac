// The kernels of each op of the op table, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/custom.cu"
#include "cuda/kernels/elementwise.cu"
#include "cuda/kernels/per_node.cu"

#include "cuda/device/op_by_id.h"

namespace dyc::cuda {

namespace {

// `after`: further arguments of the kernel's template.
template <class Op>
void add(emulation::Kernels& to, const char* file, const char* kernel, emulation::Run run,
         const char* after = "") {
  to.push_back({file, kernel + ("<OpById<" + std::to_string(op_id<Op>)) + ">" + after + ">", run});
}

template <class Op>
void add_kernels(emulation::Kernels& to) {
  using emulation::run;
  if constexpr (Op::meta.kind == OpKind::unary) {
    add<Op>(to, "elementwise", "unary_forward", run<unary_forward<Op>>);
    add<Op>(to, "elementwise", "unary_backward", run<unary_backward<Op>>);
  } else if constexpr (Op::meta.kind == OpKind::binary) {
    add<Op>(to, "elementwise", "binary_forward", run<binary_forward<Op>>);
    add<Op>(to, "elementwise", "binary_backward", run<binary_backward<Op, 0>>, ", 0");
    add<Op>(to, "elementwise", "binary_backward", run<binary_backward<Op, 1>>, ", 1");
  } else if constexpr (Op::meta.kind == OpKind::per_node) {
    add<Op>(to, "per_node", "node_forward", run<node_forward<Op>>);
    if constexpr (!Op::meta.nondiff) add<Op>(to, "per_node", "node_backward", run<node_backward<Op>>);
  } else if constexpr (Op::meta.kind == OpKind::custom) {
    add<Op>(to, "custom", "custom_forward", run<custom_forward<Op>>);
    add<Op>(to, "custom", "custom_backward", run<custom_backward<Op>>);
  }
}

const emulation::Registration kSources([](emulation::Kernels& to) {
  [&to]<class... Ops>(OpList<Ops...>) { (add_kernels<Ops>(to), ...); }(AllOps{});
});

}  // namespace

}  // namespace dyc::cuda
