// The kernels of kernels/matmul.cu, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/matmul.cu"

namespace dyc::cuda {

namespace {

const emulation::Registration kSource([](emulation::Kernels& to) {
  to.push_back({"matmul", "product<true, false>", emulation::run<product<true, false>>});
  to.push_back({"matmul", "product<false, false>", emulation::run<product<false, false>>});
  to.push_back({"matmul", "product<true, true>", emulation::run<product<true, true>>});
});

}  // namespace

}  // namespace dyc::cuda
