// The kernel of kernels/walk.cu, for the host: steps run the other kernels of the table.
#include "cuda/emulation/device.h"

#include "cuda/kernels/persistent.cu"

namespace dyc::cuda {

namespace {

__global__ void persistent(const LaunchArgs* record) {
  run_steps(*record, [](const PersistentStep& step) {
    const LaunchArgs* mine = step.args;
    void* args[] = {&mine};
    reinterpret_cast<emulation::Run>(step.kernel)(args);
  });
}

const emulation::Source kSource([](emulation::Kernels& to) {
  to.push_back({"persistent", "persistent<>", emulation::run<persistent>});
});

}  // namespace

}  // namespace dyc::cuda
