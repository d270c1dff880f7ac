// The CUDA device of the process: what the executors of all threads share.
#pragma once
#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/storage.h"
#include "cuda/backend.h"
#include "ops/table.h"

namespace dyc {

// Memory of the device that grows, and is given back when this goes.
class DeviceMemory {
 public:
  // `name`: what messages call it.
  DeviceMemory(cuda::Backend& backend, const char* name) : backend_(backend), name_(name) {}
  ~DeviceMemory() { backend_.release(address_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  cuda::Backend::Address address() const { return address_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  T* at() const {
    return reinterpret_cast<T*>(address_);
  }
  // At least so many bytes, of which the first `kept` are those there were. Throws MemoryError.
  void reserve(size_t bytes, size_t kept);

 private:
  cuda::Backend& backend_;
  const char* name_;
  cuda::Backend::Address address_ = 0;
  size_t bytes_ = 0;
};

class CudaDevice {
 public:
  explicit CudaDevice(std::unique_ptr<cuda::Backend> backend);

  cuda::Backend& backend() { return *backend_; }
  // Held by whoever uses the rest.
  std::unique_lock<std::mutex> lock() {
    take(mutex_);
    return std::unique_lock(mutex_, std::adopt_lock);
  }
  static inline void (*take)(std::mutex&) = [](std::mutex& m) { m.lock(); };

  // ---- kernels, by number
  uint32_t number_of(const cuda::KernelName& name);
  enum Way { forward, backward, backward_second };  // of the second argument of a binary row
  uint32_t number_of(OpId op, Way way);
  // Compiles those of them that are not there yet, all at once.
  void prepare(const std::vector<uint32_t>& kernels);
  cuda::Backend::Kernel kernel(uint32_t number) const { return kernels_[number].kernel; }
  uint32_t threads() const { return threads_; }          // of a block
  uint32_t most_blocks() const { return most_blocks_; }  // of a grid that needs no more
  // Threads along a side of the blocks that make tiles of products.
  uint32_t tile_side() const { return threads_ >= 256 ? 16 : 8; }

  // ---- parameters
  // Values of a Storage, on the device until launches_submitted(). `stamp` and `factor` tell what they are.
  const float* parameter(const std::shared_ptr<Storage>& storage, const float* values, uint64_t stamp,
                         float factor);
  void launches_submitted() { ++turn_; }
  // Copies of parameters that exist no more are given back.
  void forget_parameters();

 private:
  struct Kernel {
    cuda::KernelName name;
    cuda::Backend::Kernel kernel = nullptr;
  };
  struct Copy {
    std::unique_ptr<DeviceMemory> memory;
    uint64_t stamp = 0;
    float factor = 1.f;
    uint64_t turn = 0;  // it was last asked for in
  };
  struct Copies {
    std::weak_ptr<Storage> storage;
    std::vector<Copy> list;
  };
  std::mutex mutex_;
  const std::unique_ptr<cuda::Backend> backend_;
  const uint32_t threads_, most_blocks_;
  std::vector<Kernel> kernels_;
  std::vector<std::array<uint32_t, 3>> rows_;  // by OpId and Way
  std::unordered_map<uint32_t, Copies> copies_;  // by uid
  size_t copies_expected_ = 64;
  uint64_t turn_ = 1;
};

}  // namespace dyc
