#include "exec/cuda/launch_strategy.h"

#include <algorithm>

#include "exec/cuda/launch_encoder.h"

namespace dyc {

ValueOperand LaunchStrategy::operand(LaunchEncoder& encoder, const Launch& l, uint32_t k) const {
  return encoder.operand(l, encoder.context().launches.operand(l, k), encoder.context().values());
}

namespace {

class UnfusedBaseline final : public LaunchStrategy {
 public:
  ValueOperand operand(LaunchEncoder& encoder, const Launch& l, uint32_t k) const override {
    const ValueOperand in_place = LaunchStrategy::operand(encoder, l, k);
    const Operand& o = encoder.context().launches.operand(l, k);
    if (o.kind == Operand::contiguous || o.kind == Operand::shared || l.count == 1) return in_place;
    return gathered(encoder, in_place, encoder.sizes(l, LaunchEncoder::kResult), encoder.sizes(l, k));
  }

  void operand_lists(LaunchEncoder& encoder, const Launch& l, const float** lists,
                     uint32_t n) const override {
    if (l.count == 1 || n == 0) return;
    CudaContext& c = encoder.context();
    const auto offsets = c.commands.array<int64_t>(n), starts = c.commands.array<int64_t>(size_t{n} + 1);
    cuda::NodeSizes own{};
    uint32_t k = 0;
    starts[0] = 0;
    for (uint32_t i = 0; i < l.count; ++i)
      for (const Dim* d : c.launches.item(l, i).sig->x) {
        offsets[k] = lists[k] - c.values();
        starts[k + 1] = starts[k] + static_cast<int64_t>(d->size());
        own.largest = std::max<int64_t>(own.largest, d->size());
        ++k;
      }
    own.count = n;
    own.starts = starts.device;
    own.total = starts[n];
    const ValueOperand from{c.values(), offsets.device, 0, ValueOperand::indexed, false};
    const ValueOperand to = gathered(encoder, from, own, own);
    for (k = 0; k < n; ++k) lists[k] = to.base + starts[k];
  }

  cuda::Matrix<const float> columns(LaunchEncoder& encoder, const cuda::Matrix<const float>& m, int64_t rows,
                                    int64_t count) const override {
    if (!m.index && (m.stride == 0 || m.stride == rows)) return m;
    return encoder.gathered_columns(m, rows, count);
  }

  bool syncs_always() const override { return true; }
  bool copies_gradients() const override { return true; }
  bool defers_weight_gradients() const override { return false; }

 private:
  static ValueOperand gathered(LaunchEncoder& encoder, const ValueOperand& from,
                               const cuda::NodeSizes& results, const cuda::NodeSizes& own) {
    CudaContext& c = encoder.context();
    const size_t bytes = static_cast<size_t>(own.total) * sizeof(float);
    float* const to = static_cast<float*>(c.commands.uninitialised(bytes));
    encoder.gather(to, from, results, own);
    c.counters.gathered_bytes += bytes;
    if (own.starts) return {to, own.starts, 0, ValueOperand::indexed, false};
    return {to, nullptr, own.size, ValueOperand::contiguous, false};
  }
};

}  // namespace

const LaunchStrategy& launch_strategy(const DeviceOptions& options) {
  static const LaunchStrategy in_place;
  static const UnfusedBaseline unfused;
  return options.unfused ? static_cast<const LaunchStrategy&>(unfused) : in_place;
}

}  // namespace dyc
