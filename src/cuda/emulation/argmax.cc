// The kernels of kernels/argmax.cu, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/argmax.cu"

namespace dyc::cuda {

namespace {

const emulation::Registration kSource([](emulation::Kernels& to) {
  to.push_back({"argmax", "argmax", emulation::run<argmax>});
});

}  // namespace

}  // namespace dyc::cuda
