// The CUDA device of the process: what the executors of all threads share.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/abi/persistent.h"
#include "cuda/driver/backend.h"
#include "exec/cuda/launch_choices.h"
#include "exec/cuda/persistent_kernels.h"
#include "exec/cuda/tuning.h"
#include "exec/device_options.h"
#include "ops/table.h"

namespace dyc {

// Memory of the device that grows, and is released with this object.
class DeviceMemory {
 public:
  // `name`: in messages. `least`: bytes of the first allocation; 0 where there is one per parameter.
  DeviceMemory(cuda::Backend& backend, const char* name, size_t least = kFirstChunk)
      : backend_(backend), name_(name), least_(least) {}
  ~DeviceMemory() { release(); }
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
  // Other libraries read it, on streams of their own.
  void share() { shared_ = true; }
  // Where memory comes from, from now on; null: the backend. With the device's lock.
  static void use_allocator(std::shared_ptr<cuda::Allocator> allocator);

 private:
  void release() noexcept;

  cuda::Backend& backend_;
  const char* name_;
  const size_t least_;
  bool shared_ = false;
  std::shared_ptr<cuda::Allocator> allocator_;  // that this memory is from; null: the backend
  cuda::Backend::Address address_ = 0;
  size_t bytes_ = 0;
};

// A mutex that knows its owner. While kernels compile in Python, a signal handler or __del__ may want what
// its own thread has locked.
class DeviceMutex {
 public:
  void lock();  // throws RuntimeError if this thread has it
  void unlock() {
    owner_ = std::thread::id();
    mutex_.unlock();
  }
  static inline void (*take)(std::mutex&) = [](std::mutex& m) { m.lock(); };

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_;
};

using DeviceLock = std::unique_lock<DeviceMutex>;

class CudaParameters;

class CudaDevice {
 public:
  explicit CudaDevice(std::unique_ptr<cuda::Backend> backend);
  ~CudaDevice();

  DeviceOptions options;
  cuda::Backend& backend() { return *backend_; }
  bool emulated() const { return backend_->limits().architecture == 0; }
  // To be held while the rest is used. Throws RuntimeError if this thread has it.
  DeviceLock lock() { return DeviceLock(mutex_); }

  // ---- kernels, by id (cuda/abi/persistent.h)
  static uint32_t kernel_id(OpId op, cuda::Pass pass) { return op * cuda::kPasses + pass; }
  static uint32_t kernel_id(cuda::KernelId other) { return kOps * cuda::kPasses + other; }
  // Compiles those that are missing, all at once.
  void prepare(const std::vector<uint32_t>& kernel_ids);
  cuda::Backend::Kernel kernel(uint32_t kernel_id) const { return kernels_[kernel_id]; }
  static std::string kernel_name(uint32_t kernel_id);

  PersistentKernels& persistent_kernels() { return persistent_kernels_; }
  PersistentKernels& chain_kernels() { return chain_kernels_; }
  LaunchChoices& choices() { return choices_; }
  uint32_t threads() const { return threads_; }          // of a block
  uint32_t most_blocks() const { return most_blocks_; }  // of a grid that needs no more

  CudaParameters& parameters() { return *parameters_; }
  // In a catch block: rethrows; the message says what becomes of parameters if the device is lost.
  [[noreturn]] void rethrow();

 private:
  DeviceMutex mutex_;
  const std::unique_ptr<cuda::Backend> backend_;
  const uint32_t threads_, most_blocks_;
  std::vector<cuda::Backend::Kernel> kernels_;  // by id
  PersistentKernels persistent_kernels_, chain_kernels_;
  LaunchChoices choices_;
  const std::unique_ptr<CudaParameters> parameters_;
};

}  // namespace dyc
