// What processes that train together exchange (dynet_compat/distributed/): values, gradients and hashes of a
// whole collection as flat arrays; and what they hear of trainers.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/random.h"
#include "bindings/collection_caster.h"
#include "bindings/compute.h"
#include "bindings/float_arrays.h"
#include "bindings/operators.h"
#include "cpu/kernel_table.h"
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

size_t checked_kinds(const Bytes& kinds, const std::vector<StoragePtr>& all) {
  if (static_cast<size_t>(kinds.size()) != all.size())
    throw ValueError(text("expected ", all.size(), " kinds of gradients, one for each parameter; got ",
                          static_cast<size_t>(kinds.size())));
  size_t floats = 0;
  for (size_t i = 0; i < all.size(); ++i)
    if (kinds.data()[i] == kAll) floats += all[i]->size();
  return floats;
}

void check_size(const Floats& array, size_t wanted) {
  if (static_cast<size_t>(array.size()) != wanted)
    throw ValueError(text("expected ", wanted, " float32 values; got ", static_cast<size_t>(array.size())));
}

// ------------------------------------------------------------------------------- whole collections

Bytes gradient_kinds(const std::shared_ptr<Collection>& collection) {
  const auto all = storages(collection);
  Bytes kinds(static_cast<pb::ssize_t>(all.size()));
  for (size_t i = 0; i < all.size(); ++i) kinds.mutable_data()[i] = kind_of(*all[i]);
  return kinds;
}

size_t gradient_size(const std::shared_ptr<Collection>& collection, const Bytes& kinds) {
  return checked_kinds(kinds, storages(collection));
}

// Gradients of the kind kAll, one after the other, into the beginning of `flat`; zeros where there is none.
void take_gradients(const std::shared_ptr<Collection>& collection, const Bytes& kinds, Floats& flat) {
  const auto all = storages(collection);
  const size_t wanted = checked_kinds(kinds, all);
  if (static_cast<size_t>(flat.size()) < wanted)
    throw ValueError(text("wanted an array of ", wanted, " float32 values or more; got ",
                          static_cast<size_t>(flat.size())));
  float* out = flat.mutable_data();
  for (size_t i = 0; i < all.size(); ++i) {
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

void put_gradients(const std::shared_ptr<Collection>& collection, const Bytes& kinds, const Floats& flat) {
  const auto all = storages(collection);
  check_size(flat, checked_kinds(kinds, all));
  const float* from = flat.data();
  for (size_t i = 0; i < all.size(); ++i) {
    Storage& s = *all[i];
    s.clear_grad();
    if (kinds.data()[i] != kAll) continue;
    std::copy_n(from, s.size(), s.grad());
    from += s.size();
  }
}

// Rows of tables of the kind kRows: keys (number of the storage << 32 | row), ascending, and their values.
pb::tuple take_rows(const std::shared_ptr<Collection>& collection, const Bytes& kinds) {
  const auto all = storages(collection);
  checked_kinds(kinds, all);
  std::vector<int64_t> keys;
  std::vector<float> values;
  for (size_t i = 0; i < all.size(); ++i) {
    if (kinds.data()[i] != kRows) continue;
    for (const uint32_t row : all[i]->rows_with_grad()) {  // so a norm is summed in one order everywhere
      keys.push_back(static_cast<int64_t>(i) << 32 | row);
      const float* from = all[i]->raw_grad() + row * all[i]->row_size();
      values.insert(values.end(), from, from + all[i]->row_size());
    }
  }
  return pb::make_tuple(Keys(static_cast<pb::ssize_t>(keys.size()), keys.data()),
                        Floats(static_cast<pb::ssize_t>(values.size()), values.data()));
}

// Adds rows in the order given, to gradients that put_gradients() has cleared.
void add_rows(const std::shared_ptr<Collection>& collection, const Keys& keys, const Floats& values) {
  const auto all = storages(collection);
  const int64_t* key = keys.data();
  const auto n = static_cast<size_t>(keys.size());
  size_t floats = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<uint64_t>(key[i]) >> 32;
    if (at >= all.size() || !all[at]->is_lookup() || static_cast<uint32_t>(key[i]) >= all[at]->rows)
      throw ValueError(text("row ", static_cast<uint32_t>(key[i]), " of storage ", at, " does not exist"));
    floats += all[at]->row_size();
  }
  check_size(values, floats);
  std::vector<int64_t> first(key, key + n);
  std::sort(first.begin(), first.end());
  for (const int64_t k : first) all[static_cast<size_t>(k >> 32)]->grad_row(static_cast<uint32_t>(k));
  const float* from = values.data();
  for (size_t i = 0; i < n; ++i) {
    Storage& s = *all[static_cast<size_t>(key[i] >> 32)];
    float* to = s.grad_row(static_cast<uint32_t>(key[i]));
    for (size_t j = 0; j < s.row_size(); ++j) to[j] += from[j];
    from += s.row_size();
  }
}

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

// ------------------------------------------------------------------------------------------ hashes

// Of the bits of n floats: equal for equal bits, and different, but for one chance in 2^64, for others.
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

// ------------------------------------------------------------------------------------------- hooks

PyObject* trainer_hooks[6] = {};  // by TrainerHook; null: no function

// By name; hooks without a function are taken away.
void set_trainer_hooks(const pb::kwargs& functions) {
  static constexpr const char* names[] = {"made",        "before_update", "after_update",
                                          "before_save", "after_save",    "before_load"};
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

bool call_trainer_hook(TrainerHook hook, PyObject* trainer) {
  PyObject* const function = trainer_hooks[static_cast<size_t>(hook)];
  if (!function) [[likely]]
    return true;
  const auto keep = pb::reinterpret_borrow<pb::object>(function);
  const auto result = pb::reinterpret_steal<pb::object>(PyObject_CallOneArg(function, trainer));
  if (!result) throw PythonError();
  return result.ptr() != Py_False;
}

void add_gradients(PyObject* module) {
  auto m = pb::reinterpret_borrow<pb::module_>(module);
  m.def("_gradient_kinds", &gradient_kinds, pb::arg("collection"));
  m.def("_gradient_size", &gradient_size, pb::arg("collection"), pb::arg("kinds"));
  m.def("_take_gradients", &take_gradients, pb::arg("collection"), pb::arg("kinds"),
        pb::arg("flat").noconvert());
  m.def("_put_gradients", &put_gradients, pb::arg("collection"), pb::arg("kinds"), pb::arg("flat"));
  m.def("_take_rows", &take_rows, pb::arg("collection"), pb::arg("kinds"));
  m.def("_add_rows", &add_rows, pb::arg("collection"), pb::arg("keys"), pb::arg("values"));
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
