// How launches read operands and add to gradients. The ordinary strategy reads operands in place, adds in
// place what does not overlap and collects weight gradients. The other is DyNet's, as a baseline for
// benchmarks/gpu.py: a launch for each operand that is not contiguous copies it, what is added to its
// gradient is collected in another buffer first, weight gradients are computed at once, and launches are
// never joined.
#pragma once
#include "cuda/abi/operands.h"
#include "cuda/abi/products.h"
#include "exec/device_options.h"
#include "exec/launch_reader.h"

namespace dyc {

class LaunchEncoder;

class LaunchStrategy {
 public:
  virtual ~LaunchStrategy() = default;
  // Operand k of a launch forward.
  virtual cuda::DeviceOperand<const float> operand(LaunchEncoder& encoder, const Launch& l, uint32_t k) const;
  // The n operands of nodes that have lists of them, at `lists`.
  virtual void operand_lists(LaunchEncoder&, const Launch&, const float** /*lists*/, uint32_t /*n*/) const {}
  // An operand of a matrix product: `count` columns of so many rows.
  virtual cuda::Matrix<const float> columns(LaunchEncoder&, const cuda::Matrix<const float>& m,
                                            int64_t /*rows*/, int64_t /*count*/) const {
    return m;
  }
  // Every launch waits for the one before it.
  virtual bool syncs_always() const { return false; }
  // Gradients of operands that are not contiguous go through scratch memory, also those that do not overlap.
  virtual bool copies_gradients() const { return false; }
  virtual bool defers_weight_gradients() const { return true; }
};

const LaunchStrategy& launch_strategy(const DeviceOptions& options);

}  // namespace dyc
