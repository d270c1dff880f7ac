// Matrix product and affine transform: one GEMM per weight over the columns of all nodes.
#pragma once
#include "ops/op.h"

namespace dyc {

// W {r,k} * x {k,c} -> {r,c}; {r,k}*{k} -> {r}; vector * {1} scales. Batch 1 or common B.
struct MatMul {
  static constexpr Meta meta = Meta::of(OpKind::matmul, "matmul", "x * y", Reads::x).hide();
  static constexpr Param params[] = {{"x"}, {"y"}};
  static Dim shape(const ShapeArgs& s);
};

// b + W1*x1 + W2*x2 ...: arguments b, W1, x1, W2, x2 ...
struct Affine {
  static constexpr Meta meta = Meta::of(OpKind::matmul, "affine_transform", "b + sum W x", Reads::x);
  static constexpr Param params[] = {{"exprs", Param::exprs}};
  static Dim shape(const ShapeArgs& s);
};

// The ops of this file, in the order of their numbers.
using MatmulOps = OpList<MatMul, Affine>;

}  // namespace dyc
