// Arrays of other libraries, of any layout and type of numbers.
#include "cuda/device/prelude.h"

#include "cuda/abi/exchange.h"
#include "cuda/abi/launch_args.h"
#include "cuda/device/worker.h"

namespace dyc::cuda {

DYC_INLINE float float_of(uint32_t bits) {
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}

DYC_INLINE float float_of_half(uint32_t h) {
  const uint32_t sign = (h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return float_of(sign | 0x7f800000 | mantissa << 13);
  if (exponent) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
  const float small = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
  return sign ? -small : small;
}

template <class T>
DYC_INLINE float read_as(const char* p) {
  return static_cast<float>(*reinterpret_cast<const T*>(p));
}

__device__ inline float number_at(const char* p, ElementType type) {
  switch (type) {
    case ElementType::boolean:
      return *reinterpret_cast<const uint8_t*>(p) ? 1.f : 0.f;
    case ElementType::int8:
      return read_as<int8_t>(p);
    case ElementType::int16:
      return read_as<int16_t>(p);
    case ElementType::int32:
      return read_as<int32_t>(p);
    case ElementType::int64:
      return read_as<int64_t>(p);
    case ElementType::uint8:
      return read_as<uint8_t>(p);
    case ElementType::uint16:
      return read_as<uint16_t>(p);
    case ElementType::uint32:
      return read_as<uint32_t>(p);
    case ElementType::uint64:
      return read_as<uint64_t>(p);
    case ElementType::float16:
      return float_of_half(*reinterpret_cast<const uint16_t*>(p));
    case ElementType::bfloat16:
      return float_of(uint32_t{*reinterpret_cast<const uint16_t*>(p)} << 16);
    case ElementType::float64:
      return read_as<double>(p);
    default:
      return read_as<float>(p);
  }
}

__device__ inline void run_take_array(const LaunchArgs& r, const Worker& w) {
  const ForeignArray a = extra_of<ForeignArray>(r);
  for (int64_t i = w.thread; i < a.total; i += w.threads) {
    const char* p = static_cast<const char*>(a.from);
    int64_t rest = i;
    for (uint32_t k = 0; k < a.axes; ++k) {
      p += rest % a.sizes[k] * a.strides[k];
      rest /= a.sizes[k];
    }
    const float v = number_at(p, a.type) * a.scale;
    a.to[i] = a.add ? a.to[i] + v : v;
  }
}

__global__ void take_array(const LaunchArgs* args) { run_take_array(*args, Worker()); }

}  // namespace dyc::cuda
