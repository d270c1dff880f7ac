// The kernels of kernels/updates.cu, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/updates.cu"

namespace dyc::cuda {

namespace {

template <uint32_t... number>
void add_rules(emulation::Kernels& to, std::integer_sequence<uint32_t, number...>) {
  const auto add = [&](uint32_t n, const char* active, emulation::Run run) {
    to.push_back({"updates", "update<" + std::to_string(n) + ", " + active + ">", run});
  };
  (add(number, "true", emulation::run<update<number, true>>), ...);
  (add(number, "false", emulation::run<update<number, false>>), ...);
}

const emulation::Registration kSource([](emulation::Kernels& to) {
  add_rules(to, std::make_integer_sequence<uint32_t, kUpdateRules>());
  to.push_back({"updates", "normalise", emulation::run<normalise>});
  to.push_back({"updates", "squares", emulation::run<squares>});
  to.push_back({"updates", "total", emulation::run<total>});
});

}  // namespace

}  // namespace dyc::cuda
