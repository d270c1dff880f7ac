// Launches for the device, collected: everything that they read goes up in one piece of memory, then they
// run one after the other.
#pragma once
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "cuda/abi/launch_args.h"
#include "exec/cuda/cuda_device.h"
#include "exec/cuda/persistent_weights.h"

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

class CommandList {
 public:
  // `joins`: many small launches may become one.
  explicit CommandList(CudaDevice& device, bool joins = true)
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
    const Allocation p = take(n * sizeof(T));
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
  void launch(uint32_t kernel_id, const cuda::LaunchArgs& record, int64_t work, bool needs_grid_sync = true);
  void launch_blocks(uint32_t kernel_id, const cuda::LaunchArgs& record, uint32_t blocks,
                     bool needs_grid_sync = true);
  void copy(float* to, const float* from, size_t floats);
  size_t steps() const { return steps_.size(); }
  // Whether the two calls below may be of use.
  bool keeps_weights() const {
    return joins_ && persistent && keeping_weights && !one_by_one && cuda::forced_variant < 0;
  }
  // The last launch is this product (forward: W x, else W' dy); nothing here changes its weights.
  void note_product(bool forward, const cuda::Product& product, const std::vector<cuda::Term>& terms,
                    std::vector<Access> accesses) {
    products_.push_back({steps_.size() - 1, forward, product, terms, std::move(accesses), product.m});
  }
  // The last launch can be made unit by unit, as SlicedStep has it.
  void note_sliced(int64_t period, bool finer, std::vector<Access> accesses) {
    sliced_.push_back({steps_.size() - 1, period, finer, std::move(accesses), last_record_});
  }
  void gemm(const cuda::Gemm& product);  // by the library

  // Whether many small launches become one (cuda/abi/persistent.h).
  static inline bool persistent = true;
  // Whether blocks of walks keep weights in shared memory.
  static inline bool keeping_weights = true;
  // Whether steps that follow products of these do without waiting for other blocks, where they can.
  static inline bool skipping_barriers = true;
  // Whether launches that come again as they were become a graph of the driver.
  static inline bool using_graphs = true;
  static inline bool one_by_one = false;  // never

  bool empty() const { return steps_.empty(); }
  // Runs what was collected; forgets it, also where that fails.
  void submit();
  void discard();

 private:
  struct Allocation {
    char* host;
    cuda::Backend::Address device;
  };
  struct Chunk {
    std::unique_ptr<char[]> host;
    std::unique_ptr<DeviceMemory> memory;
    size_t size = 0, used = 0;
  };
  struct Step {
    uint32_t kernel_id;  // kCopy: a copy; kGemm: a call of the library; kPersistent: a walk, many steps in
                         // one launch
    uint32_t blocks;     // kGemm: which of gemms_
    bool needs_grid_sync;
    const void* record;  // copies: to
    const void* from;
    size_t bytes;
    size_t run = 0;  // walks: in persistent_runs_
  };
  static constexpr uint32_t kCopy = 0xffffffffu, kPersistent = 0xfffffffeu, kGemm = 0xfffffffdu;
  static bool has_kernel(const Step& step) { return step.kernel_id < kGemm; }
  struct Run {          // steps that become one walk
    size_t begin, end;  // in steps_, later in unjoined_
    std::vector<uint32_t> kernel_ids = {};
    PersistentWeights weights = {};
    std::span<WeightProduct> products = {};
    std::span<const SlicedStep> sliced = {};
    std::vector<BarrierFreeRun> barrier_free_runs = {};
    cuda::Backend::Kernel kernel = nullptr;
    uint32_t shared_bytes = 0;
    uint64_t persistent_products = 0, sliced_steps = 0,
             needs_grid_sync = 0;  // as cuda::Backend::Counters has them
  };

  Allocation take(size_t bytes);
  void run();
  void prepare();
  void run_step(const Step& step);
  void run_steps(const Step& step);
  bool launch_persistent(const Step& step, const Run& walk);
  void count(const Run& walk);
  bool run_as_graph();
  cuda::Backend::Operation operation(const Step& step) const;
  bool may_be_persistent(const Step& step) const;
  void find_persistent_runs();
  Run run_of(size_t begin, size_t end);
  void find_weights(Run& walk);
  void replace_by_persistent();
  uint32_t place_weights(Run& walk, CudaDevice::PersistentKernel& made, uint32_t blocks);
  std::vector<cuda::PersistentStep> persistent_steps(Run& walk);
  void skip_barriers(Run& walk, const BarrierFreeRun& run, std::vector<cuda::PersistentStep>& steps);
  bool use_weights(Run& walk, cuda::PersistentStep& step, size_t number);
  Step walk(size_t number);

  CudaDevice& device_;
  const bool joins_;
  std::vector<Chunk> chunks_;
  std::vector<Step> steps_, unjoined_;  // unjoined_: as they were before walks took the place of some
  std::vector<cuda::Gemm> gemms_;
  std::vector<Run> persistent_runs_;
  std::vector<WeightProduct> products_;      // of steps_, before walks
  std::vector<SlicedStep> sliced_;           // likewise
  cuda::LaunchArgs* last_record_ = nullptr;  // of the last launch, as it goes up
  std::vector<cuda::Backend::Operation> operations_;
  DevicePool scratch_, room_;
};

}  // namespace dyc
