// The kernel of kernels/persistent.cu, for the host: steps run the other kernels of the table.
#include "cuda/emulation/device.h"

#include "cuda/kernels/persistent.cu"

namespace dyc::cuda {

namespace {

__global__ void persistent(const LaunchArgs* args) {
  run_steps(*args, [](const PersistentStep& step) {
    const LaunchArgs* mine = step.args;
    void* arguments[] = {&mine};
    reinterpret_cast<emulation::Run>(step.kernel)(arguments);
  });
}

const emulation::Registration kSource([](emulation::Kernels& to) {
  to.push_back({"persistent", "persistent<>", emulation::run<persistent>});
});

}  // namespace

}  // namespace dyc::cuda
