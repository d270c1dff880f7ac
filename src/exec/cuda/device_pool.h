// Memory for the launches of one submission, taken piece by piece and reused after reset().
#pragma once
#include <memory>
#include <vector>

#include "exec/cuda/cuda_device.h"

namespace dyc {

// Memory of the device alone.
class DevicePool {
 public:
  DevicePool(cuda::Backend& backend, const char* name) : backend_(backend), name_(name) {}

  cuda::Backend::Address take(size_t bytes);
  // f(address, bytes) for what was taken.
  template <class F>
  void each_used(F f) const {
    for (const Chunk& c : chunks_)
      if (c.used) f(c.memory->address(), c.used);
  }
  void reset();

 private:
  struct Chunk {
    std::unique_ptr<DeviceMemory> memory;
    size_t used = 0;
  };
  cuda::Backend& backend_;
  const char* name_;
  std::vector<Chunk> chunks_;
};

// Memory of the host with a counterpart on the device, to which upload() copies it.
class UploadPool {
 public:
  explicit UploadPool(cuda::Backend& backend) : backend_(backend) {}

  struct Allocation {
    char* host;
    cuda::Backend::Address device;
  };
  Allocation take(size_t bytes);
  void upload();
  void reset();

 private:
  struct Chunk {
    std::unique_ptr<char[]> host;
    std::unique_ptr<DeviceMemory> memory;
    size_t size = 0, used = 0;
  };
  cuda::Backend& backend_;
  std::vector<Chunk> chunks_;
};

}  // namespace dyc
