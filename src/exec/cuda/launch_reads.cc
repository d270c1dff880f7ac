#include "exec/cuda/launch_reads.h"

#include <algorithm>

#include "exec/cuda/tuning.h"

namespace dyc {

uint32_t LaunchReads::node_at(const Launch& l, int64_t offset) const {
  if (l.uniform) return static_cast<uint32_t>((offset - l.out) / (l.total / l.count));
  const int64_t* const outs = plan_.index.data() + l.out_index;
  return static_cast<uint32_t>(std::upper_bound(outs, outs + l.count, offset) - outs) - 1;
}

ArenaRange LaunchReads::range_of(const Launch& l, uint32_t node) const {
  if (l.uniform) {
    const int64_t size = l.total / l.count;
    return {l.out + node * size, l.out + (node + 1) * size};
  }
  const int64_t* const outs = plan_.index.data() + l.out_index;
  return {outs[node], node + 1 < l.count ? outs[node + 1] : l.out + l.total};
}

LaunchReads::Results& LaunchReads::results_of(uint32_t launch) {
  Results& r = results_[launch];
  if (!r.states.empty()) return r;
  const Launch& l = plan_.launches[launch];
  r.states.assign(l.count, kMissing);
  r.asked.assign(l.count, 0);
  r.sig = l.sig;
  r.guessed = read_whole_.contains(l.sig);
  return r;
}

// Of a result that is large: it comes without the rest.
bool LaunchReads::is_small_part(const Launch& l, ArenaRange part) const {
  const ArenaRange whole = range_of(l, node_at(l, part.begin));
  const int64_t floats = whole.end - whole.begin;
  return floats > kFetchWhole && part.end - part.begin <= floats / 2;
}

void LaunchReads::expect(uint32_t launch, ArenaRange part) {
  const Launch& l = plan_.launches[launch];
  Results& r = results_of(launch);
  State& state = r.states[node_at(l, part.begin)];
  if (state != kMissing) return;
  if (!is_small_part(l, part)) {
    state = kExpected;
    return;
  }
  Part& known = r.parts.try_emplace(part.begin, Part{part.end, kExpected}).first->second;
  if (known.end < part.end) known = {part.end, kExpected};
}

std::vector<ArenaRange> LaunchReads::ask(uint32_t launch, ArenaRange part) {
  const Launch& l = plan_.launches[launch];
  Results& r = results_of(launch);
  const uint32_t node = node_at(l, part.begin);
  const State state = r.states[node];
  if (state == kExpected) return take(r, l, 0, l.count, true);
  if (state == kMissing && is_small_part(l, part)) return ask_part(r, part);
  note(r, node);
  if (state == kHere) return {};
  if (r.guessed) return take(r, l, 0, l.count, false);
  return take(r, l, node, node + std::min(r.n_asked, l.count - node), false);
}

// With the others that are expected, or alone.
std::vector<ArenaRange> LaunchReads::ask_part(Results& r, ArenaRange part) {
  Part& own = r.parts.try_emplace(part.begin, Part{part.end, kMissing}).first->second;
  if (own.end < part.end) own = {part.end, kMissing};
  if (own.state == kHere) return {};
  if (own.state == kMissing) {
    own.state = kHere;
    return {part};
  }
  std::vector<ArenaRange> parts;
  for (auto& [begin, other] : r.parts) {
    if (other.state != kExpected) continue;
    other.state = kHere;
    parts.push_back({begin, other.end});
  }
  return parts;
}

// Of the nodes [first, end): what is missing, or only what is expected.
std::vector<ArenaRange> LaunchReads::take(Results& r, const Launch& l, uint32_t first, uint32_t end,
                                          bool expected) {
  std::vector<ArenaRange> parts;
  for (uint32_t node = first; node < end; ++node) {
    if (r.states[node] == kHere || (expected && r.states[node] != kExpected)) continue;
    r.states[node] = kHere;
    if (expected) r.asked[node] = 1;
    const ArenaRange part = range_of(l, node);
    if (!parts.empty() && part.begin <= parts.back().end + kResultGap) parts.back().end = part.end;
    else parts.push_back(part);
  }
  return parts;
}

void LaunchReads::note(Results& r, uint32_t node) {
  if (r.asked[node]) return;
  r.asked[node] = 1;
  if (++r.n_asked > 1 && 2 * r.n_asked >= r.states.size()) read_whole_.insert(r.sig);
}

void LaunchReads::forget_from(uint32_t launch) {
  const auto begin = results_.lower_bound(launch);
  for (auto it = begin; it != results_.end(); ++it) {
    const Results& r = it->second;
    if (r.guessed && 2 * r.n_asked < r.states.size()) read_whole_.erase(r.sig);
  }
  results_.erase(begin, results_.end());
}

}  // namespace dyc
