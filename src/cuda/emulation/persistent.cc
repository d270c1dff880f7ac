// The kernels of kernels/persistent.cu, for the host: with every kernel body.
#include "cuda/emulation/device.h"

#include "cuda/kernels/persistent.cu"

namespace dyc::cuda {

namespace {

template <class Op>
constexpr bool has_pass(uint32_t pass) {
  if (Op::meta.kind == OpKind::unary) return pass <= kBackward;
  if (Op::meta.kind == OpKind::binary) return true;
  return Op::meta.kind == OpKind::per_node && (pass == kForward || (pass == kBackward && !Op::meta.nondiff));
}

constexpr bool can_run(uint32_t kernel_id) {
  if (kernel_id >= dyc::kOps * kPasses) return true;
  return []<class... Ops>(OpList<Ops...>, uint32_t id) {
    return ((op_id<Ops> == id / kPasses && has_pass<Ops>(id % kPasses)) || ...);
  }(AllOps{}, kernel_id);
}

// Those of op * kPasses + pass, and of the others that are numbered after these.
template <uint32_t others>
struct Ids {
  static constexpr uint32_t kEnd = dyc::kOps * kPasses + others;
  static constexpr uint32_t kCount = [] {
    uint32_t n = 0;
    for (uint32_t id = 0; id < kEnd; ++id) n += can_run(id);
    return n;
  }();
  uint32_t at[kCount] = {};
  constexpr Ids() {
    for (uint32_t id = 0, n = 0; id < kEnd; ++id)
      if (can_run(id)) at[n++] = id;
  }
};
constexpr Ids<kLastPersistent + 1> kSteps;
constexpr Ids<0> kLinks;

template <size_t... i>
constexpr emulation::Run with_all_steps(std::index_sequence<i...>) {
  return emulation::run<persistent<kSteps.at[i]...>>;
}
template <size_t... i>
constexpr emulation::Run with_all_links(std::index_sequence<i...>) {
  return emulation::run<chain<kLinks.at[i]...>>;
}

const emulation::Registration kSource([](emulation::Kernels& to) {
  to.push_back({"persistent", "persistent<>", with_all_steps(std::make_index_sequence<kSteps.kCount>())});
  to.push_back({"persistent", "chain<>", with_all_links(std::make_index_sequence<kLinks.kCount>())});
});

}  // namespace

}  // namespace dyc::cuda
