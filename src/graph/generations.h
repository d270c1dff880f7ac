// Which nodes a handle may still refer to. A graph object lives through renewals (it becomes empty) and
// reverts (its last nodes go). Version: number of a renewal; generation: number of a renewal or revert. Both
// are unique in the process, so a handle that keeps a node's id and its generation can tell whether that node
// still exists.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace dyc {

class Generations {
 public:
  const uint32_t number;  // of this graph object, never reused in the process
  // Differs between any two graphs, and before and after a renewal.
  uint32_t version() const { return version_; }
  // Of the nodes recorded now.
  uint32_t generation() const { return generation_; }
  // Is node `id`, recorded in that generation of this graph, still in it?
  bool keeps(uint32_t id, uint32_t generation) const {
    return generation == generation_ || id < first_lost(generation);
  }
  bool reverted() const { return !reverts_.empty(); }  // since the last renewal
  uint32_t renewals() const { return renewals_; }      // so far
  // Expires with this object.
  std::weak_ptr<const void> life() const { return life_; }
  // For a graph beside others: a version of its own from the start.
  void take_version();

 protected:
  Generations();
  void note_renewal();
  // Nodes from `size` on are gone.
  void note_revert(uint32_t size);

 private:
  uint32_t first_lost(uint32_t generation) const;

  uint32_t version_ = 0, generation_ = 0, renewals_ = 0;
  // Nodes of generations up to `last` have ids below `size`, which is the least since then; both rise.
  struct Revert {
    uint32_t last, size;
  };
  std::vector<Revert> reverts_;
  std::shared_ptr<const void> life_;
};

}  // namespace dyc
