// Updates where the parameters are: on the device that graphs are computed on.
#include <cmath>

#include "base/error.h"
#include "model/trainers.h"

namespace dyc {

void Trainer::bring_states() {
  const auto bring = [this](std::deque<State>& states, const std::vector<StoragePtr>& of) {
    for (size_t i = 0; i < states.size(); ++i) state_to_host(states[i], kernels_.states, of[i]->size());
  };
  bring(parameter_states_, collection_->parameters());
  bring(lookup_states_, collection_->lookups());
}

void Trainer::all_to_host() {
  for (const StoragePtr& p : collection_->storages()) {
    p->values();
    if (p->has_grad()) p->raw_grad();
  }
  bring_states();
}

// False: nothing has changed, and the host is to do it; all that it needs is there.
bool Trainer::update_on_device(float scale) {
  if (!DeviceUpdate::possible()) return false;
  double norm = 0.;
  bool full = false;
  try {
    const auto device = DeviceUpdate::begin(rule_, kernels_.states);
    std::vector<StoragePtr> changing = collection_->storages();
    std::erase_if(changing, [](const StoragePtr& p) { return !p->updated; });
    if (device && device->start(changing)) {
      if (clip_threshold_ > 0.f) norm = std::sqrt(device->squared_norm(collection_->storages()));
      if (is_usable(norm, scale)) {
        run_on(*device, scale, norm);
        return true;
      }
    }
  } catch (const MemoryError&) {
    full = true;
    norm = 0.;
  }
  all_to_host();
  if (full) leave_to_host();
  UpdateFactors factors;
  if (norm != 0.) clip(factors, norm);  // throws, with the parameter's name
  return false;
}

void Trainer::leave_to_host() {
  for (auto* states : {&parameter_states_, &lookup_states_})
    for (State& state : *states) state.there.reset();
  leave_updates_to_host();
}

void Trainer::run_on(DeviceUpdate& device, float scale, double norm) {
  UpdateFactors factors;
  factors.clip = scale;
  const bool clips = clip(factors, norm);
  set_factors(factors, collection_->decay_factor(), static_cast<double>(updates_ + 1));
  add_to(device);
  device.run(factors);
  status_clips_ += clips;
}

// Which elements change: update_dense() and update_lookup() say the same of the host.
void Trainer::add_to(DeviceUpdate& device) {
  using What = DeviceUpdate::What;
  const auto dense = [&](const StoragePtr& p, State* state) {
    const bool active = p->has_grad();
    if (active || (kernels_.idle && (state->touched || decays_)))
      device.add(p, state, active ? What::all : What::idle);
  };
  const auto& parameters = collection_->parameters();
  const auto& lookups = collection_->lookups();
  allocate_states();  // another thread may have added parameters while this one waited for the device
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i]->updated) dense(parameters[i], state_of(parameter_states_, i));
  for (size_t i = 0; i < lookups.size(); ++i) {
    const StoragePtr& p = lookups[i];
    if (!p->updated) continue;
    const bool whole_table = !sparse_updates_ && kernels_.idle;
    // Restored gradients of rows, which only wait as long as the table is not taken as a whole.
    if (whole_table && p->has_grad() && !p->device_may_add_grad()) p->grad();
    if (whole_table || p->dense_grad()) dense(p, state_of(lookup_states_, i));
    else if (p->has_grad()) device.add(p, state_of(lookup_states_, i), What::rows);
  }
}

}  // namespace dyc
