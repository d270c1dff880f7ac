// The kernel of kernels/walk.cu, for the host: steps run the other kernels of the table.
#include "cuda/emulation/device.h"

#include "cuda/kernels/persistent.cu"

namespace dyc::cuda {

namespace {

__global__ void walk(const Record* record) {
  run_walk(*record, [](const Step& step) {
    const Record* mine = step.record;
    void* args[] = {&mine};
    reinterpret_cast<emulation::Run>(step.kernel)(args);
  });
}

const emulation::Source kSource([](emulation::Kernels& to) {
  to.push_back({"persistent", "walk<>", emulation::run<walk>});
});

}  // namespace

}  // namespace dyc::cuda
