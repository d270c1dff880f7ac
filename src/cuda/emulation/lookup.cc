// The kernels of kernels/lookup.cu, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/lookup.cu"

namespace dyc::cuda {

namespace {

const emulation::Registration kSource([](emulation::Kernels& to) {
  to.push_back({"lookup", "lookup_forward", emulation::run<lookup_forward>});
});

}  // namespace

}  // namespace dyc::cuda
