// Indices of the largest elements of results, found on the device: for all nodes of a launch at once, as
// those of the others are asked for next.
#pragma once
#include <vector>

#include "exec/cuda/launch_encoder.h"

namespace dyc {

class DeviceArgmax {
 public:
  DeviceArgmax(CudaContext& context, LaunchEncoder& encoder);

  // The node of the launch whose result has this offset; kNone: its index is not found here.
  uint32_t node_at(uint32_t launch, int64_t offset) const;
  bool is_known(uint32_t launch) const { return !largest_[launch].empty(); }
  uint32_t index(uint32_t launch, uint32_t node) const { return largest_[launch][node]; }

  // Adds the kernel to the commands; and, once these were submitted, reads what it found.
  void find(uint32_t launch);
  void download(uint32_t launch);
  void give_up() { works_ = false; }  // no memory, or no kernel
  void ran(uint32_t begin, uint32_t end);

 private:
  CudaContext& c_;
  LaunchEncoder& encoder_;
  DeviceMemory memory_;
  std::vector<std::vector<uint32_t>> largest_;  // per launch, if asked for
  bool works_ = true;
};

}  // namespace dyc
