// Launches of matrix products and affine transforms, forward and backward.
#pragma once
#include <vector>

#include "exec/cuda/follower_launcher.h"
#include "exec/cuda/matmul_dispatcher.h"
#include "exec/cuda/parameter_sync.h"

namespace dyc {

class MatmulLauncher {
 public:
  MatmulLauncher(CudaContext& context, LaunchEncoder& encoder, GradientReducer& reducer,
                 ParameterSync& parameters, DeferredGradients& deferred, FollowerLauncher& followers)
      : c_(context),
        encoder_(encoder),
        reducer_(reducer),
        parameters_(parameters),
        deferred_(deferred),
        followers_(followers),
        dispatcher_(context, encoder, reducer) {}

  void forward(const Launch& l);
  void backward(const Launch& l);  // weight gradients are collected
  // Adds collected gradients, whose targets are disjoint, and forgets them.
  void add_weight_gradients(const std::vector<DeferredGradient*>& deferred);
  void add_all_weight_gradients();

 private:
  using Columns = LaunchReader::Columns;
  template <class F>
  cuda::Matrix<F> matrix(const Columns& c, F* base);
  cuda::Matrix<const float> matrix_of(const std::vector<int64_t>& offsets, const float* base);
  static MemoryRange access(const Columns& c, const float* arena, int64_t rows, int64_t period, bool writes);

  const float* node_value(const Launch& l, const Operand& o, uint32_t i);  // an argument of node i
  void forward_columns(const Launch& l);
  void add_node_products(const Launch& l, uint32_t i, ProductList& list);
  void backward_columns(const Launch& l);
  static AddedColumns added_columns(const Columns& dx, int64_t rows, const Columns& dy, int64_t m);
  void add_biases(const Columns& db, const Columns& dy, int64_t m);
  void backward_operand(const Operand& w, int64_t m, int64_t inner, const Columns& dy,
                        const cuda::Matrix<const float>& dym, const Columns& x);
  struct Sum {  // adds a term to an m x n gradient
    GradientRange target;
    int64_t m, n;
    cuda::Term term;
  };
  void backward_nodes(const Launch& l);
  void collect_node(const Launch& l, uint32_t i, std::vector<Sum>& of_w, std::vector<Sum>& of_x,
                    std::vector<Addition>& of_b);
  void launch_sums(std::vector<Sum>& sums, cuda::ProductKind kind);

  CudaContext& c_;
  LaunchEncoder& encoder_;
  GradientReducer& reducer_;
  ParameterSync& parameters_;
  DeferredGradients& deferred_;
  FollowerLauncher& followers_;
  MatmulDispatcher dispatcher_;
};

}  // namespace dyc
