// LaunchArgs::extra of kernels/persistent_weights.cu: products in a persistent kernel whose weights stay in
// shared memory from step to step.
#pragma once
#include "cuda/abi/products.h"

namespace dyc::cuda {

// The number of rows in a slice: block b computes the same rows in each step, and keeps these rows of the
// weights.
constexpr int64_t slice_rows(int64_t m, uint32_t blocks) { return (m + blocks - 1) / blocks; }
// Floats from row to row in shared memory; odd, so that rows begin in different banks.
constexpr int64_t weight_stride(int64_t inner) { return inner | 1; }

struct PersistentTerm {
  Term term;        // a: the weights
  uint32_t offset;  // of the block's rows of them, in floats of its dynamic shared memory
  bool first;       // the first step of the persistent kernel that reads them
};

struct PersistentProduct {
  Product product;  // but its terms
  const PersistentTerm* terms;
  uint32_t count;  // terms
  int64_t period;  // rows i, period + i, 2 period + i... are of one block; divides m
};

}  // namespace dyc::cuda
