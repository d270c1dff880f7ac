// Values and gradients of one Parameters or LookupParameters object; knows no graph.
//
// A graph that has evaluated a parameter node keeps seeing the values of that moment (DyNet copies
// them into the graph). Here nothing is copied: the graph pins the current buffer, and a writer that
// finds it pinned writes into another one, which becomes current. An unpinned buffer is written in
// place. At most one spare buffer is kept, so a parameter takes at most twice its size (plus what is
// still pinned).
//
// Not thread-safe: pins, writes and gradients happen under the interpreter lock, or in the one backward pass
// and the updates that others wait for (bindings/background.h). What else runs without it touches pinned
// buffers only, and leaves its gradients to be added afterwards (ParameterTable::hold, Executor::accumulate).
//
// Parameters made while share_new_storages() is on live in memory that forked processes share. They have
// one buffer, written in place: a graph then may see what other processes write meanwhile.
//
// A device that trains has newer values and gradients than the host (DeviceMirror). A reader on the host has
// them copied back first; until then the contents of the host's buffer are undefined.
//
// 55 methods and 19 fields, the methods mostly of one line: each says what one user may do (graph: pin,
// trainer: write, backward pass: add, device: mirror), and all of them keep version, buffers, gradient and
// touched rows consistent.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dim.h"

namespace dyc {

// Running factor w of weight decay, one per root collection: effective value = raw value * factor.
struct WeightDecay {
  float factor = 1.f;
};

// Floats on a cache-line boundary. Zeroed pages come from the system untouched, so a large table
// costs memory only where it is used.
class FloatBuffer {
 public:
  FloatBuffer() = default;
  // `lasting`: about as long as a model (base/lasting_memory.h); `shared`: with the processes that are forked
  // from now on.
  enum class Kind : uint8_t { ordinary, lasting, shared };
  FloatBuffer(size_t size, bool zeroed, Kind kind = Kind::ordinary);
  ~FloatBuffer();
  FloatBuffer(FloatBuffer&& other) noexcept;
  FloatBuffer& operator=(FloatBuffer&& other) noexcept;
  FloatBuffer(const FloatBuffer&) = delete;
  FloatBuffer& operator=(const FloatBuffer&) = delete;

  float* data() { return data_; }
  const float* data() const { return data_; }
  size_t size() const { return size_; }
  bool allocated() const { return block_ != nullptr; }

 private:
  void* block_ = nullptr;
  float* data_ = nullptr;
  size_t size_ = 0;
  Kind kind_ = Kind::ordinary;
};

// Whether values of Storages made from now on are in memory shared with forked processes.
void share_new_storages(bool on);

class Storage;

// A device that has newer values or gradients of Storages than the host. A call may release the interpreter
// lock for a while before it does anything, and throws if the device cannot be read.
class DeviceMirror {
 public:
  virtual ~DeviceMirror() = default;
  // The host is about to read the current values, or (not `contents`) to write all of them. Afterwards the
  // host has them, if contents are wanted.
  virtual void sync_values(Storage& storage, bool contents) = 0;
  // Afterwards the host has the gradient.
  virtual void sync_grad(Storage& storage) = 0;
};

class Storage {
 public:
  // Without rows: Parameters with values of `dim`; with N rows: LookupParameters, N rows of `dim` each. There
  // may be no element at all. The values are undefined until written.
  Storage(std::string name, const Dim& dim, std::optional<uint32_t> rows, std::shared_ptr<WeightDecay> decay);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  const uint32_t uid;   // unique in the process, never reused
  std::string name;     // full name, "/lstm/W_1"
  const Dim dim;        // of one row for lookups
  const uint32_t rows;  // of lookups
  bool updated = true;  // false: trainers skip it
  std::shared_ptr<WeightDecay> decay;

  bool is_lookup() const { return lookup_; }
  size_t row_size() const { return row_size_; }
  size_t size() const { return is_lookup() ? row_size_ * rows : row_size_; }

  // ---- values (raw: the factor of weight decay is not applied)
  const float* values() const {
    if (device_) [[unlikely]]
      sync_values(true);
    return buffer();
  }
  // Where values() are once the host has them.
  const float* buffer() const { return buffers_[current_].buffer.data(); }
  // Number of these values: no others that this or another Storage has or had share it. 0: other processes
  // may write.
  uint64_t version() const { return shared_ ? 0 : buffers_[current_].version; }
  // The buffer to write new values into; becomes current. RuntimeError in an instance of batch_map. `keep`:
  // it starts as a copy of the old values (otherwise its contents are arbitrary and the caller writes every
  // element). It is the old buffer itself unless that is pinned. Reading the old values while writing: take
  // values() first; both stay valid until the next call.
  float* begin_write(bool keep);
  // The same with keep, for a caller that will change only these rows (lookups). The copy made for a
  // pinned table is limited to the rows that differ, so a sparse update does not cost a whole table.
  float* begin_write_rows(const std::vector<uint32_t>& changed);

  // A pinned buffer does not change until unpin(), except that values are copied to it from a device. Pins
  // are counted.
  const float* pin();
  void pin_again(const float* buffer);  // one that is pinned
  void unpin(const float* buffer);

  // ---- values that only a device has
  bool on_device() const { return buffers_[current_].on_device; }
  bool pinned() const { return buffers_[current_].pins > 0; }
  // Are values of this version pinned or current, and only a device has them?
  bool host_lacks(uint64_t version) const;
  bool device_may_write() const { return !shared_; }
  // Afterwards begin_device_write() does not throw.
  void prepare_device_write();
  // The device is about to compute new values: returns their version. It must keep the old ones while they
  // are pinned.
  uint64_t begin_device_write(DeviceMirror& device);
  float* host_buffer() { return buffers_[current_].buffer.data(); }  // for values that are copied back,
  void values_fetched() { buffers_[current_].on_device = false; }    // which is done
  // The device is lost: these values replace those it had.
  void restore_lost(const float* values);

  // ---- gradient: accumulated by backward, cleared (lazily) by trainers
  bool has_grad() const { return has_grad_; }
  bool dense_grad() const { return dense_grad_; }  // lookups: the whole table was touched
  const std::vector<uint32_t>& touched_rows() const { return touched_; }  // in order of first touch
  // Of lookups: those that have a gradient, ascending.
  std::vector<uint32_t> rows_with_grad() const;
  // Floats of the gradient: of the touched rows, or of all.
  size_t grad_size() const { return dense_grad_ ? size() : touched_.size() * row_size_; }
  // Whole gradient, zeroed on first use; marks it dense. With `unset`, the caller zeroes it, if that becomes
  // true.
  float* grad(bool* unset = nullptr);
  float* grad_row(uint32_t row, bool* unset = nullptr);  // lookups: that row's, likewise
  const float* raw_grad() const {                        // last contents, also after clear_grad()
    sync_grad();
    return grad_.data();
  }
  void clear_grad();                     // forgets; contents stay readable in raw_grad()
  std::vector<float> copy_grad() const;  // zeros where nothing was accumulated
  bool row_has_grad(uint32_t row) const { return dense_grad_ || (!row_state_.empty() && row_state_[row]); }
  // True if backward accumulated something: a gradient that only came from a file does not count. That of a
  // table which trainers skip is never cleared, and a file would be twice as large for it: as in DyNet, rows
  // that were only read in batches do not count there.
  bool grad_to_save() const {
    return has_grad_ && !grad_from_file_ && (updated || !lookup_ || dense_grad_ || single_rows_);
  }
  void count_single_rows() { single_rows_ = true; }  // until clear_grad()
  // What a file says; grad nullptr: zeros. As in DyNet, the gradient of Parameters is there for the next
  // update, and that of a table's row waits until backward adds to the row. May throw before it changes
  // anything.
  void restore(const float* values, const float* grad);
  void reserve_restore(bool grad);  // afterwards restore() does not throw

  // ---- a gradient that a device accumulates. The host always knows which rows were touched.
  enum class GradLocation { host, device, both };
  GradLocation grad_location() const { return grad_location_; }
  // Not while rows wait (restore()), nor with values that other processes write.
  bool device_may_add_grad() const { return !shared_ && waiting_ == 0; }
  // The device has added to the whole gradient, or to these rows: to all that is there, which was on the
  // device.
  void grad_added_on_device(DeviceMirror& device);
  void rows_added_on_device(DeviceMirror& device, const std::vector<uint32_t>& rows);
  // The device has a copy of the host's gradient.
  void grad_mirrored(DeviceMirror& device);
  float* grad_host_buffer();  // for a gradient that is copied back: all of it, or its rows at their offsets,
  void grad_fetched() {       // which is done
    if (grad_location_ == GradLocation::device) grad_location_ = GradLocation::both;
  }

  // ---- what Parameters and LookupParameters offer to scripts
  void set_values(const float* source);  // size() values
  void set_row(uint32_t row, const float* source);
  void scale_values(float factor);
  void scale_grad(float factor);
  void clip_effective(float low, float high);  // clips raw * decay->factor

 private:
  struct ValueBuffer {
    FloatBuffer buffer;
    int pins = 0;
    uint64_t version = 0;
    bool on_device = false;  // the contents are not those of `version`, which a device has
    // Rows in which this buffer differs from the current one; unused when all_stale.
    bool all_stale = true;
    std::vector<uint32_t> stale_rows;
  };

  void sync_values(bool contents) const;
  void sync_grad() const;
  void grad_written() {
    sync_grad();
    grad_location_ = GradLocation::host;
  }
  void check_writable() const;
  size_t spare_buffer();
  void make_writable(bool keep);
  void mark_others_stale(const std::vector<uint32_t>* changed);
  void allocate_grad();

  size_t row_size_;
  bool lookup_;
  bool shared_;
  size_t current_ = 0;
  std::vector<ValueBuffer> buffers_;  // all buffers in existence
  DeviceMirror* device_ = nullptr;    // that has, or had, values or the gradient
  FloatBuffer grad_;
  bool has_grad_ = false, dense_grad_ = false;
  bool grad_from_file_ = false;  // what there is was restored, and nothing added since
  bool single_rows_ = false;
  GradLocation grad_location_ = GradLocation::host;
  std::vector<uint32_t> touched_;
  enum : uint8_t { kUntouched, kTouched, kWaiting };  // waiting: restored, not in touched_
  std::vector<uint8_t> row_state_;
  uint32_t waiting_ = 0;  // rows that wait
};

}  // namespace dyc
