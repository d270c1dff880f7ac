// Floats of the device that other libraries read and write, too: gradients that ranks of a job exchange
// (dynet_compat/distributed/nccl.py).
#pragma once
#include <memory>
#include <span>

#include "base/storage.h"
#include "exec/cuda/cuda_device.h"

namespace dyc {

class DeviceFloats {
 public:
  // Zeros. Throws RuntimeError where the process computes on the CPU.
  explicit DeviceFloats(size_t n);

  cuda::Backend::Address address() const { return memory_->address(); }
  const std::shared_ptr<DeviceMemory>& memory() const { return memory_; }
  size_t size() const { return n_; }
  // The gradients of these, one after the other, zeros where there is none. Any stream may read them
  // afterwards. Throws ValueError where they are more.
  void take(std::span<const std::shared_ptr<Storage>> storages);
  // The reverse. What other streams write must be there.
  void put(std::span<const std::shared_ptr<Storage>> storages) const;

 private:
  void check_size(std::span<const std::shared_ptr<Storage>> storages) const;

  CudaDevice& device_;
  const size_t n_;
  std::shared_ptr<DeviceMemory> memory_;
};

}  // namespace dyc
