// The kernels of kernels/matmul.cu, for the host.
#include "cuda/emulation_device.h"

#include "cuda/kernels/matmul.cu"

namespace dyc::cuda {

namespace {

template <bool AInner, bool BInner, int Threads>
void add(emulation::Kernels& to) {
  const auto word = [](bool b) { return b ? "true, " : "false, "; };
  to.push_back({"matmul",
                std::string("product<") + word(AInner) + word(BInner) + std::to_string(Threads) + ">",
                emulation::run<product<AInner, BInner, Threads>>});
}

const emulation::Source kSource([](emulation::Kernels& to) {
  add<true, false, 8>(to);
  add<false, false, 8>(to);
  add<true, true, 8>(to);
});

}  // namespace

}  // namespace dyc::cuda
