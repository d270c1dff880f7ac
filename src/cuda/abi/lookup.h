// LaunchArgs::extra of lookups.
#pragma once
#include <cstdint>

namespace dyc::cuda {

// Rows, times a factor. LaunchArgs::ids says which, one after the other.
struct LookupArgs {
  const float* rows;
  float factor;  // of weight decay
  int64_t row_size;
};

}  // namespace dyc::cuda
