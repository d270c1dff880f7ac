// LaunchArgs::extra of kernels/updates.cu.
#pragma once
#include "cuda/abi/operands.h"
#include "cuda/abi/tuning.h"
#include "ops/updates.h"

namespace dyc::cuda {

// A parameter to pass over: all of its elements, or those of some rows.
struct UpdateWork {
  UpdateSlice slice;
  const uint32_t* rows;  // null: all elements
  int64_t width;         // elements of a row, or all of them
  float decay;           // factor of weight decay
  bool dense_rows;       // slice.grad has these rows alone, one after the other
};

struct Updates {
  const UpdateWork* list;
  NodeSizes elements;  // to pass over, of each in the list
  UpdateFactors factors;
};

// Sums of squares of gradients, one for each chunk of kSquares elements.
struct Squares {
  const UpdateWork* list;
  NodeSizes elements;
  NodeSizes pieces;  // of each in the list
  double* sums;      // of all chunks, followed by their sum
};

}  // namespace dyc::cuda
