#include "exec/cuda/gradient_reducer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cuda/abi/products.h"
#include "exec/cuda/tuning.h"

namespace dyc {

namespace {

// Numbers of the ranges from low to high offsets, equal ones in their own order.
std::vector<uint32_t> sorted(const std::vector<GradientRange>& ranges) {
  std::vector<uint32_t> order(ranges.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto lower = [](const GradientRange& a, const GradientRange& b) { return a.at < b.at; };
  if (std::is_sorted(ranges.begin(), ranges.end(), lower)) return order;
  // Pairs, so that a comparison does not read through a number.
  std::vector<std::pair<int64_t, uint32_t>> keys;
  keys.reserve(ranges.size());
  for (const uint32_t i : order) keys.emplace_back(ranges[i].at, i);
  std::sort(keys.begin(), keys.end());
  std::transform(keys.begin(), keys.end(), order.begin(), [](const auto& key) { return key.second; });
  return order;
}

// f(begin, end) for each cluster of ranges that overlap, as iterators into `order`.
template <class F>
void each_cluster(const std::vector<GradientRange>& ranges, const std::vector<uint32_t>& order, F f) {
  for (auto first = order.begin(); first != order.end();) {
    auto next = first;
    int64_t end = ranges[*first].at + ranges[*first].size;
    for (; next != order.end() && ranges[*next].at < end; ++next)
      end = std::max(end, ranges[*next].at + ranges[*next].size);
    if (next == first) ++next;  // an empty range
    f(first, next);
    first = next;
  }
}

// Additions whose targets overlap become segments, cut where one of them begins or ends.
void add_cluster(const std::vector<Addition>& additions, std::vector<uint32_t> cluster, SegmentList& list) {
  std::sort(cluster.begin(), cluster.end());
  std::vector<int64_t> cuts;
  for (const uint32_t a : cluster) {
    cuts.push_back(additions[a].to);
    cuts.push_back(additions[a].to + additions[a].size);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    list.begin(cuts[c], cuts[c + 1] - cuts[c]);
    for (const uint32_t a : cluster)
      if (additions[a].to <= cuts[c] && cuts[c] < additions[a].to + additions[a].size)
        list.sources.push_back(additions[a].from + cuts[c] - additions[a].to);
  }
}

}  // namespace

GradientReducer::Overlap GradientReducer::overlap(const std::vector<GradientRange>& ranges) {
  const std::vector<uint32_t> order = sorted(ranges);
  Overlap how = Overlap::none;
  for (size_t i = 1; i < order.size(); ++i) {
    const GradientRange &before = ranges[order[i - 1]], &r = ranges[order[i]];
    if (r.at >= before.at + before.size) continue;
    if (r.at != before.at || r.size != before.size) return Overlap::partial;
    how = Overlap::same;
  }
  return how;
}

std::vector<Addition> GradientReducer::through_scratch(std::vector<GradientRange>& ranges, bool all) {
  std::vector<uint32_t> shared;
  each_cluster(ranges, sorted(ranges), [&](auto begin, auto end) {
    if (all || end - begin > 1) shared.insert(shared.end(), begin, end);
  });
  if (shared.empty()) return {};
  std::sort(shared.begin(), shared.end());
  int64_t floats = 0;
  for (const uint32_t r : shared) floats += ranges[r].size;
  int64_t at = offset_of(c_.commands.zeros(static_cast<size_t>(floats)));
  std::vector<Addition> additions;
  for (const uint32_t r : shared) {
    additions.push_back({ranges[r].at, at, ranges[r].size});
    ranges[r].at = at;
    at += ranges[r].size;
  }
  return additions;
}

int64_t GradientReducer::offset_of(const float* gradient) const {
  return static_cast<int64_t>(reinterpret_cast<uint64_t>(gradient) -
                              reinterpret_cast<uint64_t>(c_.gradients())) /
         static_cast<int64_t>(sizeof(float));
}

void GradientReducer::add(const std::vector<Addition>& additions) {
  if (additions.empty()) return;
  std::vector<GradientRange> targets;
  targets.reserve(additions.size());
  for (const Addition& a : additions) targets.push_back({a.to, a.size});
  SegmentList list;
  each_cluster(targets, sorted(targets),
               [&](auto begin, auto end) { add_cluster(additions, {begin, end}, list); });
  launch(list);
}

void GradientReducer::launch(SegmentList& list) {
  if (list.targets.empty()) return;
  list.starts.push_back(static_cast<uint32_t>(list.sources.size()));
  cuda::Segments s{};
  s.to = c_.gradients();
  s.from = c_.gradients();
  s.targets = c_.commands.put(list.targets);
  s.sources = c_.commands.put(list.sources);
  s.starts = c_.commands.put(list.starts);
  s.ends = c_.commands.put(list.ends);
  s.fresh = list.fresh.empty() ? nullptr : c_.commands.put(list.fresh);
  s.count = static_cast<uint32_t>(list.targets.size());
  cuda::LaunchArgs args;
  args.count = s.count;
  args.extra = c_.commands.put(&s, 1);
  const bool many =
      list.sources.size() >= kManySources * list.targets.size() && list.ends.back() < kManyElements;
  c_.commands.launch(CudaDevice::kernel_id(many ? cuda::kAddMany : cuda::kAddFew), args,
                     list.ends.back() * (many ? kWarpThreads : 1));
  if (!many) note_sliced(list);
}

// The launch made last can be sliced with any period that divides the size of each segment.
void GradientReducer::note_sliced(const SegmentList& list) {
  if (!c_.commands.keeps_weights() || list.sources.size() > kSlicedSegments ||
      list.targets.size() > kSlicedSegments)
    return;
  int64_t period = 0, largest = 0;
  for (size_t i = 0; i < list.ends.size(); ++i) {
    const int64_t size = list.ends[i] - (i ? list.ends[i - 1] : 0);
    period = std::gcd(period, size);
    largest = std::max(largest, size);
  }
  if (period == 0) return;
  const auto access = [&](const std::vector<int64_t>& offsets, bool writes) {
    return access_to(c_.gradients(), static_cast<int64_t>(offsets.size()), largest, period, writes,
                     [&](int64_t i) { return offsets[static_cast<size_t>(i)]; });
  };
  std::vector<MemoryRange> accesses{access(list.targets, true)};
  if (!list.sources.empty()) accesses.push_back(access(list.sources, false));
  c_.commands.note_sliced(period, true, std::move(accesses));
}

}  // namespace dyc
