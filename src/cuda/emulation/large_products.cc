// The kernels of kernels/large_products.cu, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/large_products.cu"

namespace dyc::cuda {

namespace {

const emulation::Registration kSource([](emulation::Kernels& to) {
  to.push_back({"large_products", "large_product<true, false>", emulation::run<large_product<true, false>>});
  to.push_back(
      {"large_products", "large_product<false, false>", emulation::run<large_product<false, false>>});
  to.push_back({"large_products", "large_product<true, true>", emulation::run<large_product<true, true>>});
});

}  // namespace

}  // namespace dyc::cuda
