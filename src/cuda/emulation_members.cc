// The kernels of kernels/members.cu, for the host.
#include "cuda/emulation_device.h"

#include "cuda/kernels/members.cu"

namespace dyc::cuda {

namespace {

template <class Op>
void add_row(emulation::Kernels& to) {
  if constexpr (Op::meta.form == Form::member) {
    const std::string row = "<Row<" + std::to_string(op_id<Op>) + ">>";
    to.push_back({"members", "member_forward" + row, emulation::run<member_forward<Op>>});
    if constexpr (!Op::meta.nondiff)
      to.push_back({"members", "member_backward" + row, emulation::run<member_backward<Op>>});
  }
}

template <class... Ops>
void add_rows(emulation::Kernels& to, OpList<Ops...>) {
  (add_row<Ops>(to), ...);
}

const emulation::Source kSource([](emulation::Kernels& to) { add_rows(to, AllOps{}); });

}  // namespace

}  // namespace dyc::cuda
