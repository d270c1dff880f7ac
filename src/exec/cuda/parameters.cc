#include "exec/cuda/parameters.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "exec/cuda/tuning.h"

namespace dyc {

namespace {

[[noreturn]] void fail_missing(const Storage& storage) {
  throw RuntimeError(text("internal error: the device does not have the values of ", storage.name));
}

}  // namespace

CudaParameters::CudaParameters(CudaDevice& device)
    : device_(device), batch_(device, false), sums_(device.backend(), "sums of squares") {}

CudaParameters::DeviceParameter& CudaParameters::device_parameter(const StoragePtr& storage) {
  DeviceParameter& r = all_[storage->uid];
  r.storage = storage;
  return r;
}

// A copy without a version is valid until the launches that read it are submitted.
CudaParameters::Copy* CudaParameters::find(DeviceParameter& r, uint64_t version, float factor) {
  for (Copy& c : r.copies)
    if (c.version == version && c.factor == factor && (version || c.turn == turn_)) return &c;
  return nullptr;
}

CudaParameters::Copy& CudaParameters::free_copy(DeviceParameter& r, size_t bytes, const Copy* but) {
  Copy* copy = nullptr;
  const StoragePtr storage = r.storage.lock();
  const auto is_free = [&](const Copy& c) { return c.turn != turn_ && !c.only && &c != but; };
  r.copies.remove_if(  // old values that others have: they keep the memory
      [&](const Copy& c) { return is_free(c) && c.viewed() && storage && c.version != storage->version(); });
  for (Copy& c : r.copies)
    if (is_free(c) && !c.viewed()) copy = &c;
  if (!copy) {
    auto memory = std::make_shared<DeviceMemory>(device_.backend(), "parameters", 0);
    memory->reserve(bytes, 0);
    copy = &r.copies.emplace_back();
    copy->memory = std::move(memory);
  }
  copy->version = copy->turn = 0;
  return *copy;
}

const float* CudaParameters::values(const StoragePtr& storage, const float* host, uint64_t version) {
  DeviceParameter& r = device_parameter(storage);
  Copy* copy = find(r, version, 1.f);
  if (!copy) {
    const size_t bytes = storage->size() * sizeof(float);
    copy = &free_copy(r, bytes, nullptr);
    device_.backend().upload(copy->memory->address(), host, bytes);
    copy->version = version;
    copy->factor = 1.f;
  }
  copy->turn = turn_;
  return copy->at();
}

CudaParameters::Scaled CudaParameters::scaled(const StoragePtr& storage, uint64_t version, float factor) {
  DeviceParameter& r = device_parameter(storage);
  Copy* copy = find(r, version, factor);
  const bool made = !copy;
  if (made) {
    copy = &free_copy(r, storage->size() * sizeof(float), nullptr);
    copy->version = version;
    copy->factor = factor;
  }
  copy->turn = turn_;
  return {copy->at(), made};
}

void CudaParameters::drop_scaled(uint32_t uid) {
  const auto found = all_.find(uid);
  if (found == all_.end()) return;
  for (Copy& c : found->second.copies)
    if (c.factor != 1.f) c.version = c.turn = 0;
}

std::shared_ptr<DeviceMemory> CudaParameters::view(const StoragePtr& storage) {
  const uint64_t version = storage->version();
  std::shared_ptr<DeviceMemory> memory;
  if (version) {
    DeviceParameter& r = device_parameter(storage);
    if (storage->on_device() && !find(r, version, 1.f)) fail_missing(*storage);
    values(storage, storage->buffer(), version);
    memory = find(r, version, 1.f)->memory;
  } else {  // other processes may write
    memory = std::make_shared<DeviceMemory>(device_.backend(), "parameters", 0);
    memory->reserve(storage->size() * sizeof(float), 0);
    device_.backend().upload(memory->address(), storage->buffer(), storage->size() * sizeof(float));
  }
  memory->share();
  return memory;
}

bool CudaParameters::download(const Storage& storage, uint64_t version, float* to) {
  const auto found = all_.find(storage.uid);
  const Copy* const copy = found == all_.end() || !version ? nullptr : find(found->second, version, 1.f);
  if (!copy) return false;
  device_.backend().download(to, copy->memory->address(), storage.size() * sizeof(float));
  return true;
}

void CudaParameters::forget() {
  std::erase_if(states_, [](const auto& memory) { return memory.use_count() == 1; });
  if (all_.size() >= kForgetEach && all_.size() < expected_) return;
  std::erase_if(all_, [](const auto& entry) { return entry.second.storage.expired(); });
  expected_ = 2 * all_.size();
}

// The host now has the state of the trainer that found no memory. That of others is downloaded when it is
// asked for.
void CudaParameters::stay_on_host() {
  on_host_ = true;
  for (auto& [uid, r] : all_) {
    r.copies.remove_if([this](const Copy& c) { return !c.only && c.turn != turn_; });
    const StoragePtr storage = r.storage.lock();
    if (!storage || storage->grad_location() != Storage::GradLocation::device) r.grad.reset();
  }
  forget();
}

std::shared_ptr<DeviceMemory> CudaParameters::allocate_state(size_t bytes) {
  auto memory = std::make_shared<DeviceMemory>(device_.backend(), "state of trainers", 0);
  memory->reserve(bytes, 0);
  states_.push_back(memory);
  return memory;
}

void CudaParameters::download_state(const std::shared_ptr<DeviceMemory>& state, size_t first, size_t n,
                                    float* to) {
  const auto found = at_fork_.find(state.get());
  if (found != at_fork_.end()) std::copy_n(found->second.data() + first, n, to);
  else device_.backend().download(to, state->address() + first * sizeof(float), n * sizeof(float));
}

CudaParameters::Change CudaParameters::prepare(const StoragePtr& storage) {
  DeviceParameter& r = device_parameter(storage);
  for (Copy& c : r.copies) c.only = c.only && storage->host_lacks(c.version);
  if (storage->on_device() && !find(r, storage->version(), 1.f)) fail_missing(*storage);
  values(storage, storage->buffer(), storage->version());
  Copy* const from = find(r, storage->version(), 1.f);
  Copy* to = from;
  if (storage->pinned() || from->viewed()) to = &free_copy(r, storage->size() * sizeof(float), from);
  storage->prepare_device_write();
  return {storage, from, to};
}

void CudaParameters::commit(const Change& change) {
  change.to->version = change.storage->begin_device_write(*this);
  change.to->factor = 1.f;
  change.to->only = true;
  all_.find(change.storage->uid)->second.on_device = true;
}

void CudaParameters::sync_values(Storage& storage, bool contents) {
  if (!loss_reported_ && !storage.on_device()) return;
  const auto lock = device_.lock();
  if (loss_reported_) restore();
  try {
    if (contents && storage.on_device()) fetch_values(storage);
  } catch (...) {
    device_.rethrow();
  }
  has_come(storage.uid);
}

void CudaParameters::has_come(uint32_t uid) {
  const auto found = all_.find(uid);
  if (found != all_.end()) found->second.on_device = false;
}

void CudaParameters::fetch_values(Storage& storage) {
  if (!download(storage, storage.version(), storage.host_buffer())) fail_missing(storage);
  storage.values_fetched();
  has_come(storage.uid);
  for (Copy& c : all_.at(storage.uid).copies) c.only = c.only && c.version != storage.version();
}

void CudaParameters::sync_grad(Storage& storage) {
  const auto lock = device_.lock();
  if (storage.grad_location() != Storage::GradLocation::device) return;
  if (loss_reported_) {  // it is gone
    std::fill_n(storage.grad_host_buffer(), storage.size(), 0.f);
    return storage.clear_grad();
  }
  try {
    fetch_grad(storage);
  } catch (...) {
    device_.rethrow();
  }
}

void CudaParameters::all_to_host() {
  if (loss_reported_) return restore();
  for (auto& [uid, r] : all_) {
    const StoragePtr storage = r.storage.lock();
    if (!storage) continue;
    if (storage->on_device()) fetch_values(*storage);
    if (storage->grad_location() == Storage::GradLocation::device) fetch_grad(*storage);
  }
}

void CudaParameters::before_fork() {
  all_to_host();
  if (loss_reported_ || !at_fork_.empty()) return;  // a forked process has copies
  for (const auto& memory : states_) {
    if (memory.use_count() == 1) continue;
    std::vector<float>& copy = at_fork_[memory.get()];
    copy.resize(memory->bytes() / sizeof(float));
    device_.backend().download(copy.data(), memory->address(), copy.size() * sizeof(float));
  }
}

void CudaParameters::after_fork(bool child) {
  if (child) on_host_ = true;
  else at_fork_.clear();
}

void CudaParameters::take_snapshot(const std::vector<StoragePtr>& changing) {
  if (loss_reported_) return;  // that is what the host has now
  std::vector<StoragePtr> known = changing;
  std::unordered_set<uint32_t> uids;
  for (const StoragePtr& s : changing) uids.insert(s->uid);
  for (auto& [uid, r] : all_)
    if (r.snapshot.allocated() && !uids.contains(uid))
      if (StoragePtr storage = r.storage.lock()) known.push_back(std::move(storage));
  bool here = true, due = updates_ - snapshot_at_ >= device_.options.snapshot_every;
  for (const StoragePtr& s : known) {
    here = here && !s->on_device();
    due = due || !device_parameter(s).snapshot.allocated();
  }
  if (!here && !due) return;
  for (const StoragePtr& s : known) {
    DeviceParameter& r = device_parameter(s);
    if (s->on_device()) fetch_values(*s);
    if (!r.snapshot.allocated()) r.snapshot = FloatBuffer(s->size(), false);
  }
  for (const StoragePtr& s : known) {  // all or none
    DeviceParameter& r = device_parameter(s);
    std::memcpy(r.snapshot.data(), s->buffer(), s->size() * sizeof(float));
    r.snapshot_factor = s->decay ? s->decay->factor : 1.f;
  }
  snapshot_at_ = updates_;
}

void CudaParameters::keep_for_loss(const StoragePtr& storage) {
  DeviceParameter& r = device_parameter(storage);
  if (r.snapshot.allocated()) return;
  if (storage->on_device()) fetch_values(*storage);
  FloatBuffer snapshot(storage->size(), false);
  std::memcpy(snapshot.data(), storage->buffer(), storage->size() * sizeof(float));
  r.snapshot = std::move(snapshot);
  r.snapshot_factor = storage->decay ? storage->decay->factor : 1.f;
}

std::string CudaParameters::loss() {
  loss_reported_ = true;
  const bool back = std::any_of(all_.begin(), all_.end(), [](const auto& entry) {
    return entry.second.on_device && !entry.second.storage.expired();
  });
  if (!back && !restored_) return "Parameters on the host are as they were.";
  return text("Parameters on the host have the values after update ", snapshot_at_, " of ", updates_,
              " that trainers made on the device; gradients and the state of trainers are lost.");
}

// All parameters are restored together, to the values after one update. If the host has no memory for that,
// the next call starts over.
void CudaParameters::restore() {
  if (restored_) return;
  for (auto& [uid, r] : all_)
    if (const StoragePtr storage = r.storage.lock()) restoring_ = restoring_ || storage->on_device();
  if (!restoring_) return;
  for (auto& [uid, r] : all_) {
    const StoragePtr storage = r.storage.lock();
    if (!storage || !r.snapshot.allocated()) continue;
    storage->restore_lost(r.snapshot.data());
    if (storage->decay) storage->decay->factor = r.snapshot_factor;
  }
  for (auto& [uid, r] : all_) r.on_device = false;
  restored_ = true;
}

}  // namespace dyc
