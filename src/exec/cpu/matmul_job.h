// The product of a launch as the executor runs it.
#pragma once
#include <cstdint>

#include "cpu/gemm.h"

namespace dyc {

struct MatmulFactor {
  const float* w;
  int64_t k;
  ConstCols x;
};
// W1 x1 + W2 x2 ... over the columns of all nodes.
struct MatmulJob {
  int64_t m, n;             // rows and columns of the result
  int64_t cols;             // of one node
  int64_t work;             // multiply-adds
  uint32_t first, factors;  // in CpuExecutor::factors_
  ConstCols start;
  Cols y;
};

// A product of one batch item whose weight is its own, backward; dw, dx: null where nobody wants them.
struct NodeProduct {
  int64_t m, k, n;  // W {m,k}, x {k,n}
  const float *w, *x, *dy;
  float *dw, *dx;
};

}  // namespace dyc
