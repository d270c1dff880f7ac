// A trainer's update where the parameters are on a device.
#pragma once
#include <memory>
#include <vector>

#include "base/storage.h"
#include "ops/updates.h"

namespace dyc {

class DeviceMemory;

// A rule's state for one parameter: arrays as long as it.
struct UpdateState {
  FloatBuffer buffer;
  float* array[3] = {};  // on the host
  bool touched = false;  // false: all zero, as without any gradient so far
  std::shared_ptr<DeviceMemory> there;
  bool on_device = false;  // the device has the newest
};

// Downloads the arrays, each of n floats, if the device has newer ones. Throws RuntimeError if it is lost.
void state_to_host(UpdateState& state, int arrays, size_t n);

// The device had no memory for an update, and its state has been downloaded: from now on it keeps only what
// graphs need.
void leave_updates_to_host();

// One update, which has locked the device. All methods but run() may throw MemoryError, with nothing changed;
// the host then does the update.
class DeviceUpdate {
 public:
  // Are graphs computed on a device?
  static bool possible();
  // May release the interpreter lock while it waits for the device. Null if the host has to do the update:
  // the rule needs it, or the device had no memory before.
  static std::unique_ptr<DeviceUpdate> begin(UpdateRule rule, int arrays);
  virtual ~DeviceUpdate() = default;

  // Prepares the parameters that may change. False: other processes write them, too, so the host does it.
  virtual bool start(const std::vector<std::shared_ptr<Storage>>& changing) = 0;
  // The sum of squares of their gradients. Waits for the device.
  virtual double squared_norm(const std::vector<std::shared_ptr<Storage>>& storages) = 0;
  // Adds to the work of run(): all elements of a parameter (with gradient 0 if not `active`), or touched
  // rows.
  enum class What { rows, all, idle };
  virtual void add(const std::shared_ptr<Storage>& storage, UpdateState* state, What what) = 0;
  // Updates the values, and clears their gradients.
  virtual void run(const UpdateFactors& factors) = 0;
};

}  // namespace dyc
