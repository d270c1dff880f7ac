// Launches for the device, collected: everything that they read goes up in one piece of memory, then they
// run one after the other.
#pragma once
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/record.h"
#include "exec/cuda_device.h"

namespace dyc {

// Pieces of memory, handed out one after the other until reset().
class DevicePool {
 public:
  DevicePool(cuda::Backend& backend, const char* name) : backend_(backend), name_(name) {}

  cuda::Backend::Address take(size_t bytes);
  // f(address, bytes) for what was handed out.
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

class CudaBatch {
 public:
  // `joins`: many small launches may become one.
  explicit CudaBatch(CudaDevice& device, bool joins = true)
      : device_(device),
        joins_(joins),
        scratch_(device.backend(), "scratch"),
        room_(device.backend(), "scratch") {}

  // ---- memory that goes up with the launches. Addresses are those on the device.
  // Room for n elements, to be filled by the caller.
  template <class T>
  struct Room {
    T* host;
    T* device;
    size_t n;
    T& operator[](size_t i) const { return host[i]; }
  };
  template <class T>
  Room<T> room(size_t n) {
    const Place p = take(n * sizeof(T));
    return {reinterpret_cast<T*>(p.host), reinterpret_cast<T*>(p.device), n};
  }
  template <class T>
  const T* put(const T* from, size_t n) {
    const Room<T> r = room<T>(n);
    if (n) std::memcpy(static_cast<void*>(r.host), from, n * sizeof(T));
    return r.device;
  }
  template <class T>
  const T* put(const std::vector<T>& from) {
    return put(from.data(), from.size());
  }

  // ---- memory of the device alone, for these launches. Zero when they begin; or arbitrary.
  float* zeros(size_t floats) { return reinterpret_cast<float*>(scratch_.take(floats * sizeof(float))); }
  void* uninitialised(size_t bytes) { return reinterpret_cast<void*>(room_.take(bytes)); }

  // ---- in this order
  // `work`: threads that find something to do. waits: for what was launched before; otherwise the launch
  // reads nothing, element for element, that another thread wrote since the last one that waited.
  void launch(uint32_t task, const cuda::Record& record, int64_t work, bool waits = true);
  void launch_blocks(uint32_t task, const cuda::Record& record, uint32_t blocks, bool waits = true);
  void copy(float* to, const float* from, size_t floats);
  void gemm(const cuda::Gemm& product);  // by the library

  // Whether many small launches become one (cuda/walk.h).
  static inline bool walking = true;
  static inline bool one_by_one = false;  // never

  bool empty() const { return steps_.empty(); }
  // Runs what was collected; forgets it, also where that fails.
  void submit();
  void discard();

 private:
  struct Place {
    char* host;
    cuda::Backend::Address device;
  };
  struct Chunk {
    std::unique_ptr<char[]> host;
    std::unique_ptr<DeviceMemory> memory;
    size_t size = 0, used = 0;
  };
  struct Step {
    uint32_t task;    // kCopy: a copy; kGemm: a call of the library; kWalk: many steps in one launch
    uint32_t blocks;  // kGemm: which of gemms_
    bool waits;
    const void* record;  // copies: to
    const void* from;
    size_t bytes;
    cuda::Backend::Kernel kernel = nullptr;  // walks
  };
  static constexpr uint32_t kCopy = 0xffffffffu, kWalk = 0xfffffffeu, kGemm = 0xfffffffdu;
  static bool has_kernel(const Step& step) { return step.task < kGemm; }

  Place take(size_t bytes);
  void run();
  void find_walks();
  void join_walks();
  Step walk(size_t begin, size_t end, const std::vector<uint32_t>& tasks);
  bool may_walk(const Step& step) const;

  CudaDevice& device_;
  const bool joins_;
  std::vector<Chunk> chunks_;
  std::vector<Step> steps_;
  std::vector<cuda::Gemm> gemms_;
  struct Run {  // steps that become one walk
    size_t begin, end;
    std::vector<uint32_t> tasks;
  };
  std::vector<Run> walks_;
  DevicePool scratch_, room_;
};

}  // namespace dyc
