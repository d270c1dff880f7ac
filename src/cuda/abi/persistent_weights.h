// LaunchArgs::extra of device/persistent_product.h: products in a persistent kernel whose weights stay in
// shared memory from step to step.
#pragma once
#include "cuda/abi/products.h"

namespace dyc::cuda {

// The number of rows in a slice: block b computes the same rows in each step, and keeps these rows of the
// weights.
constexpr int64_t slice_rows(int64_t m, uint32_t blocks) { return (m + blocks - 1) / blocks; }
// Floats from row to row in shared memory; an odd number of fours, so that rows begin in different banks.
constexpr int64_t weight_stride(int64_t inner) { return ((inner + 3) / 4 | 1) * 4; }

struct PersistentTerm {
  Term term;        // a: the weights
  uint32_t offset;  // of the block's rows of them, in floats of its dynamic shared memory
};

// Weights that each block copies to its dynamic shared memory when the persistent kernel begins, or before a
// later step, where one before that computes them.
struct WeightLoad {
  uint32_t step;
  Matrix<const float> a;
  int64_t rows, inner;  // of the factor that it is
  int64_t period;       // as PersistentProduct has it
  uint32_t offset;
  bool forward;  // columns of `a` are counted by the inner index, else by the rows
};

struct PersistentProduct {
  Product product;  // but its terms
  const PersistentTerm* terms;
  uint32_t count;  // terms
  int64_t period;  // rows i, period + i, 2 period + i... are of one block; divides m
};

}  // namespace dyc::cuda
