#include "graph/instances.h"

#include <algorithm>

#include "base/instance.h"

namespace dyc {

namespace {

// A bijection of each of the two, which differ in little (MurmurHash3's finaliser).
uint32_t mixed(uint32_t seed, uint32_t index) {
  uint32_t h = seed + 0x9e3779b9u * (index + 1);
  h = (h ^ (h >> 16)) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  return h ^ (h >> 16);
}

}  // namespace

uint32_t Instances::next_seed() {
  if (current_ == kOutside) return process_random().peek();
  Instance& mine = all_.at(current_);
  return mixed(~mine.stream.seed(), mine.maps++);
}

uint32_t Instances::add(uint32_t seed, uint32_t index) {
  if (turns_.empty()) turns_.push_back({0, kOutside});
  all_[++last_] = {current_, 0, Stream(mixed(seed, index))};
  return last_;
}

void Instances::join(uint32_t first, uint32_t count, size_t since) {
  for (size_t i = since; i < turns_.size(); ++i)
    if (turns_[i].number - first < count) turns_[i].number = current_;
}

void Instances::enter(uint32_t number, uint32_t size) {
  current_ = number;
  inside_instance = number != kOutside;
  draw_from(inside_instance ? &all_.at(number).stream : nullptr);
  if (turns_.empty() || turns_.back().number == number) return;
  if (turns_.back().begin == size) turns_.back().number = number;
  else turns_.push_back({size, number});
}

bool Instances::finish(bool go_on) {
  bool drawn = false;
  for (auto it = all_.begin(); it != all_.end();) {
    drawn = drawn || it->second.stream.used();
    it = it->second.stream.used() ? std::next(it) : all_.erase(it);
  }
  turns_.clear();
  if (drawn && go_on) process_random().draw();
  return drawn;
}

uint32_t Instances::recorder(uint32_t node) const {
  const auto after = std::upper_bound(turns_.begin(), turns_.end(), node,
                                      [](uint32_t id, const Turn& turn) { return id < turn.begin; });
  return after == turns_.begin() ? kOutside : std::prev(after)->number;
}

bool Instances::within(uint32_t number, uint32_t outer) const {
  while (number != outer && number != kOutside) number = parent(number);
  return number == outer;
}

}  // namespace dyc
