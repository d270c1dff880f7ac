// Runs launches on a CUDA device, forward and backward: the loops over launches, and what the engine asks for
// between them. Values and gradients are stored at the same offsets as on the host (arena_mirror.h); launches
// are collected in a command list and submitted together. 33 methods, those of Executor, and 13 fields, its
// parts.
#pragma once
#include "exec/cuda/device_argmax.h"
#include "exec/cuda/matmul_launcher.h"
#include "exec/cuda/op_launcher.h"

namespace dyc {

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(Graph& graph, Plan& plan, CudaDevice& device);

  void forward(uint32_t& next, uint32_t end) override;
  void backward(NodeId root, const std::vector<uint8_t>& live,
                const std::vector<uint32_t>& live_nodes) override;
  void accumulate() override;
  const float* parameter_gradient(NodeId id) override;
  const float* parameter_values(ParameterUse& use) override;
  void fetch_values(uint32_t launch, int64_t offset, size_t floats) override {
    arenas_.fetch_values(launch, offset, floats);
  }
  void expect_read(NodeId id) override;
  uint32_t argmax(uint32_t launch, int64_t offset) override;
  void fetch_gradients(int64_t offset, size_t floats) override {
    arenas_.fetch_gradients({{offset, offset + static_cast<int64_t>(floats)}});
  }
  void fetch_input(int64_t offset) override { arenas_.fetch_input(offset); }
  void set_input(NodeId id, std::shared_ptr<DeviceMemory> memory) override;
  std::shared_ptr<DeviceMemory> copy_on_device(NodeId id) override;
  void cut_back(uint32_t launches) override;
  void refuse_reentry() override { device_.lock(); }  // and unlocks it

 private:
  bool always_separate() const override { return true; }
  void zero_gradients(int64_t, size_t) override {}  // backward() clears all
  void run_deferred(DeferredGradient& d) override { matmuls_.add_weight_gradients({&d}); }

  uint32_t end_of_group(uint32_t head) const;
  std::vector<uint32_t> order_of_group(uint32_t head, uint32_t end) const;
  Link link_of(uint32_t head, uint32_t launch) const;
  void run(const Launch& l, bool grouped);
  void launch(const Launch& l);
  void decide_sync(const Launch& l, bool grouped);
  void note_unsynced(const Launch& l, bool grouped);
  bool reads(const Launch& l, ArenaRange range) const;
  void copy_values(NodeId id, cuda::Backend::Address to);
  void submit();
  void submit_timed();
  void discard();

  void seed(NodeId root);
  void run_backward(NodeId root, const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes);
  bool may_chain_backward(uint32_t head);
  void backward_live(uint32_t number, const std::vector<uint8_t>& live,
                     const std::vector<uint32_t>& live_nodes);
  void backward(const Launch& l);
  void add_weight_gradients();

  CudaDevice& device_;
  ArenaMirror arenas_;
  CommandList commands_;
  CudaContext context_{*this, device_, commands_, arenas_, counters};
  LaunchEncoder encoder_{context_};
  GradientReducer reducer_{context_};
  ParameterSync parameters_{context_, reducer_};
  FollowerLauncher followers_{context_};
  OpLauncher ops_{context_, encoder_, reducer_, parameters_, followers_};
  MatmulLauncher matmuls_{context_, encoder_, reducer_, parameters_, deferred_, followers_};
  DeviceArgmax argmax_{context_, encoder_};

  // Results since the last launch that waited for those before it; those of them that were there when the
  // element-wise group began.
  ArenaRange unsynced_, unsynced_before_group_;
};

}  // namespace dyc
