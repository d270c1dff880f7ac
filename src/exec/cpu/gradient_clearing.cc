#include "exec/cpu/gradient_clearing.h"

#include "exec/cpu/tuning.h"

namespace dyc {

// The gradient of a product that runs with its loss is never stored.
void GradientClearing::clear(const Launch& l, const std::vector<uint8_t>& live, uint32_t live_nodes) const {
  if (l.loss != kNone || aliases_.clear_others(l)) return;
  if (live_nodes == l.count) return clear_floats(launches_.grads() + l.out, static_cast<size_t>(l.total));
  for (uint32_t i = 0; i < l.count; ++i) {
    const LaunchReader::Item it = launches_.item(l, i);
    if (live[it.id]) clear_floats(launches_.grads() + it.out, it.sig->size);
  }
}

void GradientClearing::begin(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes,
                             uint32_t root, bool at_once) {
  const uint32_t n = static_cast<uint32_t>(launches_.plan().launches.size());
  first_clear_.assign(n, kNone);
  aliases_.clear();
  if (launches_.full()) return;  // all is zero
  if (at_once || launches_.graph().values_arena.top() <= kInCache) {
    for (uint32_t i = 0; i < n; ++i)
      if (live_nodes[i]) clear(launches_.plan().launches[i], live, live_nodes[i]);
    return;
  }
  next_clear_.resize(n);
  last_reader_.assign(n, kNone);
  if (made_by_.find()) find_readers(live_nodes, root);
  // Results that are stored elsewhere are cleared at once: readers are found by offset, so none of theirs is.
  for (uint32_t i = 0; i < n; ++i) {
    const Launch& l = launches_.plan().launches[i];
    const uint32_t reader = last_reader_[i];
    if (!live_nodes[i]) continue;
    if (reader == kNone || i == root || LaunchesByOffset::is_elsewhere(l)) {
      clear(l, live, live_nodes[i]);
    } else {
      next_clear_[i] = first_clear_[reader];
      first_clear_[reader] = i;
    }
  }
}

void GradientClearing::find_readers(const std::vector<uint32_t>& live_nodes, uint32_t root) {
  aliases_.find(made_by_, live_nodes, root);
  for (uint32_t reader = 0; reader < last_reader_.size(); ++reader) {
    if (!live_nodes[reader]) continue;
    for (uint32_t k = 0; k < launches_.plan().launches[reader].n_operands; ++k)
      made_by_.each_read(reader, k, [&](uint32_t launch) {
        last_reader_[launch] = reader;
        aliases_.note_reader(reader, k, launch);
      });
  }
  aliases_.finish();
}

void GradientClearing::before(uint32_t begin, uint32_t end, const std::vector<uint8_t>& live,
                              const std::vector<uint32_t>& live_nodes) {
  for (uint32_t reader = begin; reader < end; ++reader)
    for (uint32_t i = first_clear_[reader]; i != kNone; i = next_clear_[i])
      clear(launches_.plan().launches[i], live, live_nodes[i]);
}

}  // namespace dyc
