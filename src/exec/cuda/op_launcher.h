// Launches of all ops but matrix products, forward and backward.
#pragma once
#include <vector>

#include "exec/cuda/follower_launcher.h"
#include "exec/cuda/launch_encoder.h"
#include "exec/cuda/parameter_sync.h"

namespace dyc {

class OpLauncher {
 public:
  OpLauncher(CudaContext& context, LaunchEncoder& encoder, GradientReducer& reducer,
             ParameterSync& parameters, FollowerLauncher& followers)
      : c_(context), encoder_(encoder), reducer_(reducer), parameters_(parameters), followers_(followers) {}

  void forward(const Launch& l);
  // What is added to rows of tables is appended to `rows`.
  void backward(const Launch& l, std::vector<RowGradient>& rows);

 private:
  void forward_lookup(const Launch& l);
  void forward_parameter(const Launch& l);
  void backward_elementwise(const Launch& l);
  void backward_per_node(const Launch& l);
  void backward_lists(const Launch& l);
  void backward_custom(const Launch& l);
  void backward_lookup(const Launch& l, std::vector<RowGradient>& rows);

  // Operands of backward kernels, all without a gradient.
  CommandList::Array<GradientOperand> gradient_operands(const Launch& l);
  GradientOperand gradient_operand(const Launch& l, uint32_t k, const GradientRange* targets);
  std::vector<GradientRange> targets_of(const Launch& l, uint32_t k) const;
  bool is_regular(const Launch& l, uint32_t k) const;
  void note_added(const Launch& l, uint32_t k, size_t first);
  void note_sliced(const Launch& l, bool backward, uint32_t first, uint32_t end);

  CudaContext& c_;
  LaunchEncoder& encoder_;
  GradientReducer& reducer_;
  ParameterSync& parameters_;
  FollowerLauncher& followers_;
};

}  // namespace dyc
