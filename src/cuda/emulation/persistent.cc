// The kernel of kernels/persistent.cu, for the host: one that has every kernel body.
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

constexpr uint32_t kIds = dyc::kOps * kPasses + kLastPersistent + 1;
constexpr uint32_t kBodies = [] {
  uint32_t n = 0;
  for (uint32_t id = 0; id < kIds; ++id) n += can_run(id);
  return n;
}();
struct Ids {
  uint32_t at[kBodies] = {};
  constexpr Ids() {
    for (uint32_t id = 0, n = 0; id < kIds; ++id)
      if (can_run(id)) at[n++] = id;
  }
};
constexpr Ids kAll;

template <size_t... i>
constexpr emulation::Run with_all(std::index_sequence<i...>) {
  return emulation::run<persistent<kAll.at[i]...>>;
}

const emulation::Registration kSource([](emulation::Kernels& to) {
  to.push_back({"persistent", "persistent<>", with_all(std::make_index_sequence<kBodies>())});
});

}  // namespace

}  // namespace dyc::cuda
