// LaunchArgs::extra of kernels/argmax.cu.
#pragma once
#include <cstdint>

namespace dyc::cuda {

struct Argmax {
  uint32_t* to;  // an index for each node
};

}  // namespace dyc::cuda
