// The instances of batch_map: parts of one graph that are recorded in turns. The result of each is what it
// would be if it had been recorded alone, so it has random numbers of its own, and the graph knows which
// instance recorded which node.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/random.h"

namespace dyc {

class Instances {
 public:
  static constexpr uint32_t kOutside = 0;  // the number of what is not in any

  // The instance that records now.
  uint32_t current() const { return current_; }
  // A new instance inside of the current one; numbers are not reused. Its random numbers follow from the
  // `seed` of its batch_map and its `index` there.
  uint32_t add(uint32_t seed, uint32_t index);
  // A seed for one more batch_map of the current instance. It does not advance the random numbers of the
  // instance; those of the process advance at finish(), if any were drawn inside.
  uint32_t next_seed();
  // How often the recording instance has changed.
  size_t turns() const { return turns_.size(); }
  // What `count` instances from `first` on have recorded since then counts as recorded by the current one.
  void join(uint32_t first, uint32_t count, size_t since);
  // The instance records from node `size` on.
  void enter(uint32_t number, uint32_t size);
  // All are done. Their random numbers stay, for nodes that are drawn again. Returns whether any were drawn;
  // `go_on`: if so, those of the process advance.
  bool finish(bool go_on = true);
  // The graph is renewed: earlier numbers are invalid.
  void clear() {
    if (!all_.empty()) all_.clear();  // clears all of its buckets, even those that are empty
    turns_.clear();
  }

  uint32_t parent(uint32_t number) const { return all_.at(number).parent; }
  // The instance that recorded a node; kOutside when all are done.
  uint32_t recorder(uint32_t node) const;
  // Nodes below `end` that an instance or one that it is a part of recorded: [begin, end) ranges.
  template <class F>
  void for_each_range(uint32_t number, uint32_t end, F&& f) const;
  // The stream that its nodes are drawn from.
  Random& random(uint32_t number) {
    return number == kOutside ? process_random() : all_.at(number).stream.random();
  }

 private:
  struct Instance {
    uint32_t parent = kOutside, maps = 0;
    Stream stream;
  };
  struct Turn {
    uint32_t begin, number;
  };

  bool within(uint32_t number, uint32_t outer) const;

  uint32_t current_ = kOutside, last_ = kOutside;
  std::unordered_map<uint32_t, Instance> all_;
  std::vector<Turn> turns_;
};

template <class F>
void Instances::for_each_range(uint32_t number, uint32_t end, F&& f) const {
  for (size_t i = 0; i < turns_.size() && turns_[i].begin < end; ++i) {
    if (!within(number, turns_[i].number)) continue;
    const uint32_t next = i + 1 < turns_.size() ? turns_[i + 1].begin : end;
    f(turns_[i].begin, next < end ? next : end);
  }
}

}  // namespace dyc
