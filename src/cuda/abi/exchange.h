// LaunchArgs::extra of kernels/exchange.cu: an array of another library, anywhere on the device.
#pragma once
#include <cstdint>

namespace dyc::cuda {

enum class ElementType : uint32_t {
  boolean,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
};

struct ForeignArray {
  static constexpr uint32_t kMostAxes = 8;
  const void* from;  // the element with all indices 0
  ElementType type;
  uint32_t axes;
  int64_t sizes[kMostAxes], strides[kMostAxes];  // strides in bytes; the first axis is the fastest in `to`
  int64_t total;
  float* to;
  float scale = 1.f;  // of what is read
  bool add = false;   // to what is there
};

}  // namespace dyc::cuda
