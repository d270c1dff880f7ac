// How what a block reads is read before it runs: without running any code of the script.
#include <algorithm>

#include "bindings/python_compat.h"
#include "bindings/region.h"

namespace dyc::py {

namespace {

// What a class says of an attribute: nothing; a value; a function, which is a method; something whose reading
// runs code; or what must be asked anew each time: where members lie, and objects of classes that the script
// may yet change so that reading them runs code.
enum class Found { nothing, value, function, code, changing };

Found in_class(PyTypeObject* type, PyObject* name, PyObject** found) {
  *found = _PyType_Lookup(type, name);
  if (!*found) return Found::nothing;
  if (PyFunction_Check(*found)) return Found::function;
  PyTypeObject* kind = Py_TYPE(*found);
  if (kind == &PyMemberDescr_Type) return Found::changing;
  if (kind->tp_descr_get) return Found::code;
  return PyType_HasFeature(kind, Py_TPFLAGS_HEAPTYPE) ? Found::changing : Found::value;
}

}  // namespace

// ---------------------------------------------------------------- parts of a value

// An attribute in the dict of a module or object, or of its class, as long as neither changes. Of a method
// the value is the function, which the block calls with the object.
bool Region::read_kept(const RegionSource& source, PyObject* base, PyObject* dict, PyObject** value,
                       bool* kept) {
  PyObject* found = nullptr;
  const bool module = PyModule_CheckExact(base);
  const Found kind = module ? Found::nothing : in_class(Py_TYPE(base), source.key.get(), &found);
  if (kind == Found::code) return false;
  if (kind != Found::changing) {
    *value = PyDict_GetItemWithError(dict, source.key.get());
    if (*value) return !source.method || PyMethod_Check(*value);  // else it is called without the object
    if (kind == Found::nothing) return false;
    *value = found;
    if (kind == Found::value || source.method) return !source.method || kind == Found::function;
  }
  *kept = false;
  return read_attribute(source, base, value);
}

// The attribute as Python reads it; it is kept until the call ends.
bool Region::read_attribute(const RegionSource& source, PyObject* base, PyObject** value) {
  PyObject* found;
  if (Py_TYPE(base)->tp_getattro != PyObject_GenericGetAttr) return false;
  if (in_class(Py_TYPE(base), source.key.get(), &found) == Found::code) return false;
  *value = PyObject_GetAttr(base, source.key.get());
  attribute_values_.push_back(Owned::steal(*value));
  if (!*value || !source.method) return *value != nullptr;
  if (!PyMethod_Check(*value)) return false;
  if (PyMethod_GET_SELF(*value) == base && PyMethod_GET_FUNCTION(*value) == found) *value = found;
  return true;
}

// The dict whose changes show in the parts, if there is one: an object is asked for its own when it is met
// again, because that makes it have one.
PyObject* Region::dict_of(const ValueParts& parts, PyObject* base) {
  if (!parts.attributes) return PyDict_CheckExact(base) ? base : nullptr;
  if (PyModule_CheckExact(base)) return PyModule_GetDict(base);
  if (Py_TYPE(base)->tp_getattro != PyObject_GenericGetAttr || base != parts.version.base) return nullptr;
  return attribute_dict(base);
}

bool Region::read_parts(ValueParts* parts) {
  PyObject* base = values_[parts->base];
  PyObject* dict = base ? dict_of(*parts, base) : nullptr;
  const auto type = [&] { return parts->attributes ? class_version(Py_TYPE(base)) : uint64_t{1}; };
  const Version now = dict ? Version{base, dict_version(dict), type()} : Version{};
  if (now.is_known() && now == parts->version) return true;
  bool kept = true;
  parts->version = {base};  // until all are read
  for (const uint32_t i : parts->sources) {
    PyObject** value = &values_[i];
    *value = nullptr;
    if (!base) continue;
    const bool read = !parts->attributes ? read_item(sources_[i], base, value)
                      : dict             ? read_kept(sources_[i], base, dict, value, &kept)
                                         : read_attribute(sources_[i], base, value);
    if (!read) return false;
  }
  // Looking attributes up may give the class its number.
  if (kept && dict) parts->version = {base, now.dict, type()};
  return true;
}

bool Region::read_item(const RegionSource& source, PyObject* base, PyObject** value) {
  PyObject* key = source.kind == RegionSource::item ? source.key.get() : values_[source.key_source];
  if (PyTuple_CheckExact(base) || PyList_CheckExact(base)) {
    if (!key || !PyLong_CheckExact(key)) return false;
    Py_ssize_t i = PyLong_AsSsize_t(key);
    if (i == -1 && PyErr_Occurred()) return false;  // larger than any list
    if (i < 0) i += Py_SIZE(base);
    if (i < 0 || i >= Py_SIZE(base)) return false;
    *value = PySequence_Fast_ITEMS(base)[i];
  } else if (PyDict_CheckExact(base)) {
    if (!key || !(PyLong_CheckExact(key) || PyUnicode_CheckExact(key))) return false;
    *value = PyDict_GetItemWithError(base, key);
    return *value != nullptr;
  }
  return true;  // something else with an index: an op
}

// ---------------------------------------------------------------- all of a block

bool Region::read_one(uint32_t at) {
  const RegionSource& source = sources_[at];
  PyObject* base = values_[source.base];
  values_[at] = nullptr;
  if (!base) return true;
  if (source.kind == RegionSource::item_at) return read_item(source, base, &values_[at]);
  const bool sequence = PyTuple_CheckExact(base) || PyList_CheckExact(base);  // a count
  return sequence && Py_SIZE(base) == source.n;
}

bool Region::evaluate(PyObject* const* args) {
  std::copy(args, args + n_args_, values_.begin());
  const bool read = std::all_of(read_plan_.begin(), read_plan_.end(), [&](const ReadStep& r) {
    return r.parts ? read_parts(&parts_[r.at]) : read_one(r.at);
  });
  return read && lists_are_apart();
}

// What is appended to a list shows in its length and items, which the block must not read after that.
bool Region::lists_are_apart() {
  std::vector<PyObject*>& appended = captured_.appended;
  appended.clear();
  for (const uint32_t i : appended_) {
    if (!values_[i] || !PyList_CheckExact(values_[i])) return false;
    appended.push_back(values_[i]);
  }
  return appended.empty() || std::none_of(with_parts_.begin(), with_parts_.end(), [&](uint32_t i) {
           return std::find(appended.begin(), appended.end(), values_[i]) != appended.end();
         });
}

// Which sources are read one by one, and which together.
void Region::plan_reads() {
  for (uint32_t i = 0; i < sources_.size(); ++i) {
    RegionSource& s = sources_[i];
    if (s.appended) appended_.push_back(i);
    if (s.kind == RegionSource::argument) continue;
    const bool part = s.late && s.kind != RegionSource::attribute;
    if (part && std::find(with_parts_.begin(), with_parts_.end(), s.base) == with_parts_.end())
      with_parts_.push_back(s.base);
    if (s.kind != RegionSource::item && s.kind != RegionSource::attribute) {
      read_plan_.push_back({false, i});
      continue;
    }
    const bool attributes = s.kind == RegionSource::attribute;
    auto at = std::find_if(parts_.begin(), parts_.end(), [&](const ValueParts& p) {
      return p.base == s.base && p.attributes == attributes;
    });
    if (at == parts_.end()) {
      read_plan_.push_back({true, static_cast<uint32_t>(parts_.size())});
      at = parts_.insert(at, {s.base, attributes, {}, {}});
    }
    s.of = static_cast<uint32_t>(at - parts_.begin());
    at->sources.push_back(i);
  }
}

// Which sources stay as they are while iterations are recorded, and how the others are read.
void Region::plan_loop() {
  fixed_.assign(sources_.size(), 1);
  const auto vary = [this](uint32_t argument) {
    if (argument < n_args_) fixed_[argument] = 0;
  };
  const auto vary_target = [&](const auto& self, const RegionLoop::Target& t) -> void {
    vary(t.argument);
    for (const auto& part : t.parts) self(self, part);
  };
  vary_target(vary_target, loop_->target);
  for (const uint32_t argument : loop_->carried) vary(argument);
  for (uint32_t i = n_args_; i < sources_.size();
       ++i)  // what the loop appends to may change items and lengths
    fixed_[i] = sources_[i].kind == RegionSource::attribute && fixed_[sources_[i].base];
  for (const ReadStep& r : read_plan_)
    if (!fixed_[r.parts ? parts_[r.at].sources[0] : r.at]) varying_reads_.push_back(r);
  const auto is_fixed = [this](uint32_t source) { return fixed_[source] != 0; };
  lists_stay_ = appended_.empty() || (std::all_of(appended_.begin(), appended_.end(), is_fixed) &&
                                      std::all_of(with_parts_.begin(), with_parts_.end(), is_fixed));
}

}  // namespace dyc::py
