// The kernels of kernels/structured.cu, for the host.
#include "cuda/emulation_device.h"

#include "cuda/kernels/structured.cu"

namespace dyc::cuda {

namespace {

template <class Op>
void add_row(emulation::Kernels& to) {
  if constexpr (Op::meta.form == Form::structured) {
    const std::string row = "<Row<" + std::to_string(op_id<Op>) + ">>";
    to.push_back({"structured", "structured_forward" + row, emulation::run<structured_forward<Op>>});
    to.push_back({"structured", "structured_backward" + row, emulation::run<structured_backward<Op>>});
  }
}

template <class... Ops>
void add_rows(emulation::Kernels& to, OpList<Ops...>) {
  (add_row<Ops>(to), ...);
}

const emulation::Source kSource([](emulation::Kernels& to) { add_rows(to, AllOps{}); });

}  // namespace

}  // namespace dyc::cuda
