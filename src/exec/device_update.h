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

// Makes the host's arrays, each of n floats, the newest. Throws RuntimeError if the device is lost.
void state_to_host(UpdateState& state, int arrays, size_t n);

// The device had no memory for an update, and what it had has been brought: it keeps no more than graphs
// need.
void leave_updates_to_host();

// One update, which has the device for itself. All but run() may throw MemoryError, with nothing changed: the
// host is then to do it.
class DeviceUpdate {
 public:
  // Are graphs computed on a device?
  static bool possible();
  // May let go of the interpreter lock at first. Null where the host has to do it: the rule needs it, or the
  // device had no memory before.
  static std::unique_ptr<DeviceUpdate> begin(UpdateRule rule, int arrays);
  virtual ~DeviceUpdate() = default;

  // These parameters may get new values. False: the host has to do it, as other processes write them, too.
  virtual bool start(const std::vector<std::shared_ptr<Storage>>& changing) = 0;
  // Of the gradients of these. Waits for the device.
  virtual double squared_norm(const std::vector<std::shared_ptr<Storage>>& storages) = 0;
  // To be changed: all elements, with their gradient or (not `active`) with gradient 0, or the rows touched.
  enum class What { rows, all, idle };
  virtual void add(const std::shared_ptr<Storage>& storage, UpdateState* state, What what) = 0;
  // Changes them, and clears their gradients.
  virtual void run(const UpdateFactors& factors) = 0;
};

}  // namespace dyc
