// Describes launches as kernels read them: a Launch of the plan becomes LaunchArgs, with offsets turned into
// addresses and all tables put into the memory that is uploaded with the commands.
#pragma once
#include <vector>

#include "cuda/abi/launch_args.h"
#include "exec/cuda/cuda_context.h"

namespace dyc {

class LaunchEncoder {
 public:
  explicit LaunchEncoder(CudaContext& context) : c_(context) {}
  CudaContext& context() { return c_; }

  cuda::LaunchArgs encode(const Launch& l, bool backward);
  void encode_results(const Launch& l, cuda::LaunchArgs& args);
  void encode_axes(const Launch& l, cuda::LaunchArgs& args);  // of binary ops that broadcast
  static constexpr uint32_t kResult = kNone;                  // in place of an argument's number
  cuda::NodeSizes sizes(const Launch& l, uint32_t arg);
  cuda::NodeSizes sizes(uint32_t count, int64_t size);  // of nodes that are alike
  ValueOperand operand(const Launch& l, const Operand& o, const float* arena);

  // Launches a copy of each node's argument, without gaps, to `to`.
  void gather(float* to, const ValueOperand& from, const cuda::NodeSizes& results,
              const cuda::NodeSizes& own);
  void gather_columns(float* to, const cuda::Matrix<const float>& m, int64_t rows, int64_t columns);
  // The same to memory of its own. Throws MemoryError.
  cuda::Matrix<const float> gathered_columns(const cuda::Matrix<const float>& m, int64_t rows,
                                             int64_t columns);

  // The plan's index was cut back: what was uploaded of it may be of another launch.
  void forget_index() { index_host_ = index_device_ = nullptr; }
  // The commands were submitted: nothing is in their memory any more.
  void forget();

 private:
  void encode_arguments(const Launch& l, cuda::LaunchArgs& args, bool backward);
  void encode_lists(const Launch& l, cuda::LaunchArgs& args, bool backward);
  void encode_shapes(const Launch& l, cuda::LaunchArgs& args);
  void encode_ids(const Launch& l, cuda::LaunchArgs& args);
  void encode_scratch(const Launch& l, cuda::LaunchArgs& args);
  const cuda::Shape* put_shape(const Sig& sig);
  const cuda::Shape* shape_of(uint32_t sig);

  CudaContext& c_;
  std::vector<const cuda::Shape*> shapes_;  // by signature: already in the upload
  std::vector<uint32_t> shapes_put_;        // signatures in shapes_
  const int64_t* index_host_ = nullptr;  // the last index array that was put, and its address on the device
  const int64_t* index_device_ = nullptr;
};

}  // namespace dyc
