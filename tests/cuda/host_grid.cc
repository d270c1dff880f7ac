// Runs kernels of src/cuda/kernels on the host, thread after thread. test_kernels_on_host.py compiles this
// and calls the functions below.
#include "cuda/emulation/device.h"

#include "cuda/kernels/elementwise.cu"

using namespace dyc;
using namespace dyc::cuda;

namespace {

using In = const DeviceOperand<const float>&;
using Out = const DeviceOperand<float>&;
using Words = const uint32_t*;

template <class Kernel>
void for_each_thread(Kernel kernel, const LaunchArgs& record) {
  blockDim.x = 4;
  gridDim.x = 3;
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(&record);
}

// A launch of a row with one or two arguments.
struct Call {
  Shape shape{};
  DeviceOperand<const float> x[2]{};
  DeviceOperand<float> dx[2]{};
  LaunchArgs record;

  Call(const NodeSizes& results, Words attrs, const float* y, const float* dy, In x0,
       const DeviceOperand<const float>* x1 = nullptr) {
    shape.attrs = attrs;
    x[0] = x0;
    if (x1) x[1] = *x1;
    record.count = results.count;
    record.n = x1 ? 2 : 1;
    record.full = true;
    record.results = results;
    record.y = const_cast<float*>(y);
    record.dy = const_cast<float*>(dy);
    record.shape = &shape;
    record.x = x;
    record.dx = dx;
  }
};

}  // namespace

#define UNARY(name, Op)                                                                                  \
  extern "C" void name##_forward(In x, float* y, const NodeSizes& results, Words a) {                      \
    for_each_thread(unary_forward<Op>, Call(results, a, y, nullptr, x).record);                          \
  }                                                                                                      \
  extern "C" void name##_backward(In x, const float* y, const float* dy, Out dx, const NodeSizes& results, \
                                  Words a) {                                                             \
    Call call(results, a, y, dy, x);                                                                     \
    call.dx[0] = dx;                                                                                     \
    for_each_thread(unary_backward<Op>, call.record);                                                    \
  }

#define BINARY_BACKWARD(name, Op, arg)                                                                \
  extern "C" void name##_backward_##arg(In x, In y, const float* z, const float* dz, Out g,           \
                                        const NodeSizes& results, const NodeSizes& own, const Axes* axes, \
                                        bool each_own, Words a) {                                     \
    Call call(results, a, z, dz, x, &y);                                                              \
    call.dx[arg] = g;                                                                                 \
    call.record.axes = axes;                                                                          \
    call.record.each_own = each_own;                                                                  \
    call.record.own = own;                                                                            \
    for_each_thread(binary_backward<Op, arg>, call.record);                                           \
  }
#define BINARY(name, Op)                                                                         \
  extern "C" void name##_forward(In x, In y, float* z, const NodeSizes& results, const Axes* axes, \
                                 bool each_own, Words a) {                                       \
    Call call(results, a, z, nullptr, x, &y);                                                    \
    call.record.axes = axes;                                                                     \
    call.record.each_own = each_own;                                                             \
    for_each_thread(binary_forward<Op>, call.record);                                            \
  }                                                                                              \
  BINARY_BACKWARD(name, Op, 0)                                                                   \
  BINARY_BACKWARD(name, Op, 1)

UNARY(tanh, Tanh)
UNARY(square, Square)
UNARY(elu, Elu)
BINARY(add, Add)
BINARY(cmult, CMult)
BINARY(cdiv, CDiv)
