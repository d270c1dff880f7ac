// The kernels of kernels/persistent_weights.cu, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/persistent_weights.cu"

namespace dyc::cuda {

namespace {

const emulation::Registration kSource([](emulation::Kernels& to) {
  to.push_back({"persistent_weights", "persistent_product<true>", emulation::run<persistent_product<true>>});
  to.push_back(
      {"persistent_weights", "persistent_product<false>", emulation::run<persistent_product<false>>});
});

}  // namespace

}  // namespace dyc::cuda
