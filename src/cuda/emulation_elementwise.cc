// The kernels of kernels/elementwise.cu, for the host.
#include "cuda/emulation_device.h"

#include "cuda/kernels/elementwise.cu"

namespace dyc::cuda {

namespace {

template <class Op>
void add(emulation::Kernels& to, const std::string& before, emulation::Run run, const char* after = "") {
  to.push_back({"elementwise", before + "<Row<" + std::to_string(op_id<Op>) + ">" + after + ">", run});
}

template <class Op>
void add_row(emulation::Kernels& to) {
  using emulation::run;
  if constexpr (Op::meta.form == Form::unary) {
    add<Op>(to, "unary_forward", run<unary_forward<Op>>);
    add<Op>(to, "unary_backward", run<unary_backward<Op>>);
  } else if constexpr (Op::meta.form == Form::binary) {
    add<Op>(to, "binary_forward", run<binary_forward<Op>>);
    add<Op>(to, "binary_backward", run<binary_backward<Op, 0>>, ", 0");
    add<Op>(to, "binary_backward", run<binary_backward<Op, 1>>, ", 1");
  }
}

template <class... Ops>
void add_rows(emulation::Kernels& to, OpList<Ops...>) {
  (add_row<Ops>(to), ...);
}

const emulation::Source kSource([](emulation::Kernels& to) { add_rows(to, AllOps{}); });

}  // namespace

}  // namespace dyc::cuda
