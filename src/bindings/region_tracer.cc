// How the run of a block is watched, and what is learned from it.
#include <algorithm>

#include "bindings/compute.h"
#include "bindings/region.h"

namespace dyc::py {

namespace {

constexpr size_t kMaxSpecialisations = 64;  // ways in which one block is known to run
constexpr uint64_t kFair = 4;         // a block that is recorded less often than it is learned is left alone
constexpr uint64_t kTrial = 256;      // but not before it was learned as often as this
constexpr uint64_t kRefusals = 64;    // runs that could not be learned from, until the block is left alone
constexpr uint32_t kSameIndex = 8;    // runs with one value of an index, until it is taken for a constant
constexpr uint32_t kMostParts = 128;  // values in the lists that a block reads

bool is_table(PyObject* o) { return PyObject_TypeCheck(o, &LookupParametersType); }
bool takes_index(PyObject* o) {
  return o && is_expression(o) && (is_table(o) || !PyObject_TypeCheck(o, &ParametersType));
}

// A tuple with the items of one, then these.
Owned joined(PyObject* tuple, const std::vector<Owned>& more) {
  const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
  Owned all = Owned::steal(PyTuple_New(n + static_cast<Py_ssize_t>(more.size())));
  if (!all) throw PythonError();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all.get()); ++i) {
    PyObject* each = i < n ? PyTuple_GET_ITEM(tuple, i) : more[static_cast<size_t>(i - n)].get();
    PyTuple_SET_ITEM(all.get(), i, Owned(each).release());
  }
  return all;
}

}  // namespace

void Region::start_session(Specialisation* against) {
  if (!against && misses_ > kTrial && hits_ < kFair * misses_) return disable("it runs in too many ways");
  const Engine& e = engine();
  session_.on = true;
  session_.engine = &e;
  session_.generation = e.graph.generation();
  session_.begin = e.graph.size();
  session_.against = against;
  const std::vector<Owned> before =
      std::exchange(session_.values, {});  // dropping one may run code of the script
  for (PyObject* v : values_) session_.values.emplace_back(v);
  const std::vector<Owned> kept = std::exchange(session_.kept, {});
  session_.builders.clear();
  for (uint32_t i = 0; i < sources_.size(); ++i) {
    PyObject* v = values_[i];
    if (!v || Py_TYPE(v) != &RnnStateType || !state_in(v)->b) continue;
    const auto same = [&](const auto& known) { return state_in(values_[known.first])->b == state_in(v)->b; };
    if (std::any_of(session_.builders.begin(), session_.builders.end(), same)) continue;
    session_.builders.emplace_back(i, state_in(v)->b->core->steps(engine()));
  }
  session_.start = specialisations_.empty() ? 0 : clock();
}

bool Region::in_session() const { return session_.on && session_.engine == &engine(); }

void Region::keep_result(PyObject* result) {
  if (in_session()) session_.kept.emplace_back(result);
}

// Whatever it read may go now.
void Region::discard_session() {
  if (!in_session()) return;
  session_.on = false;
  const std::vector<Owned> values = std::exchange(session_.values, {}),
                           kept = std::exchange(session_.kept, {});
}

void Region::finish(PyObject* rest) {
  if (!in_session()) return;
  session_.on = false;
  if (session_.start) costs_.written_ns = std::min(costs_.written_ns, clock() - session_.start);
  const std::vector<Owned> kept = std::exchange(session_.kept, {});
  const Owned all = kept.empty() ? Owned(rest) : joined(rest, kept);
  PyObject* results = all.get();
  const Graph& g = engine().graph;
  const bool whole = g.generation() == session_.generation;
  const char* reason = "the graph was renewed or reverted";
  std::unique_ptr<Specialisation> p = whole ? capture(results, &reason) : nullptr;
  if (!p) {
    refusal_ = reason;
    if (session_.against) session_.against->confirmed = false;  // compare again
    if (++refusals_ >= kRefusals && specialisations_.empty()) disable("what it records cannot be learned");
  } else if (!session_.against) {
    add(std::move(p));
  } else if (const std::string other = difference(*p, *session_.against); !other.empty()) {
    disable("the script recorded something else than what was learned: " + other);
  } else {
    confirm(session_.against, *p);
  }
  const std::vector<Owned> before =
      std::exchange(session_.values, {});  // dropped last, as that may come back here
}

void Region::confirm(Specialisation* p, const Specialisation& repeated) const {
  p->varied.resize(p->placeholders.size());
  for (size_t i = 0; i < p->placeholders.size(); ++i)
    p->varied[i] |= p->placeholders[i] != repeated.placeholders[i];
  if (++p->compared >= kSameIndex) make_constant_indices(p);
  p->confirmed = std::all_of(p->varied.begin(), p->varied.end(), [](uint8_t v) { return v; });
}

// Indices that were always the same: runs with another value are another way of running.
void Region::make_constant_indices(Specialisation* p) const {
  size_t placeholder = 0;
  for (Guard& g : p->guards) {
    if (g.kind != Guard::placeholder) continue;
    if (p->varied[placeholder]) {
      ++placeholder;
      continue;
    }
    g.kind = Guard::equal;
    g.object = Owned::steal(PyLong_FromUnsignedLong(p->placeholders[placeholder]));
    p->trace->make_constant(static_cast<uint32_t>(placeholder), p->placeholders[placeholder]);
    p->placeholders.erase(p->placeholders.begin() + static_cast<ptrdiff_t>(placeholder));
    p->varied.erase(p->varied.begin() + static_cast<ptrdiff_t>(placeholder));
  }
  partition_guards(p);
}

// Those of parts that say nothing of the run itself need to be asked only when the parts have changed.
void Region::partition_guards(Specialisation* p) const {
  p->valid.assign(parts_.size(), {});
  p->permanent.assign(parts_.size(), {});
  p->always.clear();
  p->fast_path = {};
  for (uint32_t i = 0; i < sources_.size(); ++i) {
    if (p->guards[i].kind == Guard::none) continue;
    const bool permanent = sources_[i].of != kNone && p->guards[i].is_permanent();
    (permanent ? p->permanent[sources_[i].of] : p->always).push_back(i);
  }
}

void Region::add(std::unique_ptr<Specialisation> p) {
  if (specialisations_.size() == kMaxSpecialisations) specialisations_.pop_back();
  specialisations_.insert(specialisations_.begin(), std::move(p));
}

std::string Region::difference(const Specialisation& a, const Specialisation& b) {
  if (a.steps != b.steps) return "other steps of sequences";
  if (!same_output(a.result, b.result)) return "other results";
  return a.trace->difference(*b.trace);
}

void Region::disable(const std::string& reason) {
  disabled_ = true;
  session_.on = false;
  session_.against = nullptr;
  reason_ = reason;
  // Dropped last: that may come back here.
  const std::vector<Owned> before = std::exchange(session_.values, {}),
                           kept = std::exchange(session_.kept, {});
  const auto specialisations = std::exchange(specialisations_, {});
}

// What the block does with defaults was told from how they are written.
bool Region::has_defaults(PyObject* function, PyObject* defaults) {
  const auto fits = [](PyObject* value, PyObject* written) {
    return value && (written == Py_Ellipsis || is_constant(value, written));
  };
  PyObject* by_place = PyFunction_GET_DEFAULTS(function);
  PyObject* written = PyTuple_GET_ITEM(defaults, 0);
  if ((by_place ? PyTuple_GET_SIZE(by_place) : 0) != PyTuple_GET_SIZE(written)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(written); ++i)
    if (!fits(PyTuple_GET_ITEM(by_place, i), PyTuple_GET_ITEM(written, i))) return false;
  PyObject* by_name = PyFunction_GET_KW_DEFAULTS(function);
  PyObject *name, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(PyTuple_GET_ITEM(defaults, 1), &at, &name, &value))
    if (!by_name || !fits(PyDict_GetItemWithError(by_name, name), value)) return false;
  return true;
}

bool Region::may_call(const RegionSource& source, PyObject* function) const {
  PyObject* plain = PyMethod_Check(function) ? PyMethod_GET_FUNCTION(function) : function;
  // The values a function of the script reads are looked up in the module whose function runs now.
  if (PyFunction_Check(plain) && source.codes && PyFunction_GET_GLOBALS(plain) == PyEval_GetGlobals()) {
    PyObject* codes = source.codes.get();
    // Functions that were not written anew have code that is only equal.
    const int known = PySequence_Contains(codes, PyFunction_GET_CODE(plain));
    if (known < 0) PyErr_Clear();
    if (known == 1) return !source.defaults || has_defaults(plain, source.defaults.get());
  }
  if (plain != function || !(PyFunction_Check(plain) || PyCFunction_Check(plain))) return false;
  const int known = PySet_Contains(functions_.get(), function);
  if (known < 0) PyErr_Clear();
  return known == 1;
}

// Is the source's value itself read, or only its parts? An op with an index reads both.
bool Region::used_as_value(uint32_t source) const {
  if (sources_[source].called || sources_[source].state || sources_[source].indices ||
      sources_[source].others)
    return true;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const RegionSource& s = sources_[i];
    const bool at = s.kind == RegionSource::item_at;
    const bool reads =
        (s.kind == RegionSource::item || at) && (s.base == source || (at && s.key_source == source));
    if (reads && !session_.values[i]) return true;
  }
  return false;
}

namespace {

void add_ints(PyObject* value, std::vector<long>* out) {
  if (!value) return;
  if (PyLong_CheckExact(value)) {
    int overflow;
    out->push_back(PyLong_AsLongAndOverflow(value, &overflow));
  } else if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(value); ++i) add_ints(PySequence_Fast_ITEMS(value)[i], out);
  }
}

}  // namespace

Region::Index Region::index_uses(uint32_t source, uint32_t* uses) const {
  PyObject* value = session_.values[source].get();
  if (!value || !PyLong_CheckExact(value) || sources_[source].others) return no_index;
  *uses = sources_[source].indices;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const RegionSource& s = sources_[i];
    if (s.kind == RegionSource::item_at && s.key_source == source && !session_.values[i] &&
        takes_index(session_.values[s.base].get()))
      *uses += static_cast<uint32_t>(s.n);
  }
  if (*uses == 0) return no_index;
  int overflow;
  const long v = PyLong_AsLongAndOverflow(value, &overflow);
  if (overflow || v < 0 || v >= long{1} << 31) return no_index;
  std::vector<long> all = ints_;
  for (uint32_t i = 0; i < sources_.size(); ++i)
    if (i != source && used_as_value(i)) add_ints(session_.values[i].get(), &all);
  return std::find(all.begin(), all.end(), v) == all.end() ? an_index : unclear;
}

const char* Region::make_guard(uint32_t source, Guard* guard, uint32_t* budget,
                               std::vector<Trace::Placeholder>* placeholders) const {
  PyObject* value = session_.values[source].get();
  uint32_t uses = 0;
  const bool read = value && used_as_value(source);
  Index index = read ? index_uses(source, &uses) : no_index;
  const Guard::Kind known = session_.against ? session_.against->guards[source].kind : Guard::none;
  if (index == unclear && (refusals_ < kRefusals / 2 || known == Guard::placeholder))
    return "an index that cannot be told from other numbers";
  if (index == an_index && known == Guard::equal) index = no_index;
  if (index == an_index) {
    guard->kind = Guard::placeholder;
    placeholders->push_back({static_cast<uint32_t>(PyLong_AsLong(value)), uses});
  } else if (read) {
    *guard = sources_[source].own ? Guard::of_function(value) : Guard::of(value, session_.values, budget);
    if (guard->kind == Guard::none) return "a value that can change unnoticed";
  }
  return check_use(source, *guard);
}

// Is the value what the block takes it for?
const char* Region::check_use(uint32_t source, const Guard& guard) const {
  const RegionSource& s = sources_[source];
  PyObject* value = session_.values[source].get();
  const bool bound = guard.kind == Guard::method;
  // Of a method that was found in the class the value is the function.
  const bool of_class = s.kind == RegionSource::attribute && value && PyFunction_Check(value);
  const bool of_base = bound ? guard.number == s.base : of_class;
  if (s.called && (s.method ? !of_base : bound)) return "a method of another object";
  if (s.called && !(value && may_call(s, value))) return "a function that does not only record";
  if (s.state && guard.kind != Guard::state) return "a method of something that is no RNNState";
  if (s.expression && guard.kind != Guard::expression) return "+= of something that is no Expression";
  if (s.appended && !(value && PyList_CheckExact(value))) return "append() of something that is no list";
  return nullptr;
}

const char* Region::make_guards(Specialisation* p, std::vector<Trace::Placeholder>* placeholders) const {
  uint32_t budget = kMostParts;
  for (uint32_t i = 0; i < sources_.size(); ++i) {
    p->guards.emplace_back();
    if (const char* reason = make_guard(i, &p->guards.back(), &budget, placeholders)) return reason;
  }
  partition_guards(p);
  return nullptr;
}

std::unique_ptr<Region::Specialisation> Region::capture(PyObject* results, const char** reason) const {
  auto p = std::make_unique<Specialisation>();
  std::vector<Trace::Placeholder> placeholders;
  *reason = make_guards(p.get(), &placeholders);
  if (*reason) return nullptr;
  CapturedInputs captured;
  captured.appended = captured_.appended;
  std::vector<PyObject*> values;
  for (const Owned& v : session_.values) values.push_back(v.get());
  Graph& g = engine().graph;
  *reason = "values that changed while it ran";
  for (size_t i = 0; i < sources_.size(); ++i)
    if (!p->guards[i].check(values[i], values.data(), g, &captured)) return nullptr;
  for (NodeId input : captured.inputs)
    if (input >= session_.begin) return nullptr;
  *reason = "nodes made of something that it does not read as it is written, or one expression read twice";
  p->trace = Trace::capture(g, session_.begin, captured.inputs, placeholders);
  p->placeholders = captured.placeholders;
  if (!p->trace || !collect_steps(p.get())) return nullptr;
  *reason = "a result of another kind";
  OutputObjects objects{captured.objects, {}, {}};
  if (!make_output(result_, results, *p, &objects, &p->result)) return nullptr;
  for (uint32_t& count : objects.counts) count = count > 1 ? p->n_shared++ : kNone;
  number_shared(objects.counts, &p->result);
  return p;
}

// Objects that are in one place only need no number.
void Region::number_shared(const std::vector<uint32_t>& numbers, OutputSpec* output) {
  if (output->number != kNone) output->number = numbers[output->number];
  for (OutputSpec& part : output->parts) number_shared(numbers, &part);
}

// The steps that builders made while the block ran.
bool Region::collect_steps(Specialisation* p) const {
  for (const auto& [source, before] : session_.builders) {
    RnnBuilder& b = *state_in(session_.values[source].get())->b->core;
    for (RnnBuilder::Step step = before; step < b.steps(engine()); ++step) {
      p->steps.push_back({source, {}});
      for (uint32_t i = 0; i <= b.state_size(); ++i) {
        p->steps.back().positions.push_back(p->trace->index_of(b.nodes(engine(), step)[i]));
        if (p->steps.back().positions.back() == kNone) return false;
      }
    }
  }
  return true;
}

uint32_t Region::OutputObjects::number(PyObject* object) {
  const auto at = std::find(made.begin(), made.end(), object) - made.begin();
  if (static_cast<size_t>(at) == made.size()) {
    made.push_back(object);
    counts.push_back(0);
  }
  ++counts[static_cast<size_t>(at)];
  return static_cast<uint32_t>(at);
}

// A state made by the block: after one that it read, or made.
bool Region::make_state(PyObject* object, const Specialisation& p, OutputObjects* objects,
                        OutputSpec* output) const {
  const PyRnnState* s = state_in(object);
  for (uint32_t i = 0; i < sources_.size(); ++i)
    if (session_.values[i].get() == object && p.guards[i].kind == Guard::state) {
      output->kind = RegionOutput::source;
      output->at = i;
      return true;
    }
  uint32_t first = 0;  // of the builder's steps, among all
  for (const auto& [source, before] : session_.builders) {
    const bool same = state_in(session_.values[source].get())->b == s->b;
    const auto of_source = [source = source](const BuilderStep& step) { return step.source == source; };
    if (!same) {
      first += static_cast<uint32_t>(std::count_if(p.steps.begin(), p.steps.end(), of_source));
      continue;
    }
    if (s->step < before || !s->prev) return false;
    output->kind = RegionOutput::state;
    output->number = objects->number(object);
    output->at = first + static_cast<uint32_t>(s->step - before);
    output->parts.emplace_back();
    return make_state(reinterpret_cast<PyObject*>(s->prev), p, objects, &output->parts[0]);
  }
  return false;
}

// An expression that is one of the inputs, or a new one: also of an input's node.
bool Region::make_expression_output(PyObject* object, const Specialisation& p, OutputObjects* objects,
                                    OutputSpec* output) const {
  const PyTypeObject* type = Py_TYPE(object);
  if (type != &ExpressionType && type->tp_base != &ExpressionType) return false;
  if (takes_index(object) && is_table(object)) return false;
  if (PyObject_TypeCheck(object, &ParametersType)) return false;
  output->at = p.trace->index_of(reinterpret_cast<PyExpression*>(object)->id);
  if (output->at < objects->inputs.size() && objects->inputs[output->at] == object) {
    output->kind = RegionOutput::input;  // of whatever type
  } else {
    output->type = Py_TYPE(object);
    output->number = objects->number(object);
  }
  return output->at != kNone;
}

bool Region::make_output(const RegionOutput& spec, PyObject* object, const Specialisation& p,
                         OutputObjects* objects, OutputSpec* output) const {
  output->kind = spec.kind;
  output->at = spec.at;
  output->object = spec.object;
  // A part of something that has no parts is what an op made of it.
  const bool op = spec.kind == RegionOutput::source && !session_.values[spec.at];
  if (op) output->kind = RegionOutput::recorded;
  // Defaults of functions may be others than they are written.
  if (spec.kind == RegionOutput::constant) return is_constant(object, spec.object.get());
  if (spec.kind == RegionOutput::source && !op) return true;
  const bool sequence = PyTuple_CheckExact(object) || PyList_CheckExact(object);
  const bool recorded = spec.kind == RegionOutput::recorded, either = spec.kind == RegionOutput::either;
  if (!sequence && (op || recorded || either)) {
    output->kind = RegionOutput::recorded;
    if (Py_TYPE(object) == &RnnStateType) return make_state(object, p, objects, output);
    return make_expression_output(object, p, objects, output);
  }
  // A list or tuple that was there before, or that an op on lists made, may be known under other names.
  const auto is_read = [object](const Owned& value) { return value.get() == object; };
  const bool known = std::any_of(session_.values.begin(), session_.values.end(), is_read);
  if (!sequence || op || either || (recorded && (known || PyList_CheckExact(object)))) return false;
  output->kind = PyTuple_CheckExact(object) ? RegionOutput::tuple : RegionOutput::list;
  output->number = objects->number(object);
  const size_t n = static_cast<size_t>(Py_SIZE(object));
  if (!recorded && n != spec.parts.size()) return false;
  for (size_t i = 0; i < n; ++i) {
    output->parts.emplace_back();
    const RegionOutput& part = recorded ? spec : spec.parts[i];
    if (!make_output(part, PySequence_Fast_ITEMS(object)[i], p, objects, &output->parts.back())) return false;
  }
  return true;
}

bool Region::same_output(const OutputSpec& a, const OutputSpec& b) {
  return a.kind == b.kind && a.at == b.at && a.number == b.number && a.type == b.type &&
         a.parts.size() == b.parts.size() &&
         std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), same_output);
}

}  // namespace dyc::py
