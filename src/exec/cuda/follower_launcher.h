// Element-wise launches that products compute with their results (exec/cuda/product_followers.h).
#pragma once
#include "exec/cuda/cuda_context.h"

namespace dyc {

class FollowerLauncher {
 public:
  explicit FollowerLauncher(CudaContext& context) : c_(context) {}

  // False: it needs a launch of its own.
  bool forward(const Launch& l);
  // The gradient of argument k, which no two nodes share.
  bool backward(const Launch& l, uint32_t k);
  // Adds columns of gradients to others, no two of which overlap.
  bool add_columns(const LaunchReader::Columns& to, const LaunchReader::Columns& dy, int64_t rows);

 private:
  bool may_follow() const;
  bool describe(const Launch& l, FollowingOp& op) const;

  CudaContext& c_;
};

}  // namespace dyc
