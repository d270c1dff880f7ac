// Regions in a walk: what they read and whether it is what they have learned.
#include <algorithm>

#include "bindings/python_compat.h"
#include "bindings/region_walk_log.h"
#include "bindings/tuning.h"

namespace dyc::py {

RegionUse::RegionUse(Region& r) : region(r), arguments(r.spec_.n_args) {}

namespace {

bool is_part_of_list(const RegionSource& s) {
  return s.kind == RegionSource::item || s.kind == RegionSource::item_at || s.kind == RegionSource::count;
}

}  // namespace

void Walker::log_element(PyObject* sequence, size_t i) { log_->element(sequence, i); }

void Walker::prepare(RegionUse& use) {
  const RegionSpec& spec = use.region.spec_;
  if (use.parts_of.empty()) {
    use.values.resize(spec.sources.size());
    use.objects.all.resize(spec.sources.size());
    use.plain_in.resize(spec.sources.size());
    use.parts_of.resize(spec.n_args + 1);
    use.reading.resize(spec.n_args + 1);
    use.reads_lists.resize(spec.n_args + 1);
    std::vector<uint32_t> roots;
    for (uint32_t i = 0; i < spec.sources.size(); ++i) {
      const RegionSource& s = spec.sources[i];
      uint32_t root = i;
      if (s.kind != RegionSource::argument) root = roots[s.base];
      if (s.kind == RegionSource::item_at && roots[s.key_source] != root) root = spec.n_args;
      roots.push_back(root);
      if (s.appended) use.appended_to.push_back(i);
      use.parts_of[root].push_back(i);
    }
  }
  use.walk = walk_;
  use.replays = 0;
  use.objects.appended.clear();
  std::fill(use.reading.begin(), use.reading.end(), 0);
  std::fill(use.values.begin(), use.values.end(), WalkValue());
  std::fill(use.plain_in.begin(), use.plain_in.end(), nullptr);
  if (use.region.busy_ || use.region.is_debugged()) refuse("a region that is in use");
}

// ---------------------------------------------------------------- sources

// As SourceReader reads it.
PyObject* Walker::read_attribute(RegionUse& use, uint32_t i, PyObject* base) {
  const RegionSource& source = use.region.spec_.sources[i];
  PyObject* name = source.key.get();
  if (PyModule_CheckExact(base)) {
    PyObject* value = read_module(base, name);
    if (source.method && !PyMethod_Check(value)) refuse("a function that is no method");
    return value;
  }
  PyTypeObject* type = Py_TYPE(base);
  if (use.plain_in[i] == type) {
    PyObject* value = keep_part(PyObject_GetAttr(base, name)).object;
    if (log_) log_->read(MemoRead::attribute, base, name, value);
    return value;
  }
  if (type->tp_getattro != PyObject_GenericGetAttr) refuse("a class that looks attributes up itself");
  PyObject* found;
  if (is_computed(type, name, &found)) refuse("an attribute that its class computes");
  PyObject* value = keep_part(PyObject_GetAttr(base, name)).object;
  if (!source.method) {
    use.plain_in[i] = type;
    if (log_) log_->read(MemoRead::attribute, base, name, value);
    return value;
  }
  if (!PyMethod_Check(value)) refuse("a function that is no method");
  const bool own = PyMethod_GET_SELF(value) == base && PyMethod_GET_FUNCTION(value) == found;
  if (log_ && own) log_->read(MemoRead::method, base, name, found);
  return own ? found : value;
}

// False: an item that is not there. It may be in a branch that is not taken.
bool Walker::read_source(RegionUse& use, uint32_t i, uint32_t root) {
  const RegionSource& s = use.region.spec_.sources[i];
  const WalkValue base = use.values[s.base];
  WalkValue& value = use.values[i];
  value = {};
  const bool none = !base.object && !base.result;
  const bool list = base.object ? is_sequence(base.object) : base.result && base.result->is_sequence();
  if (list && s.kind != RegionSource::argument) use.reads_lists[root] = 1;
  switch (s.kind) {
    case RegionSource::argument:
      value = use.arguments[i];
      break;
    case RegionSource::attribute:
      if (base.result) refuse("an attribute of a result");
      if (none) break;
      if (const WalkValue* assigned = assigned_.find(base.object, s.key.get())) {
        if (s.method) refuse("a method that was assigned");
        value = *assigned;
      } else {
        value = {read_attribute(use, i, base.object)};
      }
      break;
    case RegionSource::count:
      if (!none && (!list || length(base) != static_cast<size_t>(s.n))) refuse("a list of another length");
      break;
    case RegionSource::sum: {
      if (none) break;
      Owned sum = base.object ? sum_of(base.object, s.n) : Owned();
      if (!sum) return false;
      value = keep_part(sum.release());
      break;
    }
    default: {
      const bool parts = list || (base.object && PyDict_CheckExact(base.object));
      const WalkValue key = s.kind == RegionSource::item ? WalkValue{s.key.get()} : use.values[s.key_source];
      Py_ssize_t at;
      if (list && as_short_int(key, &at)) {
        const auto n = static_cast<Py_ssize_t>(length(base));
        if (at < -n || at >= n) return false;
        value = element(base, static_cast<size_t>(at < 0 ? at + n : at));
        break;
      }
      if (parts && !has_item(base, key)) return false;
      if (parts) value = item(base, key);
    }
  }
  use.objects.all[i] = value.object;
  return true;
}

bool Walker::has_item(WalkValue base, WalkValue key) {
  if (base.object && PyDict_CheckExact(base.object)) return key.object && contains(base, key);
  if (!key.object || !PyLong_CheckExact(key.object)) return true;
  const auto n = static_cast<Py_ssize_t>(length(base));
  const Py_ssize_t i = PyLong_AsSsize_t(key.object);
  if (i == -1 && PyErr_Occurred()) refuse("an index out of range");
  return i >= -n && i < n;
}

bool Walker::read_root(RegionUse& use, uint32_t root) {
  use.reads_lists[root] = 0;
  use.reading[root] = 0;
  for (const uint32_t i : use.parts_of[root])
    if (!read_source(use, i, root)) return false;
  use.reading[root] = ++readings_;
  return true;
}

bool Walker::read_sources(RegionUse& use) {
  if (use.walk != walk_) prepare(use);
  if (use.assignments != assigned_.assignments()) {  // since it read
    std::fill(use.reading.begin(), use.reading.end(), 0);
    use.assignments = assigned_.assignments();
  }
  const auto n = static_cast<uint32_t>(use.arguments.size());
  const WalkValue* arguments = use.arguments.data();
  WalkValue* values = use.values.data();
  uint64_t* reading = use.reading.data();
  for (uint32_t root = 0; root < n; ++root) {
    const WalkValue argument = arguments[root];
    if (reading[root] && argument == values[root] && argument.object) continue;
    if (use.parts_of[root].size() > 1) {
      if (!read_root(use, root)) return false;
      continue;
    }
    values[root] = argument;  // no part of it is read
    use.objects.all[root] = argument.object;
    reading[root] = ++readings_;
  }
  if (!use.parts_of[n].empty() && !read_root(use, n)) return false;
  reading[n] = ++readings_;
  if (!use.appended.empty() || !appended_.empty()) separate_lists(use);
  return true;
}

// Appending changes the length and the items of a list, which no region may read afterwards.
void Walker::separate_lists(RegionUse& use) {
  const std::vector<RegionSource>& sources = use.region.spec_.sources;
  use.objects.appended = appended_;
  const auto appended = [&](WalkValue v) {
    return (v.object || v.result) &&
           std::find(use.appended.begin(), use.appended.end(), v) != use.appended.end();
  };
  for (const WalkValue& list : use.appended)
    if (list.object) use.objects.appended.push_back(list.object);
  for (const uint32_t i : use.appended_to) {
    const WalkValue value = use.values[i];
    const bool list = value.object ? PyList_CheckExact(value.object)
                                   : value.result && value.result->kind == WalkResult::list;
    if (!list || !appended(value)) refuse("append() to something else");
  }
  for (uint32_t root = 0; root < use.parts_of.size(); ++root)
    for (size_t k = 0; use.reads_lists[root] && k < use.parts_of[root].size(); ++k) {
      const RegionSource& source = sources[use.parts_of[root][k]];
      if (!is_part_of_list(source)) continue;
      const WalkValue base = use.values[source.base];
      if (base.object) note_read(base.object);
      if (source.late && appended(base)) refuse("it reads a list that it appends to");
    }
}

// ---------------------------------------------------------------- guards

namespace {

// Is the guard checked at every step, as what it captures or looks at can differ for the same object?
bool captures(const Guard& guard) {
  return guard.kind == Guard::placeholder || guard.kind == Guard::expression || guard.kind == Guard::items ||
         guard.kind == Guard::filled || guard.kind == Guard::state;
}

}  // namespace

void Walker::plan_guards(const RegionUse& use, Specialisation& s) {
  WalkGuards& w = s.walk;
  w.known = true;
  w.draws = s.trace->draws();
  w.capturing.clear();
  w.plain.assign(use.parts_of.size(), {});
  w.checked.assign(use.parts_of.size(), 0);
  w.roots.clear();
  for (uint32_t i = 0; i < s.guards.size(); ++i)
    if (captures(s.guards[i])) w.capturing.push_back(i);
  for (uint32_t root = 0; root < use.parts_of.size(); ++root)
    for (const uint32_t i : use.parts_of[root]) {
      const Guard& guard = s.guards[i];
      if (guard.kind == Guard::none || captures(guard)) continue;
      w.plain[guard.kind == Guard::method ? use.parts_of.size() - 1 : root].push_back(i);
    }
  for (uint32_t root = 0; root < use.parts_of.size(); ++root)
    if (!w.plain[root].empty()) w.roots.push_back(root);
}

// What is captured where the walk itself has recorded the expression.
void Walker::capture(WalkValue value) {
  captured_.inputs.push_back(value.result->id);
  captured_.objects.push_back(Py_None);
  captured_values_.push_back(value);
}

bool Walker::check(const Guard& guard, WalkValue value, const RegionUse& use) {
  if (guard.kind == Guard::none) return true;
  if (value.object) {
    const size_t before = captured_.inputs.size();
    if (!guard.check(value.object, use.objects, engine_->graph, &captured_)) return false;
    if (log_) log_->guard(guard, value.object);
    for (size_t i = before; i < captured_.inputs.size(); ++i)
      captured_values_.push_back({captured_.objects[i]});  // null: of a state
    return true;
  }
  const WalkResult* r = value.result;
  if (!r) return false;
  if (guard.kind == Guard::expression) {
    if (r->kind != WalkResult::recorded) return false;
    capture(value);
    return true;
  }
  if (!r->is_sequence()) return false;
  if (std::find(use.appended.begin(), use.appended.end(), value) != use.appended.end()) return false;
  if (guard.kind == Guard::filled) return r->items.empty() == (guard.number == 0);
  if (guard.kind != Guard::items) return false;
  const PyTypeObject* type = r->kind == WalkResult::tuple ? &PyTuple_Type : &PyList_Type;
  if (reinterpret_cast<const PyObject*>(type) != guard.object.get() || r->items.size() != guard.parts.size())
    return false;
  for (size_t i = 0; i < r->items.size(); ++i)
    if (!check(guard.parts[i], r->items[i], use)) return false;
  return true;
}

bool Walker::matches(RegionUse& use, Specialisation& s) {
  if (!s.walk.known) plan_guards(use, s);
  if (log_) log_->specialisation(s);
  captured_.clear();
  captured_values_.clear();
  WalkGuards& w = s.walk;
  for (const uint32_t root : w.roots) {
    if (w.checked[root] == use.reading[root]) continue;
    for (const uint32_t i : w.plain[root])
      if (!check(s.guards[i], use.values[i], use)) return false;
    w.checked[root] = use.reading[root];
  }
  for (const uint32_t i : w.capturing) {
    const WalkValue value = use.values[i];
    const bool recorded = value.result && value.result->kind == WalkResult::recorded;
    if (recorded && s.guards[i].kind == Guard::expression) capture(value);
    else if (!check(s.guards[i], value, use)) return false;
  }
  return captured_.merge(s.repeated, captured_values_) && captured_.inputs.size() == s.trace->n_inputs() &&
         s.trace->matches(engine_->graph, captured_.inputs.data(), captured_.placeholders.data());
}

// ---------------------------------------------------------------- one region

// What the region makes of what it reads, to be built; null: its statements are to be run.
const OutputSpec* Walker::step(RegionUse& use) {
  Region& region = use.region;
  if (!region.disabled_.empty() || !read_sources(use)) return nullptr;
  Specialisation* found = nullptr;
  for (const auto& s : region.specialisations_)
    if (s.get() == use.last && matches(use, *s)) found = s.get();
  if (!found) {
    const auto at = std::find_if(region.specialisations_.begin(), region.specialisations_.end(),
                                 [&](const auto& s) { return s.get() != use.last && matches(use, *s); });
    const bool none = at == region.specialisations_.end();
    if (none && region.specialisations_.size() >= tuning::kSpecialisations) return nullptr;
    learning_ = none;
    if (learning_) refuse("a region that has to learn");
    found = at->get();
  }
  use.last = found;
  learning_ = !found->indices.confirmed;
  if (learning_) refuse("a region that was not confirmed");
  if (!found->steps.empty()) return nullptr;  // of a builder
  if (found->walk.draws) may_record();
  if (found->walk.last != walk_) {
    found->walk.last = walk_;
    comparing_ = ++found->walk.walks % tuning::kRevalidateWalks == 0 || comparing_;
  }
  if (comparing_) found->hits = tuning::kRevalidateEvery - 1;  // the statements run next time
  found->trace->record(engine_->graph, captured_.inputs.data(), captured_.placeholders.data());
  if (log_) log_->trace(use, *found, captured_, captured_values_);
  trace_ = found->trace.get();
  if (use.replays++ == 0) used_.push_back(&use);
  if (found->n_shared) shared_.assign(found->n_shared, nullptr);
  return &found->output;
}

namespace {

// What it has at the end of this way, which leads through what the walk has made, too.
WalkValue part_of_value(WalkValue value, PyObject* way) {
  if (value.object) return {part_at(value.object, way)};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(way); ++i) {
    const Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(way, i));
    value = value.result->items[static_cast<size_t>(at)];
    if (!value.object) continue;
    const Owned rest = Owned::steal(PyTuple_GetSlice(way, i + 1, PyTuple_GET_SIZE(way)));
    if (!rest) throw PythonError();
    return {part_at(value.object, rest.get())};
  }
  return value;
}

}  // namespace

WalkValue Walker::build_other(const OutputSpec& output, const RegionUse& use) {
  switch (output.kind) {
    case RegionOutput::source:
      return use.values[output.at];
    case RegionOutput::constant:
      return {output.object.get()};
    case RegionOutput::input:
      return captured_values_[output.at];
    case RegionOutput::part:
      return part_of_value(use.values[output.at], output.object.get());
    case RegionOutput::recorded:
    case RegionOutput::tuple:
    case RegionOutput::list:
      break;
    default:
      refuse("a result of another kind");
  }
  if (output.number != kNone && shared_[output.number]) return {nullptr, shared_[output.number]};
  const bool is_recorded = output.kind == RegionOutput::recorded;
  WalkResult* made = is_recorded
                         ? recorded(trace_->nodes()[output.at], output.type).result
                         : make(output.kind == RegionOutput::tuple ? WalkResult::tuple : WalkResult::list);
  if (output.number != kNone) shared_[output.number] = made;
  for (const OutputSpec& part : output.parts) made->items.push_back(build(part, use));
  return {nullptr, made};
}

}  // namespace dyc::py
