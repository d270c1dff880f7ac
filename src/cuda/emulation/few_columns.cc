// The kernels of kernels/few_columns.cu, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/few_columns.cu"

namespace dyc::cuda {

namespace {

const emulation::Registration kSource([](emulation::Kernels& to) {
  to.push_back({"few_columns", "few_columns<true>", emulation::run<few_columns<true>>});
  to.push_back({"few_columns", "few_columns<false>", emulation::run<few_columns<false>>});
});

}  // namespace

}  // namespace dyc::cuda
