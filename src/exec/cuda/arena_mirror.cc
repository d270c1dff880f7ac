#include "exec/cuda/arena_mirror.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "exec/cuda/tuning.h"

namespace dyc {

namespace {

size_t bytes_of(int64_t floats) { return static_cast<size_t>(floats) * sizeof(float); }

bool is_before(const ArenaRange& a, const ArenaRange& b) {
  return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
}

// Of an arena, in ascending order; those with small gaps between them are downloaded as one.
void download(cuda::Backend& backend, const std::vector<ArenaRange>& parts, float* host,
              cuda::Backend::Address device) {
  for (size_t i = 0; i < parts.size();) {
    ArenaRange r = parts[i];
    while (++i < parts.size() && parts[i].begin <= r.end + kFetchGap) r.end = std::max(r.end, parts[i].end);
    backend.download(host + r.begin, device + bytes_of(r.begin), bytes_of(r.end - r.begin));
  }
}

}  // namespace

ArenaMirror::ArenaMirror(Graph& graph, Plan& plan, CudaDevice& device)
    : graph_(graph),
      plan_(plan),
      device_(device),
      values_memory_(std::make_shared<DeviceMemory>(device.backend(), "value arena")),
      gradients_memory_(std::make_shared<DeviceMemory>(device.backend(), "gradient arena")) {}

void ArenaMirror::reserve_values() {
  const size_t bytes = bytes_of(graph_.values_arena.top()), kept = bytes_of(uploaded_until_);
  if (values_memory_.use_count() == 1) return values_memory_->reserve(bytes, kept);
  const auto fresh = std::make_shared<DeviceMemory>(device_.backend(), "value arena");
  fresh->reserve(std::max(bytes, kept), 0);
  if (kept) device_.backend().copy(fresh->address(), values_memory_->address(), kept);
  values_memory_ = fresh;
}

// What is stored between results was written by the host; all of it may be new if launches run again.
void ArenaMirror::upload_for(uint32_t begin, uint32_t end) {
  reserve_values();
  if (begin < launches_run_)
    for (const ArenaRange& r : host_ranges_) upload(r);
  if (mapped_launches_ >= end) return;
  int64_t low = graph_.values_arena.top(), high = uploaded_until_;
  for (uint32_t i = mapped_launches_; i < end; ++i) {
    const Launch& l = plan_.launches[i];
    low = std::min(low, l.out);
    high = std::max(high, l.out + l.total);
  }
  upload_until(low);
  uploaded_until_ = std::max(uploaded_until_, high);
  mapped_launches_ = end;
}

void ArenaMirror::ran(uint32_t begin, uint32_t end) {
  fetched_.resize(end);
  std::fill(fetched_.begin() + begin, fetched_.end(), 0);
  launches_run_ = end;
  reads_.forget_from(begin);
}

void ArenaMirror::upload_until(int64_t offset) {
  if (uploaded_until_ >= offset) return;
  if (graph_.values_arena.packed_end() <= uploaded_until_) {  // padding
    uploaded_until_ = offset;
    return;
  }
  host_ranges_.push_back({uploaded_until_, offset});
  upload(host_ranges_.back());
  uploaded_until_ = offset;
}

void ArenaMirror::upload(ArenaRange r) {
  for (auto it = inputs_.lower_bound(r.begin); it != inputs_.end() && it->first < r.end; ++it) {
    upload_from_host({r.begin, it->first});
    const size_t bytes = it->second.floats * sizeof(float);
    device_.backend().copy(values_memory_->address() + bytes_of(it->first), it->second.memory->address(),
                           bytes);
    r.begin = it->first + static_cast<int64_t>(it->second.floats);
  }
  upload_from_host(r);
}

void ArenaMirror::upload_from_host(ArenaRange r) {
  if (r.begin >= r.end) return;
  device_.backend().upload(values_memory_->address() + bytes_of(r.begin),
                           graph_.values_arena.base() + r.begin, bytes_of(r.end - r.begin));
}

void ArenaMirror::fetch_values(uint32_t launch, int64_t offset, size_t floats) {
  if (fetched_[launch]) return;
  const Launch& l = plan_.launches[launch];
  std::vector<ArenaRange> parts;
  if (l.total <= kFetchWhole) parts = {{l.out, l.out + l.total}};
  else parts = reads_.ask(launch, {offset, offset + static_cast<int64_t>(floats)});
  if (parts.empty()) return;
  DeviceLock lock;
  try {
    lock = device_.lock();
    download(device_.backend(), parts, graph_.values_arena.base(), values_memory_->address());
  } catch (...) {
    reads_.forget_from(launch);
    device_.rethrow();
  }
  fetched_[launch] = l.total <= kFetchWhole;
}

void ArenaMirror::expect_read(uint32_t launch, int64_t offset, size_t floats) {
  if (!fetched_[launch] && plan_.launches[launch].total > kFetchWhole)
    reads_.expect(launch, {offset, offset + static_cast<int64_t>(floats)});
}

ArenaMirror::Memory ArenaMirror::input_at(int64_t offset, int64_t* begin) const {
  auto it = inputs_.upper_bound(offset);
  if (it == inputs_.begin()) return nullptr;
  --it;
  if (offset >= it->first + static_cast<int64_t>(it->second.floats)) return nullptr;
  *begin = it->first;
  return it->second.memory;
}

void ArenaMirror::fetch_input(int64_t offset) {
  int64_t begin = 0;
  if (!input_at(offset, &begin)) return;
  DeviceInput& input = inputs_.at(begin);
  if (input.fetched) return;
  const auto lock = device_.lock();
  try {
    device_.backend().download(graph_.values_arena.base() + begin, input.memory->address(),
                               input.floats * sizeof(float));
  } catch (...) {
    device_.rethrow();
  }
  input.fetched = true;
}

void ArenaMirror::cut_back(uint32_t launches) {
  mapped_launches_ = std::min(mapped_launches_, launches);
  launches_run_ = std::min(launches_run_, launches);
  if (fetched_.size() > launches) fetched_.resize(launches);
  reads_.forget_from(launches);
  const int64_t top = graph_.values_arena.top();
  uploaded_until_ = std::min(uploaded_until_, top);
  inputs_.erase(inputs_.lower_bound(top), inputs_.end());
  while (!host_ranges_.empty() && host_ranges_.back().begin >= top) host_ranges_.pop_back();
  if (!host_ranges_.empty()) host_ranges_.back().end = std::min(host_ranges_.back().end, top);
}

// Executor::begin_backward() has taken slots for gradients of parameters from the arena: they hold no values.
void ArenaMirror::skip_gradient_slots() {
  const int64_t top = graph_.values_arena.top();
  int64_t first = top;
  for (const ParameterUse& use : graph_.parameters.all())
    if (use.slot >= uploaded_until_) first = std::min(first, use.slot);
  if (first == top) return;
  reserve_values();
  upload_until(first);
  uploaded_until_ = top;
}

void ArenaMirror::clear_gradients() {
  const size_t bytes = bytes_of(graph_.values_arena.top());
  skip_gradient_slots();
  if (gradients_memory_.use_count() > 1)
    gradients_memory_ = std::make_shared<DeviceMemory>(device_.backend(), "gradient arena");
  gradients_memory_->reserve(bytes, 0);
  device_.backend().clear(gradients_memory_->address(), bytes);
}

void ArenaMirror::set_gradient(int64_t offset, float value) {
  device_.backend().upload(gradients_memory_->address() + bytes_of(offset), &value, sizeof value);
}

void ArenaMirror::fetch_gradients(std::vector<ArenaRange> ranges) {
  const auto lock = device_.lock();
  std::sort(ranges.begin(), ranges.end(), is_before);
  try {
    download(device_.backend(), ranges, graph_.grads_arena.base(), gradients_memory_->address());
  } catch (...) {
    device_.rethrow();
  }
}

}  // namespace dyc
