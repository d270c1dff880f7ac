#include "base/storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/instance.h"
#include "base/lasting_memory.h"
#include "base/tuning.h"

namespace dyc {

namespace {

constexpr size_t kAlign = 64;
constexpr auto kLasting = FloatBuffer::Kind::lasting;
bool sharing = false;

uint32_t next_uid() {
  static std::atomic<uint32_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

uint64_t next_version() {
  static std::atomic<uint64_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed) + 1;
}

size_t bytes_of(size_t floats) { return floats * sizeof(float) + kAlign; }

void* map_shared(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

}  // namespace

void share_new_storages(bool on) { sharing = on; }

FloatBuffer::FloatBuffer(size_t size, bool zeroed, Kind kind) : size_(size), kind_(kind) {
  const size_t bytes = bytes_of(size);
  if (kind == Kind::shared) block_ = map_shared(bytes);
  if (kind == Kind::lasting && !(block_ = take_lasting(bytes))) kind_ = Kind::ordinary;
  if (kind_ == Kind::ordinary) block_ = zeroed ? std::calloc(bytes, 1) : std::malloc(bytes);
  if (!block_)
    throw MemoryError(text("out of memory: a parameter buffer of ", size, " floats was requested"));
  const auto address = reinterpret_cast<uintptr_t>(block_);
  data_ = reinterpret_cast<float*>((address + kAlign - 1) / kAlign * kAlign);
}

FloatBuffer::~FloatBuffer() {
  if (!block_ || kind_ == Kind::ordinary) std::free(block_);
  else if (kind_ == Kind::shared) munmap(block_, bytes_of(size_));
  else free_lasting(block_, bytes_of(size_));
}

FloatBuffer::FloatBuffer(FloatBuffer&& other) noexcept
    : block_(std::exchange(other.block_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      kind_(other.kind_) {}

FloatBuffer& FloatBuffer::operator=(FloatBuffer&& other) noexcept {
  std::swap(block_, other.block_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(kind_, other.kind_);
  return *this;
}

Storage::Storage(std::string full_name, const Dim& dims, std::optional<uint32_t> row_count,
                 std::shared_ptr<WeightDecay> wd)
    : uid(next_uid()),
      name(std::move(full_name)),
      dim(dims),
      rows(row_count.value_or(0)),
      decay(std::move(wd)),
      row_size_(dims.batch_size()),
      lookup_(row_count.has_value()),
      shared_(sharing) {
  buffers_.emplace_back();
  buffers_[0].buffer = FloatBuffer(size(), false, shared_ ? FloatBuffer::Kind::shared : kLasting);
  buffers_[0].version = next_version();
}

Storage::~Storage() = default;

// ------------------------------------------------------------------------------------------ values

void Storage::sync_values(bool contents) const {
  device_->sync_values(*const_cast<Storage*>(this), contents);
}

// Its values are what the other instances compute with, sooner or later.
void Storage::check_writable() const {
  if (inside_instance) [[unlikely]]
    refuse_inside_instance(text("values of parameter ", name).c_str(),
                           "make and change parameters before or after it");
}

// One that is neither current nor pinned, made if there is none. More than two come and go.
size_t Storage::spare_buffer() {
  for (size_t i = buffers_.size(); i-- > 0;)
    if (i != current_ && buffers_[i].pins == 0) return i;
  FloatBuffer buffer(size(), false, buffers_.size() < 2 ? kLasting : FloatBuffer::Kind::ordinary);
  buffers_.emplace_back();
  buffers_.back().buffer = std::move(buffer);
  return buffers_.size() - 1;
}

// After this the current buffer is not pinned. keep: it holds the values it had before.
void Storage::make_writable(bool keep) {
  if (buffers_[current_].pins == 0 || shared_) return;
  const size_t spare = spare_buffer();
  ValueBuffer& target = buffers_[spare];
  ValueBuffer& old = buffers_[current_];
  if (keep && target.all_stale) {
    std::memcpy(target.buffer.data(), old.buffer.data(), size() * sizeof(float));
  } else if (keep) {
    for (uint32_t row : target.stale_rows) {
      const size_t offset = row * row_size_;
      std::memcpy(target.buffer.data() + offset, old.buffer.data() + offset, row_size_ * sizeof(float));
    }
  }
  // The old buffer equals the new one until the caller writes; mark_others_stale() follows.
  old.all_stale = !keep;
  old.stale_rows.clear();
  target.all_stale = false;
  target.stale_rows.clear();
  target.version = next_version();
  target.on_device = false;
  current_ = spare;
}

// The current buffer is about to change, in these rows or (nullptr) anywhere.
void Storage::mark_others_stale(const std::vector<uint32_t>* changed) {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    ValueBuffer& v = buffers_[i];
    if (i == current_ || v.all_stale) continue;
    if (changed && v.stale_rows.size() + changed->size() < rows) {
      v.stale_rows.insert(v.stale_rows.end(), changed->begin(), changed->end());
    } else {
      v.all_stale = true;
      v.stale_rows.clear();
    }
  }
}

float* Storage::begin_write(bool keep) {
  check_writable();
  if (device_) sync_values(keep);
  make_writable(keep);
  if (buffers_.size() > 1) mark_others_stale(nullptr);
  buffers_[current_].version = next_version();
  buffers_[current_].on_device = false;
  return buffers_[current_].buffer.data();
}

float* Storage::begin_write_rows(const std::vector<uint32_t>& changed) {
  check_writable();
  if (device_) sync_values(true);
  make_writable(true);
  if (buffers_.size() > 1) mark_others_stale(&changed);
  buffers_[current_].version = next_version();
  return buffers_[current_].buffer.data();
}

const float* Storage::pin() {
  ValueBuffer& v = buffers_[current_];
  ++v.pins;
  return v.buffer.data();
}

void Storage::pin_again(const float* buffer) {
  for (ValueBuffer& v : buffers_)
    if (v.buffer.data() == buffer && v.pins > 0) {
      ++v.pins;
      return;
    }
  throw RuntimeError(text("pin_again(): parameter ", name, " has no such pinned buffer"));
}

void Storage::unpin(const float* buffer) {
  size_t found = buffers_.size(), spare = buffers_.size();
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].buffer.data() == buffer) found = i;
    else if (i != current_ && buffers_[i].pins == 0) spare = i;
  }
  if (found == buffers_.size() || buffers_[found].pins == 0)
    throw RuntimeError(text("unpin(): parameter ", name, " has no such pinned buffer"));
  if (--buffers_[found].pins > 0 || found == current_ || spare == buffers_.size()) return;
  // A second spare buffer is of no use.
  buffers_.erase(buffers_.begin() + static_cast<ptrdiff_t>(found));
  if (current_ > found) --current_;
}

// ------------------------------------------------------------------------- values that a device has

bool Storage::host_lacks(uint64_t version) const {
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (buffers_[i].version == version)
      return buffers_[i].on_device && (i == current_ || buffers_[i].pins > 0);
  return false;
}

void Storage::prepare_device_write() {
  check_writable();
  if (pinned()) spare_buffer();
}

uint64_t Storage::begin_device_write(DeviceMirror& device) {
  make_writable(false);
  if (buffers_.size() > 1) mark_others_stale(nullptr);
  device_ = &device;
  buffers_[current_].on_device = true;
  return buffers_[current_].version = next_version();
}

void Storage::restore_lost(const float* values) {
  make_writable(false);
  if (buffers_.size() > 1) mark_others_stale(nullptr);
  buffers_[current_].on_device = false;
  buffers_[current_].version = next_version();
  std::memcpy(buffers_[current_].buffer.data(), values, size() * sizeof(float));
}

// ---------------------------------------------------------------------------------------- gradient

void Storage::sync_grad() const {
  if (grad_location_ == GradLocation::device) device_->sync_grad(*const_cast<Storage*>(this));
}

void Storage::allocate_grad() {
  if (!grad_.allocated()) grad_ = FloatBuffer(size(), true, kLasting);
}

std::vector<uint32_t> Storage::rows_with_grad() const {
  std::vector<uint32_t> found;
  if (dense_grad_ || touched_.size() > rows / tuning::kSortedRows) {
    for (uint32_t row = 0; row < rows; ++row)
      if (dense_grad_ || row_state_[row] == kTouched) found.push_back(row);
  } else {
    found = touched_;
    std::sort(found.begin(), found.end());
  }
  return found;
}

float* Storage::grad(bool* unset) {
  grad_written();
  grad_from_file_ = false;
  if (dense_grad_) return grad_.data();
  allocate_grad();
  if (row_state_.empty()) {
    if (unset) *unset = true;
    else std::memset(grad_.data(), 0, size() * sizeof(float));
  } else {
    for (uint32_t row = 0; row < rows; ++row)
      if (row_state_[row] == kUntouched)
        std::memset(grad_.data() + row * row_size_, 0, row_size_ * sizeof(float));
  }
  has_grad_ = dense_grad_ = true;
  return grad_.data();
}

float* Storage::grad_row(uint32_t row, bool* unset) {
  if (row >= rows) throw IndexError(text("gradient of ", name, ": row ", row, " of ", rows, " rows"));
  grad_written();
  allocate_grad();
  if (row_state_.empty()) row_state_.assign(rows, kUntouched);
  float* target = grad_.data() + row * row_size_;
  if (dense_grad_ || row_state_[row] == kTouched) return target;
  touched_.push_back(row);
  if (row_state_[row] != kUntouched) --waiting_;
  else if (unset) *unset = true;
  else std::memset(target, 0, row_size_ * sizeof(float));
  row_state_[row] = kTouched;
  has_grad_ = true;
  return target;
}

void Storage::clear_grad() {
  for (uint32_t row : touched_) row_state_[row] = kUntouched;
  if (dense_grad_) {
    row_state_.clear();
    waiting_ = 0;
  }
  touched_.clear();
  has_grad_ = dense_grad_ = grad_from_file_ = single_rows_ = false;
  grad_location_ = GradLocation::host;
}

void Storage::grad_added_on_device(DeviceMirror& device) {
  device_ = &device;
  grad_location_ = GradLocation::device;
  has_grad_ = dense_grad_ = true;
  grad_from_file_ = false;
}

void Storage::rows_added_on_device(DeviceMirror& device, const std::vector<uint32_t>& changed) {
  if (row_state_.empty()) row_state_.assign(rows, kUntouched);
  for (const uint32_t row : changed) {
    if (dense_grad_ || row_state_[row] == kTouched) continue;
    touched_.push_back(row);
    row_state_[row] = kTouched;
  }
  device_ = &device;
  grad_location_ = GradLocation::device;
  has_grad_ = true;
}

void Storage::grad_mirrored(DeviceMirror& device) {
  device_ = &device;
  grad_location_ = GradLocation::both;
}

float* Storage::grad_host_buffer() {
  allocate_grad();
  return grad_.data();
}

std::vector<float> Storage::copy_grad() const {
  sync_grad();
  std::vector<float> copy(size(), 0.f);
  if (dense_grad_) std::copy(grad_.data(), grad_.data() + size(), copy.begin());
  if (!dense_grad_ && !row_state_.empty()) {
    for (uint32_t row = 0; row < rows; ++row) {
      if (row_state_[row] == kUntouched) continue;
      const float* source = grad_.data() + row * row_size_;
      std::copy(source, source + row_size_, copy.begin() + static_cast<ptrdiff_t>(row * row_size_));
    }
  }
  return copy;
}

void Storage::reserve_restore(bool grad) {
  check_writable();
  if (device_) sync_values(true);
  grad_written();
  if (grad) allocate_grad();
  if (grad && is_lookup() && row_state_.empty()) row_state_.assign(rows, kUntouched);
  make_writable(true);
}

void Storage::restore(const float* source, const float* grad) {
  grad_written();
  if (grad) reserve_restore(true);
  set_values(source);
  if (!is_lookup() || dense_grad_) {
    if (!grad && !grad_to_save()) return clear_grad();
    grad_from_file_ = !grad_to_save();
    has_grad_ = dense_grad_ = true;
    if (grad) std::memcpy(grad_.data(), grad, size() * sizeof(float));
    else std::memset(grad_.data(), 0, size() * sizeof(float));
    return;
  }
  for (uint32_t row = 0; row < row_state_.size(); ++row) {
    const size_t at = row * row_size_;
    const auto is_zero = [](float g) { return g == 0.f; };
    if (row_state_[row] != kTouched) {
      const bool empty = !grad || std::all_of(grad + at, grad + at + row_size_, is_zero);
      waiting_ += (empty ? 0 : 1) - (row_state_[row] == kWaiting ? 1 : 0);
      row_state_[row] = empty ? kUntouched : kWaiting;
      if (empty) continue;
    }
    if (grad) std::memcpy(grad_.data() + at, grad + at, row_size_ * sizeof(float));
    else std::memset(grad_.data() + at, 0, row_size_ * sizeof(float));
  }
}

// --------------------------------------------------------------------------------- direct changes

void Storage::set_values(const float* source) {
  if (size() != 0) std::memmove(begin_write(false), source, size() * sizeof(float));
}

void Storage::set_row(uint32_t row, const float* source) {
  if (row >= rows)
    throw IndexError(text("init_row(): row ", row, " of ", name, ", which has ", rows, " rows"));
  if (row_size_ == 0) return;  // the source may be null
  std::memmove(begin_write_rows({row}) + row * row_size_, source, row_size_ * sizeof(float));
}

void Storage::scale_values(float factor) {
  const float* old = values();
  float* out = begin_write(false);
  const size_t n = size();
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) out[i] = old[i] * factor;
}

void Storage::scale_grad(float factor) {
  grad_written();
  const auto scale = [factor](float* g, size_t n) {
    for (size_t i = 0; i < n; ++i) g[i] *= factor;
  };
  if (dense_grad_) return scale(grad_.data(), size());
  for (uint32_t row = 0; row < row_state_.size(); ++row)
    if (row_state_[row] != kUntouched) scale(grad_.data() + row * row_size_, row_size_);
}

void Storage::clip_effective(float low, float high) {
  const float w = decay->factor;
  const float* old = values();
  float* out = begin_write(false);
  const size_t n = size();
  for (size_t i = 0; i < n; ++i) out[i] = std::min(std::max(old[i] * w, low), high) / w;
}

}  // namespace dyc
