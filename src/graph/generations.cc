#include "graph/generations.h"

#include <algorithm>
#include <atomic>

namespace dyc {

namespace {

uint32_t next(std::atomic<uint32_t>& counter) { return counter.fetch_add(1, std::memory_order_relaxed) + 1; }

std::atomic<uint32_t> last_graph{0};
// Versions and generations are numbered together; the first graph starts with 0.
std::atomic<uint32_t> last_version{0};

}  // namespace

Generations::Generations() : number(next(last_graph)), life_(std::make_shared<char>()) {}

void Generations::take_version() { version_ = generation_ = next(last_version); }

void Generations::note_renewal() {
  reverts_.clear();
  ++renewals_;
  take_version();
}

void Generations::note_revert(uint32_t size) {
  while (!reverts_.empty() && reverts_.back().size >= size) reverts_.pop_back();
  reverts_.push_back({generation_, size});
  generation_ = next(last_version);
}

// The lowest id that a revert removed since that generation; 0 for those of earlier graphs.
uint32_t Generations::first_lost(uint32_t generation) const {
  if (generation < version_) return 0;
  const auto found = std::lower_bound(reverts_.begin(), reverts_.end(), generation,
                                      [](const Revert& r, uint32_t g) { return r.last < g; });
  return found == reverts_.end() ? 0 : found->size;
}

}  // namespace dyc
