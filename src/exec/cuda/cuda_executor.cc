#include "exec/cuda/cuda_executor.h"

#include <algorithm>

#include "base/error.h"
#include "cuda/abi/argmax.h"
#include "exec/cuda/parameters.h"

namespace dyc {

namespace {

constexpr int64_t kWholeLaunch =
    1 << 14;  // floats of a launch that all come down when one of them is asked for
constexpr int64_t kFewFloats = 1 << 12;  // of a launch, which take no longer to come down than indices
constexpr int64_t kGap = 64;             // floats between two spans that come down together

}  // namespace

CudaExecutor::CudaExecutor(Graph& graph, Plan& plan, CudaDevice& device)
    : Executor(graph, plan),
      device_(device),
      values_memory_(device.backend(), "value arena"),
      gradients_memory_(device.backend(), "gradient arena"),
      largest_memory_(device.backend(), "indices of largest values"),
      batch_(device) {}

// ---------------------------------------------------------------- values

void CudaExecutor::forward(uint32_t& next, uint32_t end) {
  if (next >= end) return;
  const auto lock = device_.lock();
  try {
    upload_leaves(next, end);
    unsynced_ = {0, 0};
    uint32_t chain_end = next, fused_end = next;  // of what the last head is fused with
    for (uint32_t i = next; i < end; ++i) {
      const Launch& l = plan_.launches[i];
      const LaunchTimer watch(*this, i, i + 1, false);
      run(l, i < chain_end);
      counters.launches += i >= fused_end;  // as the plan has them; see device_counters() for the device's
      chain_end = std::max(chain_end, i + 1 + l.elementwise);
      fused_end = std::max(fused_end, i + 1 + l.elementwise + l.fused);
      submit_watched();
    }
    submit();
  } catch (...) {
    forget();
    device_.rethrow();
  }
  fetched_.resize(end);
  std::fill(fetched_.begin() + next, fetched_.end(), 0);
  largest_.resize(end);
  for (uint32_t i = next; i < end; ++i) largest_[i].clear();
  run_ = next = end;
}

void CudaExecutor::submit() {
  batch_.submit();
  scaled_.clear();
  forget();
}

// Somebody wants to know how long each launch takes: each for itself.
void CudaExecutor::submit_watched() {
  if (!profiling && !trace) return;
  submit();
  device_.backend().wait();
}

void CudaExecutor::forget() {
  batch_.discard();
  for (const uint32_t uid : scaled_) device_.parameters().drop_scaled(uid);
  scaled_.clear();
  for (const uint32_t s : shapes_known_) shapes_[s] = nullptr;
  shapes_known_.clear();
  index_from_ = index_at_ = nullptr;
  needs_grid_sync_ = true;
}

// Launches [begin, end) are about to run. What lies between the results of demands was written by the host;
// all of that may be new if launches run again.
void CudaExecutor::upload_leaves(uint32_t begin, uint32_t end) {
  const int64_t top = graph_.values_arena.top();
  values_memory_.reserve(static_cast<size_t>(top) * 4, static_cast<size_t>(uploaded_until_) * 4);
  if (begin < run_)
    for (const ArenaRange& s : host_ranges_) upload(s);
  if (mapped_launches_ >= end) return;
  int64_t low = top, high = uploaded_until_;
  for (uint32_t i = mapped_launches_; i < end; ++i) {
    const Launch& l = plan_.launches[i];
    low = std::min(low, l.out);
    high = std::max(high, l.out + l.total);
  }
  upload_until(low);
  uploaded_until_ = std::max(uploaded_until_, high);
  mapped_launches_ = end;
}

void CudaExecutor::upload_until(int64_t place) {
  if (uploaded_until_ >= place) return;
  host_ranges_.push_back({uploaded_until_, place});
  upload(host_ranges_.back());
  uploaded_until_ = place;
}

// begin_backward() has taken room for gradients of parameters from the arena: no values lie there.
void CudaExecutor::skip_slots() {
  const int64_t top = graph_.values_arena.top();
  int64_t first = top;
  for (const ParameterUse& use : graph_.parameters())
    if (use.slot >= uploaded_until_) first = std::min(first, use.slot);
  if (first == top) return;
  values_memory_.reserve(static_cast<size_t>(top) * 4, static_cast<size_t>(uploaded_until_) * 4);
  upload_until(first);
  uploaded_until_ = top;
}

void CudaExecutor::upload(ArenaRange part) {
  device_.backend().upload(values_memory_.address() + static_cast<uint64_t>(part.begin) * 4,
                           graph_.values_arena.base() + part.begin,
                           static_cast<size_t>(part.end - part.begin) * 4);
}

void CudaExecutor::fetch_values(uint32_t launch, int64_t place, size_t floats) {
  if (fetched_[launch]) return;
  const auto lock = device_.lock();
  const Launch& l = plan_.launches[launch];
  if (l.total <= kWholeLaunch) {
    place = l.out;
    floats = static_cast<size_t>(l.total);
    fetched_[launch] = 1;
  }
  try {
    device_.backend().download(graph_.values_arena.base() + place,
                               values_memory_.address() + static_cast<uint64_t>(place) * 4, floats * 4);
  } catch (...) {
    fetched_[launch] = 0;
    device_.rethrow();
  }
}

// Of all results of the launch at once: the others are asked for next.
uint32_t CudaExecutor::argmax(uint32_t launch, int64_t place) {
  const Launch& l = plan_.launches[launch];
  if (fetched_[launch] || l.total <= kFewFloats || !finds_largest_) return kNone;
  const uint32_t member = node_at(l, place);
  if (member == kNone) return kNone;
  if (largest_[launch].empty()) {
    const auto lock = device_.lock();
    try {
      find_largest(launch);
    } catch (const Error&) {
      forget();
      if (device_.backend().lost()) device_.rethrow();
      finds_largest_ = false;  // no memory, or no kernel; the values are there
      return kNone;
    } catch (...) {
      forget();
      throw;
    }
  }
  return largest_[launch][member];
}

void CudaExecutor::find_largest(uint32_t launch) {
  const Launch& l = plan_.launches[launch];
  const size_t bytes = l.count * sizeof(uint32_t);
  largest_memory_.reserve(bytes, 0);
  cuda::LaunchArgs r;
  r.count = l.count;
  encode_results(l, r);
  const cuda::Argmax extra{largest_memory_.at<uint32_t>()};
  r.extra = batch_.put(&extra, 1);
  batch_.launch_blocks(CudaDevice::kernel_id(cuda::kArgmax), r, std::min(l.count, device_.most_blocks()));
  submit();
  std::vector<uint32_t> found(l.count);
  device_.backend().download(found.data(), largest_memory_.address(), bytes);
  largest_[launch] = std::move(found);
}

uint32_t CudaExecutor::node_at(const Launch& l, int64_t place) const {
  if (l.uniform) return static_cast<uint32_t>((place - l.out) / graph_.sig_number(l.sig).size);
  const int64_t* const outs = plan_.index.data() + l.out_index;
  const int64_t* const found = std::lower_bound(outs, outs + l.count, place);
  return found < outs + l.count && *found == place ? static_cast<uint32_t>(found - outs) : kNone;
}

const float* CudaExecutor::parameter_values(ParameterUse& use) {
  return graph_.parameter_values(use, [&](float* to) {
    const auto lock = device_.lock();
    try {
      if (use.on_device && device_.parameters().download(*use.storage, use.version, to)) return;
    } catch (...) {
      device_.rethrow();
    }
    std::copy_n(use.pinned, use.storage->size(), to);
  });
}

void CudaExecutor::cut_back(uint32_t launches) {
  DeviceLock lock;  // first, as it may throw
  if (launches == 0) lock = device_.lock();
  mapped_launches_ = std::min(mapped_launches_, launches);
  run_ = std::min(run_, launches);
  if (fetched_.size() > launches) fetched_.resize(launches);
  const int64_t top = graph_.values_arena.top();
  uploaded_until_ = std::min(uploaded_until_, top);
  while (!host_ranges_.empty() && host_ranges_.back().begin >= top) host_ranges_.pop_back();
  if (!host_ranges_.empty()) host_ranges_.back().end = std::min(host_ranges_.back().end, top);
  if (launches == 0) device_.parameters().forget();
}

// ---------------------------------------------------------------- gradients

void CudaExecutor::fetch_gradients(int64_t place, size_t floats) {
  const auto lock = device_.lock();
  try {
    download_gradients({{place, place + static_cast<int64_t>(floats)}});
  } catch (...) {
    device_.rethrow();
  }
}

void CudaExecutor::download_gradients(std::vector<ArenaRange> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const ArenaRange& a, const ArenaRange& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < spans.size();) {
    ArenaRange s = spans[i];
    while (++i < spans.size() && spans[i].begin <= s.end + kGap) s.end = std::max(s.end, spans[i].end);
    device_.backend().download(grads() + s.begin,
                               gradients_memory_.address() + static_cast<uint64_t>(s.begin) * 4,
                               static_cast<size_t>(s.end - s.begin) * 4);
  }
}

void CudaExecutor::backward(NodeId root, const std::vector<uint8_t>& live,
                            const std::vector<uint32_t>& live_nodes) {
  {
    const auto lock = device_.lock();
    try {
      run_backward(root, live, live_nodes);
    } catch (...) {
      forget();
      device_.rethrow();
    }
  }
  forget_unreached();
  if (direct_) accumulate();
}

void CudaExecutor::run_backward(NodeId root, const std::vector<uint8_t>& live,
                                const std::vector<uint32_t>& live_nodes) {
  const size_t bytes = static_cast<size_t>(graph_.values_arena.top()) * 4;
  skip_slots();
  gradients_memory_.reserve(bytes, 0);
  device_.backend().clear(gradients_memory_.address(), bytes);
  reached_.assign(graph_.parameters().size(), 0);
  seed(root);
  for (uint32_t i = static_cast<uint32_t>(plan_.launches.size()); i-- > 0;) {
    if (!live_nodes[i]) continue;
    const LaunchTimer watch(*this, i, i + 1, true, live_nodes[i]);
    back_live(plan_.launches[i], live, live_nodes[i]);
    submit_watched();
  }
  const int64_t start = profile_clock();
  {
    const ProfileTrace::Scope weights(trace, ProfileSpan::weights, "weight gradients");
    run_all_deferred();
    submit_watched();
  }
  if (profiling) charge_weights(1e-9 * static_cast<double>(profile_clock() - start));
  submit();
}

void CudaExecutor::seed(NodeId root) {
  int64_t at = graph_.offset_of(root);
  if (at < 0) {
    const ParameterUse& use = graph_.parameter_use(graph_.base_of(root));
    if (use.gradient < 0) return;
    reached_[&use - graph_.parameters().data()] = 1;
    at = use.gradient;
  }
  const float one = 1.f;
  device_.backend().upload(gradients_memory_.address() + static_cast<uint64_t>(at) * 4, &one, sizeof one);
}

// Nothing was added to the gradients of other parameters than the reached ones.
void CudaExecutor::forget_unreached() {
  for (ParameterUse& use : graph_.parameters()) {
    const bool reached = reached_[&use - graph_.parameters().data()] || graph_.offset_of(use.node) >= 0;
    if (!reached) use.gradient = -1;
  }
}

const float* CudaExecutor::parameter_gradient(NodeId id) {
  const ParameterUse& use = graph_.parameter_use(id);
  if (use.gradient < 0) return nullptr;
  fetch_gradients(use.gradient, use.storage->size());
  return grads() + use.gradient;
}

}  // namespace dyc
