#include "bindings/region_sources.h"

#include <algorithm>
#include <cstdlib>

#include "bindings/python_compat.h"

namespace dyc::py {

bool is_computed(PyTypeObject* type, PyObject* name, PyObject** found) {
  *found = _PyType_Lookup(type, name);
  if (!*found || PyFunction_Check(*found) || Py_TYPE(*found) == &PyMemberDescr_Type) return false;
  return Py_TYPE(*found)->tp_descr_get != nullptr;
}

Owned sum_of(PyObject* base, Py_ssize_t n) {
  if (!PyLong_CheckExact(base)) return {};
  int overflow;
  const long number = PyLong_AsLongAndOverflow(base, &overflow);
  if (overflow || std::abs(number) > long{1} << 62) return {};
  return Owned::steal(PyLong_FromLong(number + n));
}

namespace {

// The dict whose version changes with the parts; null: there is none. Not that of an object: asking for it
// creates the dict, after which Python reads the attributes of the object more slowly.
PyObject* dict_of(const SourceReader::ValueParts& parts, PyObject* base) {
  if (!parts.attributes) return PyDict_CheckExact(base) ? base : nullptr;
  return PyModule_CheckExact(base) ? PyModule_GetDict(base) : nullptr;
}

// Of a named tuple: no code runs, and tuples do not change.
bool is_field(PyObject* found) {
  static PyObject* const kind = [] {
    const Owned module = Owned::steal(PyImport_ImportModule("_collections"));
    PyObject* const type = module ? PyObject_GetAttrString(module.get(), "_tuplegetter") : nullptr;
    if (!type) PyErr_Clear();
    return type;
  }();
  return found && reinterpret_cast<PyObject*>(Py_TYPE(found)) == kind;
}

}  // namespace

// ---------------------------------------------------------------- parts of a value

// In the dict of a module.
bool SourceReader::read_name(const RegionSource& source, PyObject* dict, PyObject** value) {
  *value = PyDict_GetItemWithError(dict, source.key.get());
  return *value && (!source.method || PyMethod_Check(*value));  // else it is called without the module
}

// The attribute as Python reads it; the reference is kept until the call ends. The value of a method is the
// function, which the region calls with the object.
bool SourceReader::read_attribute(uint32_t at, PyObject* base, PyObject** value) {
  const RegionSource& source = spec_.sources[at];
  PyTypeObject* type = Py_TYPE(base);
  ClassSeen& seen = classes_[at];
  if (!seen.version || seen.version != last_type_version(type)) {
    seen.version = 0;
    if (type->tp_getattro != PyObject_GenericGetAttr) return false;
    if (is_computed(type, source.key.get(), &seen.found) && !is_field(seen.found)) return false;
    // The class of what was found may become a descriptor later, which changes no version of `type`.
    if (!seen.found || !PyType_HasFeature(Py_TYPE(seen.found), Py_TPFLAGS_HEAPTYPE))
      seen.version = last_type_version(type);
  }
  *value = PyObject_GenericGetAttr(base, source.key.get());
  attribute_values_.push_back(Owned::steal(*value));
  if (!*value || !source.method) return *value != nullptr;
  if (!PyMethod_Check(*value)) return false;
  if (PyMethod_GET_SELF(*value) == base && PyMethod_GET_FUNCTION(*value) == seen.found) *value = seen.found;
  return true;
}

bool SourceReader::read_parts(ValueParts* parts) {
  PyObject* base = values.all[parts->base];
  PyObject* dict = base ? dict_of(*parts, base) : nullptr;
  const PartsVersion now = dict ? PartsVersion{base, dict_version(dict)} : PartsVersion{};
  if (now.is_known() && now == parts->version) return true;
  parts->version = {};  // until all are read
  for (const uint32_t i : parts->sources) {
    PyObject** value = &values.all[i];
    *value = nullptr;
    if (!base) continue;
    const bool read = !parts->attributes ? read_item(spec_.sources[i], base, value)
                      : dict             ? read_name(spec_.sources[i], dict, value)
                                         : read_attribute(i, base, value);
    if (!read) return false;
  }
  parts->version = now;
  return true;
}

bool SourceReader::read_item(const RegionSource& source, PyObject* base, PyObject** value) {
  PyObject* key = source.kind == RegionSource::item ? source.key.get() : values.all[source.key_source];
  if (is_sequence(base)) {
    if (!key || !PyLong_CheckExact(key)) return false;
    Py_ssize_t i = PyLong_AsSsize_t(key);
    if (i == -1 && PyErr_Occurred()) return false;  // larger than any list
    if (i < 0) i += Py_SIZE(base);
    if (i < 0 || i >= Py_SIZE(base)) return false;
    *value = PySequence_Fast_ITEMS(base)[i];
  } else if (PyDict_CheckExact(base)) {
    if (!key || !(PyLong_CheckExact(key) || PyUnicode_CheckExact(key)) || !has_plain_keys(base)) return false;
    *value = PyDict_GetItemWithError(base, key);
    return *value != nullptr;
  }
  return true;  // something else with an index: an op
}

// ---------------------------------------------------------------- all sources

bool SourceReader::read_one(uint32_t at) {
  const RegionSource& source = spec_.sources[at];
  PyObject* base = values.all[source.base];
  values.all[at] = nullptr;
  if (!base) return true;
  if (source.kind == RegionSource::item_at) return read_item(source, base, &values.all[at]);
  if (source.kind == RegionSource::sum) {
    attribute_values_.push_back(sum_of(base, source.n));
    values.all[at] = attribute_values_.back().get();
    return values.all[at] != nullptr;
  }
  const bool sequence = is_sequence(base);  // a count
  return sequence && Py_SIZE(base) == source.n;
}

bool SourceReader::read(PyObject* const* args) {
  std::copy_n(args, spec_.n_args, values.all.begin());
  return std::all_of(plan_.begin(), plan_.end(), [this](const ReadStep& s) { return run(s); }) &&
         lists_are_separate();
}

// Appending changes the length and the items of a list, which the region must not read afterwards.
bool SourceReader::lists_are_separate() {
  std::vector<PyObject*>& appended = values.appended;
  appended.clear();
  for (const uint32_t i : appended_) {
    if (!values.all[i] || !PyList_CheckExact(values.all[i])) return false;
    appended.push_back(values.all[i]);
  }
  return appended.empty() || std::none_of(read_late_.begin(), read_late_.end(), [&](uint32_t i) {
           return std::find(appended.begin(), appended.end(), values.all[i]) != appended.end();
         });
}

SourceReader::SourceReader(const RegionSpec& spec) : spec_(spec) {
  values.all.resize(spec.sources.size());
  parts_of_.assign(spec.sources.size(), kNone);
  classes_.resize(spec.sources.size());
  plan();
  if (spec.loop) plan_loop(*spec.loop);
}

// Decides which sources are read one by one, and which together.
void SourceReader::plan() {
  for (uint32_t i = 0; i < spec_.sources.size(); ++i) {
    const RegionSource& s = spec_.sources[i];
    if (s.appended) appended_.push_back(i);
    if (s.kind == RegionSource::argument) continue;
    const bool attributes = s.kind == RegionSource::attribute;
    if (s.late && !attributes && std::find(read_late_.begin(), read_late_.end(), s.base) == read_late_.end())
      read_late_.push_back(s.base);
    if (s.kind != RegionSource::item && !attributes) {
      plan_.push_back({false, i});
      continue;
    }
    auto at = std::find_if(parts_.begin(), parts_.end(), [&](const ValueParts& p) {
      return p.base == s.base && p.attributes == attributes;
    });
    if (at == parts_.end()) {
      plan_.push_back({true, static_cast<uint32_t>(parts_.size())});
      at = parts_.insert(at, {s.base, attributes, {}});
    }
    parts_of_[i] = static_cast<uint32_t>(at - parts_.begin());
    at->sources.push_back(i);
  }
}

// Decides which sources are the same in all iterations, and how the others are read. What the loop appends to
// may change items and lengths, but no attributes.
void SourceReader::plan_loop(const RegionLoop& loop) {
  fixed_.assign(spec_.sources.size(), 1);
  const auto vary = [this](uint32_t argument) {
    if (argument < spec_.n_args) fixed_[argument] = 0;
  };
  const auto vary_target = [&](const auto& self, const RegionLoop::Target& t) -> void {
    vary(t.argument);
    for (const auto& part : t.parts) self(self, part);
  };
  vary_target(vary_target, loop.target);
  for (const uint32_t argument : loop.carried) vary(argument);
  for (uint32_t i = spec_.n_args; i < spec_.sources.size(); ++i)
    fixed_[i] = spec_.sources[i].kind == RegionSource::attribute && fixed_[spec_.sources[i].base];
  for (const ReadStep& s : plan_)
    if (!fixed_[s.parts ? parts_[s.at].sources[0] : s.at]) varying_.push_back(s);
  const auto fixed = [this](uint32_t source) { return is_fixed(source); };
  lists_are_fixed_ = appended_.empty() || (std::all_of(appended_.begin(), appended_.end(), fixed) &&
                                           std::all_of(read_late_.begin(), read_late_.end(), fixed));
}

}  // namespace dyc::py
