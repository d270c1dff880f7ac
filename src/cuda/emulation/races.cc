#include "cuda/emulation/races.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace emulation {

void Races::join(Clock& to, const Clock& from) {
  for (const auto& [block, meetings] : from) to[block] = std::max(to[block], meetings);
}

bool Races::ordered(const Access& before, const Access& now) {
  if (before.atomic && now.atomic) return true;
  if (before.block != now.block) {
    const Clock& known = blocks_[now.block].known;
    const auto found = known.find(before.block);
    return found != known.end() && before.block_meetings < found->second;
  }
  return before.thread == now.thread || before.block_meetings < now.block_meetings ||
         (before.warp == now.warp && before.warp_meetings < now.warp_meetings);
}

void Races::report(const Access& before, bool wrote, const Access& now, bool writes, uintptr_t at) {
  if (!found_.empty()) return;
  found_ = dyc::text("a race: thread ", now.thread, " of block ", now.block, writes ? " writes" : " reads",
                     " the word at ", reinterpret_cast<void*>(at), ", which thread ", before.thread,
                     " of block ", before.block, wrote ? " wrote" : " read", ", and nothing orders the two");
}

void Races::check_alike() {
  const Alike a = alike_;
  alike_ = {};
  uint32_t value = 0;
  if (a.at) std::memcpy(&value, reinterpret_cast<const void*>(a.at), sizeof value);
  if (a.at && value != a.value) report(a.before, true, a.now, true, a.at);
}

void Races::access(const RaceThread& t, uintptr_t at, size_t bytes, bool writes, bool atomic) {
  const Access now{t.block, t.thread, t.warp, t.block_meetings, t.warp_meetings, atomic};
  check_alike();
  for (uintptr_t word = at / 4; word <= (at + bytes - 1) / 4; ++word) {
    Word& w = words_[word];
    if (w.written && !ordered(w.write, now)) {
      if (writes && w.write.block == now.block && w.write.warp == now.warp) {
        alike_ = {word * 4, 0, w.write, now};
        std::memcpy(&alike_.value, reinterpret_cast<const void*>(word * 4), sizeof alike_.value);
      } else {
        report(w.write, true, now, writes, word * 4);
      }
    }
    if (writes) {
      for (const Access& read : w.reads)
        if (!ordered(read, now)) report(read, false, now, true, word * 4);
      w.written = true;
      w.write = now;
      w.reads.clear();
      continue;
    }
    // Of each warp, two threads that read last: one of them is another than the one that writes next.
    size_t alike = 0, oldest = w.reads.size();
    bool known = false;
    for (size_t i = 0; i < w.reads.size() && !known; ++i) {
      Access& read = w.reads[i];
      if (read.block != now.block || read.warp != now.warp) continue;
      if (read.thread == now.thread) read = now, known = true;
      else if (alike++ == 0) oldest = i;
    }
    if (known) continue;
    if (alike < 2) w.reads.push_back(now);
    else w.reads[oldest] = now;
  }
}

void Races::atomic(const RaceThread& t, uintptr_t at) {
  access(t, at, 4, true, true);
  BlockClock& block = blocks_[t.block];
  Clock& counter = counters_[at];
  join(block.acquired, counter);
  join(counter, block.known);
  counter[t.block] = std::max(counter[t.block], block.released);
}

void Races::read_volatile(const RaceThread& t, uintptr_t at) {
  const auto counter = counters_.find(at);
  if (counter == counters_.end()) return access(t, at, 4, false);
  join(blocks_[t.block].acquired, counter->second);
}

void Races::end_copies(RaceThread& thread, size_t count) {
  for (size_t i = 0; i < count; ++i) access(thread, reinterpret_cast<uintptr_t>(thread.copies[i]), 4, true);
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<ptrdiff_t>(count));
}

void Races::all_copied(RaceThread& thread) {
  end_copies(thread, thread.copies.size());
  thread.copy_groups.clear();
}

void Races::copied(RaceThread& thread, size_t but_groups) {
  std::vector<size_t>& ends = thread.copy_groups;
  if (ends.size() <= but_groups) return;
  const auto ended = ends.end() - static_cast<ptrdiff_t>(but_groups);
  const size_t count = ended[-1];
  end_copies(thread, count);
  ends.erase(ends.begin(), ended);
  for (size_t& end : ends) end -= count;
}

void Races::fence(const RaceThread& t) {
  BlockClock& block = blocks_[t.block];
  block.released = t.block_meetings;
  join(block.fenced, block.acquired);
}

void Races::met(RaceThread& t) {
  ++t.block_meetings;
  BlockClock& block = blocks_[t.block];
  join(block.known, block.fenced);
}

void Races::forget(const void* from, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(from) / 4;
  for (uintptr_t word = first; word <= first + bytes / 4; ++word) words_.erase(word);
}

}  // namespace emulation
