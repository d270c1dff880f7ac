// Parameters on a CUDA device: copies of the host's values, values that the device computed, gradients, and
// the host snapshot that is restored if the device is lost.
//
// Storage says what the host has (base/storage.h); copies are found by the version of their values. A copy
// whose values nobody else has is not overwritten while a graph, or the model, still refers to them.
//
// 36 methods: values, gradients, updates, forks and the loss of the device are one class, because each of
// them asks the table of copies who has which version, and must leave it right for all the others.
#pragma once
#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/storage.h"
#include "exec/cuda/command_list.h"

namespace dyc {

using StoragePtr = std::shared_ptr<Storage>;

class CudaParameters final : public DeviceMirror {
 public:
  explicit CudaParameters(CudaDevice& device);

  // ---- DeviceMirror: called by readers and writers of the storage; these lock the device
  void sync_values(Storage& storage, bool contents) override;
  void sync_grad(Storage& storage) override;

  // Before a fork: downloads what only the device has, as the child cannot ask for it. Under the interpreter
  // lock.
  void before_fork();
  // In a child the host makes all updates.
  void after_fork(bool child);

  // Address of the values, valid until launches_submitted(). They are uploaded from `host` if need be.
  const float* values(const StoragePtr& storage, const float* host, uint64_t version);
  // The same times a factor; `made`: for the caller to fill in, or to drop_scaled() if that fails.
  struct Scaled {
    float* values;
    bool made;
  };
  Scaled scaled(const StoragePtr& storage, uint64_t version, float factor);
  void drop_scaled(uint32_t uid);
  // The current values, which nothing writes while somebody has this memory.
  std::shared_ptr<DeviceMemory> view(const StoragePtr& storage);
  // False: the host must have them.
  bool download(const Storage& storage, uint64_t version, float* to);
  void launches_submitted() { ++turn_; }
  // Memory of parameters and trainers that exist no more is given back.
  void forget();
  // Memory that is kept as long as somebody else refers to it.
  std::shared_ptr<DeviceMemory> allocate_state(size_t bytes);
  // `n` floats of it from the `first` on; in a forked process, as they were at the fork.
  void download_state(const std::shared_ptr<DeviceMemory>& state, size_t first, size_t n, float* to);
  // The device has no memory: from now on the host adds up gradients and makes updates.
  void stay_on_host();
  bool on_host() const { return on_host_; }
  // For launches that have to do with parameters; empty between calls.
  CommandList& batch() { return batch_; }
  DeviceMemory& sums() { return sums_; }  // of squares

  // ---- gradients. Those of a table are of the rows touched, one after the other, unless all was.
  // There is one: on the device, too.
  const float* grad(const StoragePtr& storage);
  // Memory for a gradient of all: `fresh` if it has no contents yet. The caller adds, then
  // storage.grad_added_on_device().
  float* memory_for_grad(const StoragePtr& storage, bool& fresh);
  // The same for rows, equal ones allowed; then storage.rows_added_on_device().
  struct RowMemory {
    float* at;
    bool fresh;
  };
  std::vector<RowMemory> memory_for_rows(const StoragePtr& storage, const std::vector<uint32_t>& rows);

  // ---- new values
  struct Copy {
    std::shared_ptr<DeviceMemory> memory;
    uint64_t version = 0;
    float factor = 1.f;
    uint64_t turn = 0;                                      // of its last use
    bool only = false;                                      // the host has never had these values
    bool viewed() const { return memory.use_count() > 1; }  // by other libraries: not written
    float* at() const { return memory->at<float>(); }
  };
  struct Change {
    StoragePtr storage;
    Copy *from, *to;  // the same, unless the old values are pinned or viewed
  };
  // May throw, with nothing changed. Then launches write to.at(), and commit() cannot fail.
  Change prepare(const StoragePtr& storage);
  void commit(const Change& change);

  // ---- should the device be lost
  // A trainer is about to change these: what the host falls back on becomes new if the host has all values,
  // or if that is due.
  void take_snapshot(const std::vector<StoragePtr>& changing);
  // The script is about to change this one.
  void keep_for_loss(const StoragePtr& storage);
  void updated() { ++updates_; }
  // To be said once it is: what becomes of parameters.
  std::string loss();

 private:
  struct DeviceParameter {
    std::weak_ptr<Storage> storage;
    std::list<Copy> copies;
    std::unique_ptr<DeviceMemory> grad;
    std::vector<uint32_t> slots;  // of touched rows in `grad`; others have any number
    FloatBuffer snapshot;         // values after update snapshot_at_
    float snapshot_factor = 1.f;  // of weight decay
    bool on_device = false;       // values have been, since the host last had them
  };

  DeviceParameter& device_parameter(const StoragePtr& storage);
  Copy* find(DeviceParameter& r, uint64_t version, float factor);
  // One that may be written over: not `but`.
  Copy& free_copy(DeviceParameter& r, size_t bytes, const Copy* but);
  DeviceMemory& grad_memory(DeviceParameter& r);
  void send_grad(Storage& storage, DeviceParameter& r);
  void fetch_values(Storage& storage);
  void fetch_grad(Storage& storage);
  void all_to_host();
  void has_come(uint32_t uid);
  void restore();

  CudaDevice& device_;
  CommandList batch_;
  DeviceMemory sums_;
  std::unordered_map<uint32_t, DeviceParameter> all_;  // by uid
  size_t expected_ = 0;
  uint64_t turn_ = 1;
  std::vector<std::shared_ptr<DeviceMemory>> states_;
  std::unordered_map<const DeviceMemory*, std::vector<float>> at_fork_;  // what they had

  bool on_host_ = false;
  uint64_t updates_ = 0, snapshot_at_ = 0;   // on this device: all, and those that `kept` has
  std::atomic<bool> loss_reported_ = false;  // that the device is lost
  bool restoring_ = false, restored_ = false;
};

}  // namespace dyc
