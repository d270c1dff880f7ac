// The arenas of a graph on the device: values and gradients are stored at the same offsets as on the host.
// What the host wrote between the results of launches (inputs, constants, random values) is uploaded before
// launches run; results are downloaded when somebody asks for them.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "exec/cuda/cuda_device.h"
#include "exec/cuda/launch_reads.h"

namespace dyc {

class ArenaMirror {
 public:
  ArenaMirror(Graph& graph, Plan& plan, CudaDevice& device);

  using Memory = std::shared_ptr<DeviceMemory>;
  float* values() const { return values_memory_->at<float>(); }
  float* gradients() const { return gradients_memory_->at<float>(); }
  // Where somebody else holds one of them when launches run next, these take other memory.
  const Memory& values_memory() const { return values_memory_; }
  const Memory& gradients_memory() const { return gradients_memory_; }

  // ---- values
  // Launches [begin, end) are about to run; ran(): they have.
  void upload_for(uint32_t begin, uint32_t end);
  void ran(uint32_t begin, uint32_t end);
  // Does the host have all results of the launch, which is small?
  bool is_fetched(uint32_t launch) const { return fetched_[launch]; }
  void fetch_values(uint32_t launch, int64_t offset, size_t floats);
  // This part of its results is fetched with the others of which this was said.
  void expect_read(uint32_t launch, int64_t offset, size_t floats);
  // The plan has so many launches now.
  void cut_back(uint32_t launches);

  // ---- inputs that only the device has
  void set_input(int64_t offset, size_t floats, Memory memory) {
    inputs_[offset] = {floats, std::move(memory), false};
  }
  void forget_input(int64_t offset) { inputs_.erase(offset); }
  // The one with this offset in it; null: the host has the values.
  Memory input_at(int64_t offset, int64_t* begin) const;
  void fetch_input(int64_t offset);

  // ---- gradients
  void clear_gradients();
  void set_gradient(int64_t offset, float value);
  void fetch_gradients(std::vector<ArenaRange> ranges);

 private:
  void upload(ArenaRange range);
  void upload_from_host(ArenaRange range);
  void upload_until(int64_t offset);
  void skip_gradient_slots();
  void reserve_values();

  Graph& graph_;
  Plan& plan_;
  CudaDevice& device_;
  Memory values_memory_, gradients_memory_;
  int64_t uploaded_until_ = 0;           // below this offset the device has all values or computed them
  std::vector<ArenaRange> host_ranges_;  // below uploaded_until_: what the host wrote
  uint32_t mapped_launches_ = 0;         // launches whose results are below uploaded_until_
  uint32_t launches_run_ = 0;
  struct DeviceInput {
    size_t floats;
    Memory memory;
    bool fetched;
  };
  std::map<int64_t, DeviceInput> inputs_;  // by offset
  std::vector<uint8_t> fetched_;           // per launch: it was downloaded whole
  LaunchReads reads_{plan_};               // of larger launches
};

}  // namespace dyc
