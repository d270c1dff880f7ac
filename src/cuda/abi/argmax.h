// What LaunchArgs::extra is for kernels/argmax.cu.
#pragma once
#include <cstdint>

namespace dyc::cuda {

struct Argmax {
  uint32_t* to;  // an index for each member
};

}  // namespace dyc::cuda
