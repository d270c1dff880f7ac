// Launches and copies for the device, collected: all that they read is uploaded at once, then they run in
// order. 29 methods and 15 fields: the commands, their memory, and notes on them for persistent_pass.h and
// chain_pass.h.
#pragma once
#include <vector>

#include "cuda/abi/launch_args.h"
#include "exec/cuda/chain_pass.h"
#include "exec/cuda/device_pool.h"
#include "exec/cuda/persistent_pass.h"
#include "exec/cuda/product_launches.h"

namespace dyc {

class CommandList {
 public:
  // `joins`: many small launches may become one.
  explicit CommandList(CudaDevice& device, bool joins = true)
      : device_(device),
        joins_(joins),
        upload_(device.backend()),
        zeroed_(device.backend(), "scratch"),
        uninitialised_(device.backend(), "scratch"),
        pass_(*this, device),
        chains_(*this, device) {}

  // ---- memory that is uploaded with the commands. Addresses are those on the device.
  // n elements, to be filled by the caller.
  template <class T>
  struct Array {
    T* host;
    T* device;
    size_t n;
    T& operator[](size_t i) const { return host[i]; }
  };
  template <class T>
  Array<T> array(size_t n) {
    const UploadPool::Allocation taken = upload_.take(n * sizeof(T));
    return {reinterpret_cast<T*>(taken.host), reinterpret_cast<T*>(taken.device), n};
  }
  template <class T>
  const T* put(const T* from, size_t n) {
    const Array<T> to = array<T>(n);
    if (n) std::memcpy(static_cast<void*>(to.host), from, n * sizeof(T));
    return to.device;
  }
  template <class T>
  const T* put(const std::vector<T>& from) {
    return put(from.data(), from.size());
  }

  // ---- memory of the device alone, for these commands: zero when they begin, or arbitrary
  float* zeros(size_t floats) { return reinterpret_cast<float*>(zeroed_.take(floats * sizeof(float))); }
  void* uninitialised(size_t bytes) { return reinterpret_cast<void*>(uninitialised_.take(bytes)); }

  // ---- commands, in this order
  // `work`: threads that find something to do. Without needs_grid_sync the launch reads nothing, element for
  // element, that another thread wrote since the last launch that needed it.
  void launch(uint32_t kernel_id, const cuda::LaunchArgs& args, int64_t work, bool needs_grid_sync = true);
  void launch_blocks(uint32_t kernel_id, const cuda::LaunchArgs& args, uint32_t blocks,
                     bool needs_grid_sync = true);
  void launch_products(ProductLaunch launch, bool needs_grid_sync);
  bool has_products() const { return product_launches_.size() > 0; }
  // False: the op needs a launch of its own.
  bool follow_products(const FollowingOp& op) {
    const bool follows = followers_.add(op, commands_, products_);
    device_.backend().counters.followers += follows;
    return follows;
  }
  ProductFollowers& followers() { return followers_; }  // for notes on other launches
  void copy(float* to, const float* from, size_t floats);
  void gemm(const cuda::Gemm& product);  // by the library
  size_t size() const { return commands_.size(); }
  uint32_t most_blocks() const { return device_.most_blocks(); }
  uint32_t processors() const { return device_.backend().limits().processors; }

  // ---- notes on the last launch, for persistent kernels
  bool keeps_weights() const;  // false: they are of no use
  // It is this product (forward: W x, else W' dy); nothing in this list changes its weights, but what made
  // them.
  void note_product(bool forward, const cuda::Product& product, const std::vector<cuda::Term>& terms,
                    std::vector<MemoryRange> accesses) {
    products_.push_back({commands_.size() - 1, forward, product, terms, std::move(accesses), product.m});
  }
  // It makes weights that products of this list may read.
  void note_weights(const float* made) { made_weights_.push_back(made); }
  // It can be divided into row slices, as SlicedStep has it.
  void note_sliced(int64_t period, bool finer, std::vector<MemoryRange> accesses) {
    sliced_.push_back({commands_.size() - 1, period, finer, std::move(accesses), last_args_});
  }

  // Chains: it may be a step of this one.
  void note_link(Link link) {
    link.args = last_args_;
    if (link.chain) commands_.back().link = link;
  }

  // Runs what was collected; forgets it, also where that fails.
  void submit();
  void discard();

 private:
  friend class PersistentPass;  // which replaces commands
  LaunchWay choose_way(LaunchChoices::Ways ways, const std::vector<Command>& joined);
  void run();
  void choose_set();
  void run_all(LaunchWay way);
  void run_command(const Command& c);
  std::vector<cuda::Backend::Operation> graph_of(const std::vector<Command>& commands) const;
  bool run_as_graph();
  cuda::Backend::Operation operation(const Command& c) const;

  CudaDevice& device_;
  const bool joins_;
  UploadPool upload_;
  std::vector<Command> commands_;
  std::vector<cuda::Gemm> gemms_;
  ProductLaunches product_launches_{*this};  // of commands_, before any is replaced
  ProductFollowers followers_{product_launches_};
  std::vector<WeightProduct> products_;  // likewise
  std::vector<SlicedStep> sliced_;       // likewise
  std::vector<const float*> made_weights_;
  cuda::LaunchArgs* last_args_ = nullptr;  // of the last launch, in host memory
  DevicePool zeroed_, uninitialised_;
  PersistentPass pass_;
  ChainPass chains_;
  LaunchChoices::Set* choice_ = nullptr;  // of this list; null: nothing is measured
};

}  // namespace dyc
