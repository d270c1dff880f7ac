// What processes that train together exchange (dynet_compat/distributed/): values, gradients and hashes of a
// whole collection as flat arrays; and what they hear of trainers.
#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "base/random.h"
#include "bindings/collection_caster.h"
#include "bindings/compute.h"
#include "bindings/float_arrays.h"
#include "bindings/operators.h"
#include "cpu/kernel_table.h"
#include "exec/cuda/device_floats.h"
#include "model/trainer_file.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

using Floats = pb::array_t<float, pb::array::c_style>;
using Bytes = pb::array_t<uint8_t, pb::array::c_style>;
using Keys = pb::array_t<int64_t, pb::array::c_style>;

// What a parameter's gradient is: nothing, some rows of a table, or all elements.
enum GradientKind : uint8_t { kNothing, kRows, kAll };

GradientKind kind_of(const Storage& s) {
  if (!s.has_grad()) return kNothing;
  return s.dense_grad() ? kAll : kRows;
}

std::vector<StoragePtr> storages(const std::shared_ptr<Collection>& collection) {
  wait_for_gradients();
  return collection->storages();
}

constexpr size_t kEnd = SIZE_MAX;

// How many floats storages [begin, end) of the kind kAll have.
size_t checked_kinds(const Bytes& kinds, const std::vector<StoragePtr>& all, size_t begin = 0,
                     size_t end = kEnd) {
  if (static_cast<size_t>(kinds.size()) != all.size())
    throw ValueError(text("expected ", all.size(), " kinds of gradients, one for each parameter; got ",
                          static_cast<size_t>(kinds.size())));
  size_t floats = 0;
  for (size_t i = begin; i < std::min(end, all.size()); ++i)
    if (kinds.data()[i] == kAll) floats += all[i]->size();
  return floats;
}

void check_size(const Floats& array, size_t wanted) {
  if (static_cast<size_t>(array.size()) != wanted)
    throw ValueError(text("expected ", wanted, " float32 values; got ", static_cast<size_t>(array.size())));
}

// Also of gradients that are still to be computed.
Bytes gradient_kinds(const std::shared_ptr<Collection>& collection) {
  wait_for_backward();
  const auto all = collection->storages();
  Bytes kinds(static_cast<pb::ssize_t>(all.size()));
  for (size_t i = 0; i < all.size(); ++i) kinds.mutable_data()[i] = kind_of(*all[i]);
  return kinds;
}

size_t gradient_size(const std::shared_ptr<Collection>& collection, const Bytes& kinds, size_t begin,
                     size_t end) {
  return checked_kinds(kinds, storages(collection), begin, end);
}

// Completes the gradients of parameters [begin, end): those that backward has left to be computed.
void finish_gradients(const std::shared_ptr<Collection>& collection, size_t begin, size_t end) {
  const auto all = collection->storages();
  end = std::min(end, all.size());
  if (begin < end) finish_products(std::span(all).subspan(begin, end - begin));
}

// Gradients of the kind kAll of storages [begin, end), one after the other, into the beginning of `flat`;
// zeros where there is none.
void take_gradients(const std::shared_ptr<Collection>& collection, const Bytes& kinds, Floats& flat,
                    size_t begin, size_t end) {
  const auto all = storages(collection);
  const size_t wanted = checked_kinds(kinds, all, begin, end);
  if (static_cast<size_t>(flat.size()) < wanted)
    throw ValueError(text("wanted an array of ", wanted, " float32 values or more; got ",
                          static_cast<size_t>(flat.size())));
  float* out = flat.mutable_data();
  for (size_t i = begin; i < std::min(end, all.size()); ++i) {
    if (kinds.data()[i] != kAll) continue;
    const Storage& s = *all[i];
    if (s.dense_grad()) {
      std::copy_n(s.raw_grad(), s.size(), out);
    } else {
      std::fill_n(out, s.size(), 0.f);
      for (const uint32_t row : s.touched_rows())
        std::copy_n(s.raw_grad() + row * s.row_size(), s.row_size(), out + row * s.row_size());
    }
    out += s.size();
  }
}

void put_gradients(const std::shared_ptr<Collection>& collection, const Bytes& kinds, const Floats& flat,
                   size_t begin, size_t end) {
  const auto all = storages(collection);
  check_size(flat, checked_kinds(kinds, all, begin, end));
  const float* from = flat.data();
  for (size_t i = begin; i < std::min(end, all.size()); ++i) {
    Storage& s = *all[i];
    s.clear_grad();
    if (kinds.data()[i] != kAll) continue;
    std::copy_n(from, s.size(), s.grad());
    from += s.size();
  }
}

// Those of storages [begin, end) whose gradient is of the kind kAll.
std::vector<StoragePtr> with_all(const std::shared_ptr<Collection>& collection, const Bytes& kinds,
                                 size_t begin, size_t end, bool clears_others) {
  const auto all = storages(collection);
  checked_kinds(kinds, all, begin, end);
  std::vector<StoragePtr> found;
  for (size_t i = begin; i < std::min(end, all.size()); ++i) {
    if (kinds.data()[i] == kAll) found.push_back(all[i]);
    else if (clears_others) all[i]->clear_grad();
  }
  return found;
}

void add_device_floats(pb::module_& m) {
  pb::class_<DeviceFloats>(m, "_DeviceFloats", "Zeros on the device, for other libraries to read and write.")
      .def(pb::init<size_t>(), pb::arg("size"))
      .def_property_readonly("address", &DeviceFloats::address)
      .def(
          "take",
          [](DeviceFloats& f, const std::shared_ptr<Collection>& collection, const Bytes& kinds, size_t begin,
             size_t end) { f.take(with_all(collection, kinds, begin, end, false)); },
          pb::arg("collection"), pb::arg("kinds"), pb::arg("begin") = 0, pb::arg("end") = kEnd)
      .def(
          "put",
          [](const DeviceFloats& f, const std::shared_ptr<Collection>& collection, const Bytes& kinds,
             size_t begin, size_t end) { f.put(with_all(collection, kinds, begin, end, true)); },
          pb::arg("collection"), pb::arg("kinds"), pb::arg("begin") = 0, pb::arg("end") = kEnd);
}

// ------------------------------------------------------------------------------------ rows of tables

// Rows on their way between ranks: how many (int64), their keys (number of the storage << 32 | row),
// ascending, and their values, filled up to 8 bytes.
struct RowMessage {
  std::span<const int64_t> keys;
  const float* values;
};

size_t bytes_of(size_t keys, size_t floats) { return 8 * (1 + keys + (floats + 1) / 2); }

// How many floats the rows have; an error where one does not exist.
size_t floats_of(const std::vector<StoragePtr>& all, std::span<const int64_t> keys) {
  size_t floats = 0;
  for (const int64_t key : keys) {
    const auto at = static_cast<uint64_t>(key) >> 32;
    if (at >= all.size() || !all[at]->is_lookup() || static_cast<uint32_t>(key) >= all[at]->rows)
      throw ValueError(text("row ", static_cast<uint32_t>(key), " of storage ", at, " does not exist"));
    floats += all[at]->row_size();
  }
  return floats;
}

std::vector<RowMessage> messages_in(const std::vector<StoragePtr>& all, const Bytes& bytes,
                                    const Keys& sizes) {
  std::vector<RowMessage> messages;
  const uint8_t* at = bytes.data();
  auto left = static_cast<size_t>(bytes.size());
  for (const int64_t size : std::span(sizes.data(), static_cast<size_t>(sizes.size()))) {
    const auto n = static_cast<size_t>(size);
    const auto* words = reinterpret_cast<const int64_t*>(at);
    if (n > left || n < 8 || words[0] < 0 || static_cast<size_t>(words[0]) >= n / 8)
      throw ValueError(text("a message of ", size, " bytes with rows; ", left, " bytes are left"));
    const std::span keys(words + 1, static_cast<size_t>(words[0]));
    if (bytes_of(keys.size(), floats_of(all, keys)) != n)
      throw ValueError(text("a message with ", keys.size(), " rows has ", n, " bytes"));
    messages.push_back({keys, reinterpret_cast<const float*>(words + 1 + keys.size())});
    at += n;
    left -= n;
  }
  return messages;
}

struct RowInMessage {
  int64_t key;
  const float* values;
};

// The rows of all messages, by ascending keys; those of one key in the order of their messages.
std::vector<RowInMessage> sorted_rows(const std::vector<StoragePtr>& all,
                                      const std::vector<RowMessage>& messages) {
  std::vector<RowInMessage> rows;
  std::vector<ptrdiff_t> runs{0};  // where each begins, and the end
  for (const RowMessage& message : messages) {
    const float* values = message.values;
    for (const int64_t key : message.keys) {
      rows.push_back({key, values});
      values += all[static_cast<size_t>(key >> 32)]->row_size();
    }
    runs.push_back(static_cast<ptrdiff_t>(rows.size()));
  }
  const auto before = [](const RowInMessage& a, const RowInMessage& b) { return a.key < b.key; };
  while (runs.size() > 2) {  // merges neighbours: of hundreds of ranks one after the other takes long
    std::vector<ptrdiff_t> merged{0};
    for (size_t i = 0; i + 1 < runs.size(); i += 2) {
      const size_t end = std::min(i + 2, runs.size() - 1);
      std::inplace_merge(rows.begin() + runs[i], rows.begin() + runs[i + 1], rows.begin() + runs[end],
                         before);
      merged.push_back(runs[end]);
    }
    runs = std::move(merged);
  }
  return rows;
}

std::vector<int64_t> keys_of(const std::vector<RowInMessage>& sorted) {
  std::vector<int64_t> keys;
  for (const RowInMessage& row : sorted)
    if (keys.empty() || keys.back() != row.key) keys.push_back(row.key);
  return keys;
}

// Writes a message with these keys and returns where its values belong.
float* write_keys(uint8_t* to, const std::vector<int64_t>& keys) {
  const auto count = static_cast<int64_t>(keys.size());
  std::memcpy(to, &count, 8);
  if (count) std::memcpy(to + 8, keys.data(), 8 * keys.size());
  return reinterpret_cast<float*>(to + 8 + 8 * keys.size());
}

// How many bytes take_rows() writes with one part; with more, at most 16 for each besides.
size_t row_bytes(const std::shared_ptr<Collection>& collection, const Bytes& kinds) {
  const auto all = storages(collection);
  checked_kinds(kinds, all);
  size_t keys = 0, floats = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (kinds.data()[i] != kRows) continue;
    keys += all[i]->touched_rows().size();
    floats += all[i]->touched_rows().size() * all[i]->row_size();
  }
  return bytes_of(keys, floats);
}

// Into the beginning of `out`, one message for each of `parts` owners with the rows of the kind kRows whose
// number modulo `parts` is the owner's. Returns the sizes of the messages.
Keys take_rows(const std::shared_ptr<Collection>& collection, const Bytes& kinds, Bytes& out, int64_t parts) {
  const auto all = storages(collection);
  checked_kinds(kinds, all);
  std::vector<std::vector<int64_t>> keys(static_cast<size_t>(parts));
  for (size_t i = 0; i < all.size(); ++i) {
    if (kinds.data()[i] != kRows) continue;
    for (const uint32_t row : all[i]->rows_with_grad())  // ascending
      keys[static_cast<size_t>(row % parts)].push_back(static_cast<int64_t>(i) << 32 | row);
  }
  Keys sizes(static_cast<pb::ssize_t>(parts));
  size_t total = 0;
  for (size_t part = 0; part < keys.size(); ++part) {
    const size_t size = bytes_of(keys[part].size(), floats_of(all, keys[part]));
    sizes.mutable_data()[part] = static_cast<int64_t>(size);
    total += size;
  }
  if (static_cast<size_t>(out.size()) < total)
    throw ValueError(text("wanted an array of ", total, " bytes or more; got ", out.size()));
  uint8_t* to = out.mutable_data();
  for (size_t part = 0; part < keys.size(); ++part) {
    float* values = write_keys(to, keys[part]);
    for (const int64_t key : keys[part]) {
      const Storage& s = *all[static_cast<size_t>(key >> 32)];
      const float* from = s.raw_grad() + static_cast<uint32_t>(key) * s.row_size();
      values = std::copy_n(from, s.row_size(), values);
    }
    to += sizes.data()[part];
    std::fill(values, reinterpret_cast<float*>(to), 0.f);
  }
  return sizes;
}

// For each key, writes the sum of its rows, in their order, to where target(key) is.
template <class F>
void add_up(const std::vector<StoragePtr>& all, const std::vector<RowInMessage>& sorted, F&& target) {
  for (auto row = sorted.begin(); row != sorted.end();) {
    const int64_t key = row->key;
    const size_t n = all[static_cast<size_t>(key >> 32)]->row_size();
    float* const to = target(key);
    std::copy_n(row->values, n, to);
    for (++row; row != sorted.end() && row->key == key; ++row)
      for (size_t j = 0; j < n; ++j) to[j] += row->values[j];
  }
}

// One message with the sum of all, in their order.
Bytes sum_rows(const std::shared_ptr<Collection>& collection, const Bytes& bytes, const Keys& sizes) {
  const auto all = storages(collection);
  const auto rows = sorted_rows(all, messages_in(all, bytes, sizes));
  const auto keys = keys_of(rows);
  const size_t floats = floats_of(all, keys);
  Bytes out(static_cast<pb::ssize_t>(bytes_of(keys.size(), floats)));
  float* to = write_keys(out.mutable_data(), keys);
  if (floats % 2) to[floats] = 0.f;
  add_up(all, rows, [&](int64_t key) {
    return std::exchange(to, to + all[static_cast<size_t>(key >> 32)]->row_size());
  });
  return out;
}

// Adds the rows of messages in their order, to gradients that put_gradients() has cleared. Rows are touched
// ascending, so that a norm is summed in one order everywhere.
void add_rows(const std::shared_ptr<Collection>& collection, const Bytes& bytes, const Keys& sizes) {
  const auto all = storages(collection);
  add_up(all, sorted_rows(all, messages_in(all, bytes, sizes)), [&](int64_t key) {
    bool unset = false;
    return all[static_cast<size_t>(key >> 32)]->grad_row(static_cast<uint32_t>(key), &unset);
  });
}

// ------------------------------------------------------------------------------------------ values

Floats take_values(const std::shared_ptr<Collection>& collection) {
  const auto all = storages(collection);
  Floats flat(static_cast<pb::ssize_t>(collection->parameter_count()));
  float* out = flat.mutable_data();
  for (const StoragePtr& s : all) out = std::copy_n(s->values(), s->size(), out);
  return flat;
}

void put_values(const std::shared_ptr<Collection>& collection, const Floats& flat) {
  const auto all = storages(collection);
  check_size(flat, collection->parameter_count());
  const float* from = flat.data();
  for (const StoragePtr& s : all) {
    s->set_values(from);
    from += s->size();
  }
}

// A hash of the bits of n floats, of 64 bits.
uint64_t hash_of(const float* values, size_t n, uint64_t seed) {
  uint64_t lanes[4] = {seed ^ 0x9e3779b97f4a7c15u, seed ^ 0xbf58476d1ce4e5b9u, seed ^ 0x94d049bb133111ebu,
                       seed};
  const auto mix = [](uint64_t lane, uint64_t word) {
    return std::rotl((lane ^ word) * 0x9e3779b97f4a7c15u, 29) * 0xbf58476d1ce4e5b9u;
  };
  uint64_t words[4];
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    std::memcpy(words, values + i, sizeof words);
    for (int k = 0; k < 4; ++k) lanes[k] = mix(lanes[k], words[k]);
  }
  for (; i < n; ++i) lanes[0] = mix(lanes[0], std::bit_cast<uint32_t>(values[i]));
  uint64_t hash = n;
  for (const uint64_t lane : lanes) hash = mix(hash, lane ^ lane >> 31);
  return hash ^ hash >> 32;
}

// One for each parameter: of its raw values and the factor of weight decay.
pb::array_t<uint64_t> value_hashes(const std::shared_ptr<Collection>& collection) {
  const auto all = storages(collection);
  pb::array_t<uint64_t> hashes(static_cast<pb::ssize_t>(all.size()));
  for (size_t i = 0; i < all.size(); ++i)
    hashes.mutable_data()[i] =
        hash_of(all[i]->values(), all[i]->size(), std::bit_cast<uint32_t>(all[i]->decay->factor));
  return hashes;
}

// Of what a trainer keeps from update to update.
uint64_t trainer_hash(const pb::object& trainer) {
  wait_for_gradients();
  const TrainerState s = trainer_state(trainer_of(trainer.ptr()), "trainer_hash()", true);
  const float numbers[] = {s.learning_rate, s.clip_threshold, static_cast<float>(s.updates & 0xffffff),
                           static_cast<float>(s.cycle & 0xffffff)};
  uint64_t hash = hash_of(numbers, std::size(numbers), 0);
  for (const auto* states : {&s.parameters, &s.lookups}) {
    for (const ParameterState& p : *states) {
      for (const auto& array : p.arrays) hash = hash_of(array.data(), array.size(), hash);
      hash = hash_of(p.mean.values.data(), p.mean.values.size(), hash);
    }
  }
  return hash;
}

PyObject* trainer_hooks[5] = {};  // by TrainerHook; null: no function

// By name; hooks without a function are taken away.
void set_trainer_hooks(const pb::kwargs& functions) {
  static constexpr const char* names[] = {"made", "update", "before_save", "after_save", "before_load"};
  static_assert(std::size(names) == std::size(trainer_hooks));
  for (size_t i = 0; i < std::size(names); ++i) {
    PyObject* const old = trainer_hooks[i];
    trainer_hooks[i] = PyDict_GetItemString(functions.ptr(), names[i]);
    Py_XINCREF(trainer_hooks[i]);
    Py_XDECREF(old);
  }
}

pb::bytes random_state() {
  static_assert(std::is_trivially_copyable_v<Random>);
  return {reinterpret_cast<const char*>(&process_random()), sizeof(Random)};
}

void set_random_state(const pb::bytes& state) {
  const auto bytes = static_cast<std::string_view>(state);
  if (bytes.size() != sizeof(Random))
    throw ValueError(text("_set_random_state(): got ", bytes.size(), " bytes; wanted ", sizeof(Random)));
  std::memcpy(static_cast<void*>(&process_random()), bytes.data(), bytes.size());
}

}  // namespace

bool has_trainer_hook(TrainerHook hook) { return trainer_hooks[static_cast<size_t>(hook)]; }

bool call_trainer_hook(TrainerHook hook, PyObject* trainer, PyObject* argument) {
  PyObject* const function = trainer_hooks[static_cast<size_t>(hook)];
  if (!function) [[likely]]
    return true;
  const auto keep = pb::reinterpret_borrow<pb::object>(function);
  const pb::handle given(trainer);
  const pb::object result = argument ? keep(given, pb::handle(argument)) : keep(given);
  return result.ptr() != Py_False;
}

void add_gradients(PyObject* module) {
  auto m = pb::reinterpret_borrow<pb::module_>(module);
  add_device_floats(m);
  m.def("_gradient_kinds", &gradient_kinds, pb::arg("collection"));
  m.def("_gradient_size", &gradient_size, pb::arg("collection"), pb::arg("kinds"), pb::arg("begin") = 0,
        pb::arg("end") = kEnd);
  m.def("_finish_gradients", &finish_gradients, pb::arg("collection"), pb::arg("begin"), pb::arg("end"));
  m.def("_take_gradients", &take_gradients, pb::arg("collection"), pb::arg("kinds"),
        pb::arg("flat").noconvert(), pb::arg("begin") = 0, pb::arg("end") = kEnd);
  m.def("_put_gradients", &put_gradients, pb::arg("collection"), pb::arg("kinds"), pb::arg("flat"),
        pb::arg("begin") = 0, pb::arg("end") = kEnd);
  m.def("_row_bytes", &row_bytes, pb::arg("collection"), pb::arg("kinds"));
  m.def("_keep_products", [](bool keep) { keep_products = keep; }, pb::arg("keep"));
  m.def("_make_updates_here", &make_updates_here);
  m.def(
      "_set_update_in_flight",
      [](const pb::object& wait) { set_update_in_flight(wait.is_none() ? nullptr : wait.ptr()); },
      pb::arg("wait"));
  m.def(
      "_run_update",
      [](const pb::object& trainer, float scale) {
        wait_for_gradients();
        trainer_of(trainer.ptr()).update(scale);
      },
      pb::arg("trainer"), pb::arg("scale"));
  m.def("_take_rows", &take_rows, pb::arg("collection"), pb::arg("kinds"), pb::arg("out").noconvert(),
        pb::arg("parts") = 1);
  m.def("_sum_rows", &sum_rows, pb::arg("collection"), pb::arg("messages"), pb::arg("sizes"));
  m.def("_add_rows", &add_rows, pb::arg("collection"), pb::arg("messages"), pb::arg("sizes"));
  m.def("_take_values", &take_values, pb::arg("collection"));
  m.def("_put_values", &put_values, pb::arg("collection"), pb::arg("flat"));
  m.def("_value_hashes", &value_hashes, pb::arg("collection"));
  m.def("_trainer_hash", &trainer_hash, pb::arg("trainer"));
  m.def("_set_trainer_hooks", &set_trainer_hooks);
  m.def("_random_state", &random_state);
  m.def("_set_random_state", &set_random_state, pb::arg("state"));
  m.def("_best_isa", &best_isa);
  m.def("_allow_empty_sums", [](bool allow) { allow_empty_sums = allow; }, pb::arg("allow"));
}

}  // namespace dyc::py
