#include "graph/parameter_table.h"

#include <utility>

namespace dyc {

void ParameterTable::adopt(std::shared_ptr<Storage> storage) {
  const uint32_t uid = storage->uid;
  if (uid >= slots_.size()) slots_.resize(uid + 16);
  Slot& slot = slots_[uid];
  slot.epoch = epoch_;
  slot.storage = static_cast<uint32_t>(storages_.size());
  std::fill(std::begin(slot.node), std::end(slot.node), kNone);
  storages_.push_back(std::move(storage));
}

void ParameterTable::pin(ParameterUse& use) {
  if (use.pinned) return;
  const Values v = values_of(*use.storage);
  use.factor = v.factor;
  use.version = v.version;
  use.on_device = v.on_device;
  use.borrowed = holding_;
  use.pinned = holding_ ? v.raw : use.storage->pin();
}

void ParameterTable::unpin() {
  for (ParameterUse& p : all_) {
    if (p.pinned) p.storage->unpin(p.pinned);
    p.pinned = p.values = nullptr;
  }
}

ParameterTable::Values ParameterTable::values_of(const Storage& storage) const {
  if (holding_) return held_[slots_[storage.uid].storage];
  return {storage.buffer(), storage.decay ? storage.decay->factor : 1.f, storage.version(),
          storage.on_device()};
}

void ParameterTable::hold() {
  held_.reserve(storages_.size());
  for (const auto& s : storages_) {
    held_.push_back(values_of(*s));
    s->pin();
  }
  holding_ = true;
}

void ParameterTable::release() {
  holding_ = false;
  for (ParameterUse& p : all_) {
    if (p.borrowed) p.storage->pin_again(p.pinned);
    p.borrowed = false;
  }
  for (size_t i = 0; i < held_.size(); ++i) storages_[i]->unpin(held_[i].raw);
  held_.clear();
}

void ParameterTable::swap(ParameterTable& other) {
  all_.swap(other.all_);
  storages_.swap(other.storages_);
  slots_.swap(other.slots_);
  std::swap(epoch_, other.epoch_);
}

void ParameterTable::renew() {
  unpin();
  all_.clear();
  storages_.clear();
  ++epoch_;
}

void ParameterTable::revert(uint32_t n, NodeId nodes, int64_t top) {
  for (uint32_t i = n; i < all_.size(); ++i) {
    if (all_[i].pinned) all_[i].storage->unpin(all_[i].pinned);
    for (NodeId& node : slots_[all_[i].storage->uid].node)
      if (node != kNone && node >= nodes) node = kNone;
  }
  all_.resize(n, ParameterUse{nullptr, kNone});
  const float *end = values_.base() + top, *arena_end = values_.base() + values_.capacity();
  for (ParameterUse& p : all_) {  // what they have above `top` is lost: copies of values, gradient slots
    if (p.values && p.values != p.pinned && p.values >= end && p.values < arena_end) p.values = nullptr;
    if (p.slot >= top) p.slot = -1;
    if (p.gradient >= top) p.gradient = -1;
  }
}

}  // namespace dyc
