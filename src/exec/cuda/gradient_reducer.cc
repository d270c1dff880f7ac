// Gradients that several members add to. Threads add up in no order, so what overlaps is added up in scratch
// memory first and from there in the order of members: the same sums each time.
#include <algorithm>
#include <numeric>

#include "exec/cuda/cuda_executor.h"

namespace dyc {

namespace {

constexpr size_t kManyPieces = 16;  // of a segment, on average: worth a warp for each element

}  // namespace

// order_: the targets from low to high places, equal ones in their own order.
void CudaExecutor::sort_targets(const std::vector<GradientRange>& targets) {
  order_.resize(targets.size());
  std::iota(order_.begin(), order_.end(), 0u);
  const auto lower = [&](uint32_t a, uint32_t b) {
    return targets[a].at != targets[b].at ? targets[a].at < targets[b].at : a < b;
  };
  if (!std::is_sorted(order_.begin(), order_.end(), lower)) std::sort(order_.begin(), order_.end(), lower);
}

CudaExecutor::Overlap CudaExecutor::overlap(const std::vector<GradientRange>& targets) {
  sort_targets(targets);
  Overlap how = Overlap::none;
  for (size_t i = 1; i < order_.size(); ++i) {
    const GradientRange &before = targets[order_[i - 1]], &t = targets[order_[i]];
    if (t.at >= before.at + before.size) continue;
    if (t.at != before.at || t.size != before.size) return Overlap::partial;
    how = Overlap::same;
  }
  return how;
}

bool CudaExecutor::reduce_through_scratch(std::vector<GradientRange>& targets, bool all) {
  sort_targets(targets);
  std::vector<uint32_t> shared;
  for (size_t i = 0; i < order_.size();) {
    size_t next = i + 1;
    for (int64_t end = targets[order_[i]].at + targets[order_[i]].size;
         next < order_.size() && targets[order_[next]].at < end; ++next)
      end = std::max(end, targets[order_[next]].at + targets[order_[next]].size);
    if (next - i > 1 || all) shared.insert(shared.end(), order_.begin() + i, order_.begin() + next);
    i = next;
  }
  through_scratch_.clear();
  if (shared.empty()) return false;
  std::sort(shared.begin(), shared.end());
  int64_t floats = 0;
  for (const uint32_t t : shared) floats += targets[t].size;
  int64_t at = offset_of(batch_.zeros(static_cast<size_t>(floats)));
  for (const uint32_t t : shared) {
    through_scratch_.push_back({targets[t].at, at, targets[t].size});
    targets[t].at = at;
    at += targets[t].size;
  }
  return true;
}

void CudaExecutor::add_from_scratch() {
  add_all(through_scratch_);
  through_scratch_.clear();
}

// Pieces of two allocations, but of one address space.
int64_t CudaExecutor::offset_of(const float* gradient) const {
  return static_cast<int64_t>(reinterpret_cast<uint64_t>(gradient) -
                              reinterpret_cast<uint64_t>(gradients())) /
         static_cast<int64_t>(sizeof(float));
}

void CudaExecutor::SegmentList::begin(int64_t to, int64_t size) {
  targets.push_back(to);
  ends.push_back((ends.empty() ? 0 : ends.back()) + size);
  starts.push_back(static_cast<uint32_t>(sources.size()));
}

void CudaExecutor::add_all(const std::vector<Addition>& pieces) {
  if (pieces.empty()) return;
  std::vector<GradientRange> targets;
  targets.reserve(pieces.size());
  for (const Addition& p : pieces) targets.push_back({p.to, p.size});
  sort_targets(targets);
  SegmentList list;
  std::vector<uint32_t> cluster;
  for (size_t i = 0; i < order_.size();) {
    cluster.assign(1, order_[i]);
    int64_t end = targets[order_[i]].at + targets[order_[i]].size;
    for (++i; i < order_.size() && targets[order_[i]].at < end; ++i) {
      end = std::max(end, targets[order_[i]].at + targets[order_[i]].size);
      cluster.push_back(order_[i]);
    }
    add_cluster(pieces, cluster, list);
  }
  launch_segments(list);
}

// Pieces whose targets overlap: cut where one of them begins or ends.
void CudaExecutor::add_cluster(const std::vector<Addition>& pieces, std::vector<uint32_t>& cluster,
                               SegmentList& list) {
  std::sort(cluster.begin(), cluster.end());
  std::vector<int64_t> cuts;
  for (const uint32_t p : cluster) {
    cuts.push_back(pieces[p].to);
    cuts.push_back(pieces[p].to + pieces[p].size);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    list.begin(cuts[c], cuts[c + 1] - cuts[c]);
    for (const uint32_t p : cluster)
      if (pieces[p].to <= cuts[c] && cuts[c] < pieces[p].to + pieces[p].size)
        list.sources.push_back(pieces[p].from + cuts[c] - pieces[p].to);
  }
}

void CudaExecutor::launch_segments(SegmentList& list) {
  if (list.targets.empty()) return;
  list.starts.push_back(static_cast<uint32_t>(list.sources.size()));
  cuda::Segments s{};
  s.to = gradients();
  s.from = gradients();
  s.targets = batch_.put(list.targets);
  s.sources = batch_.put(list.sources);
  s.starts = batch_.put(list.starts);
  s.ends = batch_.put(list.ends);
  s.fresh = list.fresh.empty() ? nullptr : batch_.put(list.fresh);
  s.count = static_cast<uint32_t>(list.targets.size());
  cuda::LaunchArgs r;
  r.count = s.count;
  r.extra = batch_.put(&s, 1);
  const bool many = list.sources.size() >= kManyPieces * list.targets.size();
  batch_.launch(CudaDevice::kernel_id(many ? cuda::kAddMany : cuda::kAddFew), r,
                list.ends.back() * (many ? 32 : 1));
  if (!many) note_segments(list);
}

// Units of the launch made last: as large as all segments have a whole number of.
void CudaExecutor::note_segments(const SegmentList& list) {
  constexpr size_t kMost = 64;
  if (!batch_.keeps_weights() || list.sources.size() > kMost || list.targets.size() > kMost) return;
  int64_t period = 0, largest = 0;
  for (size_t i = 0; i < list.ends.size(); ++i) {
    const int64_t size = list.ends[i] - (i ? list.ends[i - 1] : 0);
    period = std::gcd(period, size);
    largest = std::max(largest, size);
  }
  if (period == 0) return;
  const auto access = [&](const std::vector<int64_t>& places, bool writes) {
    return access_to(gradients(), static_cast<int64_t>(places.size()), largest, period, writes,
                     [&](int64_t i) { return places[static_cast<size_t>(i)]; });
  };
  std::vector<Access> accesses{access(list.targets, true)};
  if (!list.sources.empty()) accesses.push_back(access(list.sources, false));
  batch_.note_sliced(period, true, std::move(accesses));
}

}  // namespace dyc
