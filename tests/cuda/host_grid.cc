// Runs kernels of src/cuda/kernels on the host, thread after thread. test_kernels_on_host.py compiles this
// with a cuda/std.h of its own, which includes the C++ library, and calls the functions below.
#define __global__

struct GridIndex {
  unsigned x;
};
static GridIndex blockIdx, threadIdx;
static const GridIndex blockDim{4}, gridDim{3};

#include "cuda/kernels/elementwise.cu"

using namespace dyc;
using namespace dyc::cuda;

namespace {

using In = const Place<const float>&;
using Out = const Place<float>&;

template <class Kernel>
void for_each_thread(Kernel kernel) {
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel();
}

}  // namespace

#define UNARY(name, Op)                                                                                   \
  extern "C" void name##_forward(In x, float* y, const Extents& results, const Attrs& a) {                \
    for_each_thread([&] { unary_forward<Op>(x, y, results, a); });                                        \
  }                                                                                                       \
  extern "C" void name##_backward(In x, const float* y, const float* dy, Out dx, const Extents& results,  \
                                  const Attrs& a) {                                                       \
    for_each_thread([&] { unary_backward<Op>(x, y, dy, dx, results, a); });                               \
  }

#define BINARY_BACKWARD(name, Op, arg)                                                                    \
  extern "C" void name##_backward_##arg(In x, In y, const float* z, const float* dz, Out g,               \
                                        const Extents& results, const Extents& own, const Axes* axes,     \
                                        bool each_own, const Attrs& a) {                                  \
    for_each_thread([&] { binary_backward<Op, arg>(x, y, z, dz, g, results, own, axes, each_own, a); });  \
  }
#define BINARY(name, Op)                                                                                  \
  extern "C" void name##_forward(In x, In y, float* z, const Extents& results, const Axes* axes,          \
                                 bool each_own, const Attrs& a) {                                         \
    for_each_thread([&] { binary_forward<Op>(x, y, z, results, axes, each_own, a); });                    \
  }                                                                                                       \
  BINARY_BACKWARD(name, Op, 0)                                                                            \
  BINARY_BACKWARD(name, Op, 1)

UNARY(tanh, Tanh)
UNARY(square, Square)
UNARY(elu, Elu)
BINARY(add, Add)
BINARY(cmult, CMult)
BINARY(cdiv, CDiv)
