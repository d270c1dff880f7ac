// The ops that a GPU computes in the launch of the product before, element by element: their code is in each
// kernel for products.
#pragma once
#include "ops/arithmetic.h"
#include "ops/elementwise.h"

namespace dyc {

using Followers = OpList<Tanh, Logistic, Rectify, Negate, Scale, AddConst, ConstMinus, Add, Sub, CMult>;

}  // namespace dyc
