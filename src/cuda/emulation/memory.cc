// The kernels of kernels/memory.cu, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/memory.cu"

namespace dyc::cuda {

namespace {

const emulation::Registration kSource([](emulation::Kernels& to) {
  to.push_back({"memory", "add_few", emulation::run<add_few>});
  to.push_back({"memory", "add_many", emulation::run<add_many>});
  to.push_back({"memory", "gather", emulation::run<gather>});
});

}  // namespace

}  // namespace dyc::cuda
