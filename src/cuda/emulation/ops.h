// Adds the kernels of every row of the op table to the emulation. After the text of the kernels.
#pragma once
#include "cuda/emulation/device.h"
#include "cuda/device/op_by_id.h"

namespace dyc::cuda {

// The expression that names a row's kernel; `after`: its further arguments.
template <class Op>
std::string expression_of(const char* kernel, const char* after = "") {
  return kernel + ("<OpById<" + std::to_string(op_id<Op>)) + ">" + after + ">";
}

// f.operator()<Op>() for each row.
template <class F, class... Ops>
void each_op(OpList<Ops...>, F f) {
  (f.template operator()<Ops>(), ...);
}

}  // namespace dyc::cuda
