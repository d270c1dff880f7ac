// Ops whose functions a script supplies.
#pragma once
#include "ops/op.h"

namespace dyc {

// Node by node, by the script's functions (exec/user_ops.h). attrs {number of the op, sizes, batch size}.
struct UserOp {
  static constexpr Meta meta = [] {
    Meta m = Meta::of(OpKind::user, "user_op", "forward(xs)", Reads::x_and_y).hide();
    return m;
  }();
  static constexpr Param params[] = {{"xs", Param::exprs}};
  static Dim shape(const ShapeArgs& s) {
    Dim d;
    for (uint32_t i = 1; i + 1 < s.n_attrs; ++i) d.d[d.nd++] = s.attrs[i];
    d.bd = s.attrs[s.n_attrs - 1];
    return d;
  }
};

// The ops of this file, in the order of their numbers.
using UserOps = OpList<UserOp>;

}  // namespace dyc
