// The CUDA device of the process: what the executors of all threads share.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/abi/persistent.h"
#include "cuda/driver/backend.h"
#include "ops/table.h"

namespace dyc {

// Memory of the device that grows, and is given back when this goes.
class DeviceMemory {
 public:
  // `name`: what messages call it. `least`: bytes of the first piece; 0 where there is one per parameter.
  DeviceMemory(cuda::Backend& backend, const char* name, size_t least = size_t{1} << 16)
      : backend_(backend), name_(name), least_(least) {}
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
  const size_t least_;
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

  cuda::Backend& backend() { return *backend_; }
  bool emulated() const { return backend_->limits().architecture == 0; }
  // Held by whoever uses the rest. Throws RuntimeError if this thread has it.
  DeviceLock lock() { return DeviceLock(mutex_); }

  // ---- kernels, by task (cuda/abi/persistent.h)
  static uint32_t kernel_id(OpId op, cuda::Pass variant) { return op * cuda::kPasses + variant; }
  static uint32_t kernel_id(cuda::KernelId other) { return kOps * cuda::kPasses + other; }
  // Can a walk have this task as a step?
  static bool runs_in_persistent(uint32_t kernel_id);
  // Compiles what is not there yet, all at once.
  void prepare(const std::vector<uint32_t>& kernel_ids);
  cuda::Backend::Kernel kernel(uint32_t kernel_id) const { return kernels_[kernel_id]; }

  // ---- kernels that run many launches as one, by their tasks in ascending order
  struct PersistentKernel {
    std::vector<uint32_t> kernel_ids;
    cuda::Backend::Kernel kernel;
    uint32_t blocks;                                            // that fit on the device at the same time
    std::vector<std::pair<size_t, uint32_t>> with_memory = {};  // so many with so many bytes for each
  };
  // Compiles one kernel for those of `walks` that have none. Where that fails they are refused.
  void prepare_persistent(const std::vector<std::vector<uint32_t>>& runs_in_persistent);
  PersistentKernel* persistent_kernel(const std::vector<uint32_t>& kernel_ids);  // null: there is none
  // Do so many blocks with so much dynamic shared memory fit on the device at the same time?
  // Asks the driver once for each size.
  bool fits(PersistentKernel& walk, uint32_t blocks, size_t shared_bytes);
  // Is there a kernel for such a walk, or is one worth making? A compiler takes seconds for it, so the same
  // tasks must have been asked for often enough.
  bool wants_persistent(const std::vector<uint32_t>& kernel_ids);
  // It cannot be made, or cannot be launched: never again in this process. Says so on stderr, once.
  void mark_unsupported(const std::vector<uint32_t>& kernel_ids, const std::string& why);
  static inline uint32_t persistent_after = 0;           // so often; 0: as suits the device
  uint32_t threads() const { return threads_; }          // of a block
  uint32_t most_blocks() const { return most_blocks_; }  // of a grid that needs no more

  CudaParameters& parameters() { return *parameters_; }
  // In a catch block: throws again, and says what becomes of parameters if the device is lost.
  [[noreturn]] void rethrow();

 private:
  void compile_persistent(const std::vector<uint32_t>& kernel_ids);
  struct CompileRequest {  // for a walk that has no kernel yet
    std::vector<uint32_t> kernel_ids;
    uint32_t asked = 0;
  };
  DeviceMutex mutex_;
  const std::unique_ptr<cuda::Backend> backend_;
  const uint32_t threads_, most_blocks_;
  std::vector<cuda::Backend::Kernel> kernels_;  // by task
  std::vector<PersistentKernel> persistent_runs_;
  std::vector<CompileRequest> compile_requests_;
  std::vector<std::vector<uint32_t>> unsupported_;  // tasks of walks
  const std::unique_ptr<CudaParameters> parameters_;
};

}  // namespace dyc
