#include "bindings/region_tracer.h"

#include <algorithm>
#include <ctime>

#include "bindings/compute.h"
#include "bindings/tuning.h"

namespace dyc::py {

int64_t thread_clock() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

int64_t elapsed_since(int64_t start) {
  static const int64_t reading = [] {
    int64_t least = INT64_MAX;
    for (int i = 0; i < tuning::kClockReadings; ++i) {
      const int64_t before = thread_clock();
      least = std::min(least, thread_clock() - before);
    }
    return least;
  }();
  return std::max<int64_t>(thread_clock() - start - reading, 0);
}

TraceSession::TraceSession(const SourceValues& read, Specialisation* other)
    : on(true), engine(&py::engine()), values(read), against(other) {
  Engine& e = py::engine();
  generation = e.graph.generation();
  begin = e.graph.size();
  for (PyObject* v : values.all) owned.emplace_back(v);
  for (uint32_t i = 0; i < values.all.size(); ++i) {
    PyObject* v = values.all[i];
    if (!v || Py_TYPE(v) != &RnnStateType || !state_in(v)->b) continue;
    const auto same = [&](const auto& each) { return state_in(values.all[each.first])->b == state_in(v)->b; };
    if (std::any_of(builders.begin(), builders.end(), same)) continue;
    builders.emplace_back(i, state_in(v)->b->core->steps(e));
  }
}

namespace {

bool is_table(PyObject* o) { return PyObject_TypeCheck(o, &LookupParametersType); }
bool takes_index(PyObject* o) {
  return o && is_expression(o) && (is_table(o) || !PyObject_TypeCheck(o, &ParametersType));
}

// Has the function the defaults that the rewriter has read in the source?
bool has_defaults(PyObject* function, PyObject* defaults) {
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

void add_ints(PyObject* value, std::vector<long>* out) {
  if (!value) return;
  uint32_t index;
  if (as_index(value, &index)) {
    out->push_back(index);
  } else if (is_sequence(value)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(value); ++i) add_ints(PySequence_Fast_ITEMS(value)[i], out);
  } else if (PyDict_CheckExact(value)) {
    PyObject *key, *part;
    for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &part);) {
      add_ints(key, out);
      add_ints(part, out);
    }
  }
}

// May the object be one of the values, or in one of their lists and dicts?
bool may_be_part(PyObject* object, PyObject* value, int depth = 0) {
  if (value == object) return true;
  if (!value || !is_container(value)) return false;
  const bool dict = PyDict_CheckExact(value);
  const auto n = static_cast<size_t>(dict ? PyDict_GET_SIZE(value) : Py_SIZE(value));
  if (depth == 4 || n > tuning::kMostParts) return true;
  if (!dict)
    return std::any_of(PySequence_Fast_ITEMS(value), PySequence_Fast_ITEMS(value) + n,
                       [&](PyObject* part) { return may_be_part(object, part, depth + 1); });
  PyObject *key, *part;
  for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &part);)
    if (may_be_part(object, part, depth + 1)) return true;
  return false;
}

bool may_be_part(PyObject* object, const std::vector<PyObject*>& values) {
  return std::any_of(values.begin(), values.end(), [&](PyObject* v) { return may_be_part(object, v); });
}

// Objects that are in one place only need no number.
void number_shared(const std::vector<uint32_t>& numbers, OutputSpec* output) {
  if (output->number != kNone) output->number = numbers[output->number];
  for (OutputSpec& part : output->parts) number_shared(numbers, &part);
}

}  // namespace

// ---------------------------------------------------------------- guards

bool Tracer::may_call(const RegionSource& source, PyObject* function) const {
  PyObject* plain = PyMethod_Check(function) ? PyMethod_GET_FUNCTION(function) : function;
  // The values that a function of the script reads are looked up in the module whose function runs now.
  if (PyFunction_Check(plain) && source.codes && PyFunction_GET_GLOBALS(plain) == PyEval_GetGlobals()) {
    // A function that was not rewritten has code that is equal, but not the same object.
    const int known = PySequence_Contains(source.codes.get(), PyFunction_GET_CODE(plain));
    if (known < 0) PyErr_Clear();
    if (known == 1) return !source.defaults || has_defaults(plain, source.defaults.get());
  }
  if (plain != function || !(PyFunction_Check(plain) || PyCFunction_Check(plain))) return false;
  const int known = PySet_Contains(spec_.functions.get(), function);
  if (known < 0) PyErr_Clear();
  return known == 1;
}

// Does the region read the source's value itself, and not only parts of it? An op with an index reads both.
bool Tracer::used_as_value(uint32_t source) const {
  const RegionSource& own = spec_.sources[source];
  if (own.called || own.state || own.indices || own.others) return true;
  for (uint32_t i = 0; i < spec_.sources.size(); ++i) {
    const RegionSource& s = spec_.sources[i];
    const bool at = s.kind == RegionSource::item_at;
    const bool reads =
        (s.kind == RegionSource::item || at) && (s.base == source || (at && s.key_source == source));
    if (reads && !value(i)) return true;
  }
  return false;
}

// Finds where the value of the source is used as an index. Unclear if another number is equal to it.
Tracer::Index Tracer::index_uses(uint32_t source, uint32_t* uses) const {
  PyObject* number = value(source);
  const RegionSource& own = spec_.sources[source];
  uint32_t index;
  if (!number || !as_index(number, &index) || own.others || own.truth) return no_index;
  *uses = spec_.sources[source].indices;
  for (uint32_t i = 0; i < spec_.sources.size(); ++i) {
    const RegionSource& s = spec_.sources[i];
    if (s.kind == RegionSource::item_at && s.key_source == source && !value(i) && takes_index(value(s.base)))
      *uses += static_cast<uint32_t>(s.n);
  }
  if (*uses == 0) return no_index;
  std::vector<long> all = spec_.ints;
  for (uint32_t i = 0; i < spec_.sources.size(); ++i)
    if (i != source && used_as_value(i)) add_ints(value(i), &all);
  return std::find(all.begin(), all.end(), long{index}) == all.end() ? an_index : unclear;
}

const char* Tracer::make_guard(uint32_t source, Guard* guard, uint32_t* budget,
                               Placeholders* placeholders) const {
  PyObject* v = value(source);
  uint32_t uses = 0;
  const bool truth = v && spec_.sources[source].truth;
  const bool read = v && (used_as_value(source) || (truth && !is_container(v)));
  Index index = read ? index_uses(source, &uses) : no_index;
  const Guard::Kind known = session_.against ? session_.against->guards[source].kind : Guard::none;
  if (index == unclear && (strict_ || known == Guard::placeholder))
    return "an index that cannot be distinguished from other numbers";
  if (index == an_index && (known == Guard::equal || known == Guard::index)) index = no_index;
  if (index == an_index) {
    guard->kind = Guard::placeholder;
    uint32_t number = 0;
    as_index(v, &number);
    placeholders->push_back({number, uses});
  } else if (read) {
    *guard = spec_.sources[source].own ? Guard::of_function(v) : Guard::of(v, session_.values.all, budget);
    if (guard->kind == Guard::none) return "a value that can change unnoticed";
  } else if (truth) {
    *guard = Guard::of_truth(v);
  }
  return check_use(source, *guard);
}

// Is the value of a type that the region's use of it allows?
const char* Tracer::check_use(uint32_t source, const Guard& guard) const {
  const RegionSource& s = spec_.sources[source];
  PyObject* v = value(source);
  const bool bound = guard.kind == Guard::method;
  // The value of a method that was found in the class is the function.
  const bool of_class = s.kind == RegionSource::attribute && v && PyFunction_Check(v);
  const bool of_base = bound ? guard.number == s.base : of_class;
  if (s.called && (s.method ? !of_base : bound)) return "a method of another object";
  if (s.called && !(v && may_call(s, v))) return "a function that does not only record";
  if (s.state && guard.kind != Guard::state) return "a method of something that is no RNNState";
  if (s.parameters && !(guard.kind == Guard::parameters && Py_TYPE(v) == &ParametersType))
    return "a method of something that is no Parameters";
  if (s.mapping && !(v && PyDict_CheckExact(v))) return "a method of something that is no dict";
  if (s.expression && guard.kind != Guard::expression) return "+= of something that is no Expression";
  if (s.appended && !(v && PyList_CheckExact(v))) return "append() of something that is no list";
  return nullptr;
}

const char* Tracer::make_guards(Placeholders* placeholders) const {
  uint32_t budget = tuning::kMostParts;
  for (uint32_t i = 0; i < spec_.sources.size(); ++i) {
    learned_->guards.emplace_back();
    if (const char* reason = make_guard(i, &learned_->guards.back(), &budget, placeholders)) return reason;
  }
  return nullptr;
}

// Makes constants of the numbers that are no indices where they seem to be: sizes, for example.
bool Tracer::make_constants(Placeholders* placeholders, const std::vector<NodeId>& inputs) const {
  Placeholders indices;
  size_t at = 0;
  for (uint32_t i = 0; i < learned_->guards.size(); ++i) {
    Guard& guard = learned_->guards[i];
    if (guard.kind != Guard::placeholder) continue;
    const Trace::Placeholder each = (*placeholders)[at++];
    if (Trace::capture(engine().graph, session_.begin, inputs, {each})) {
      indices.push_back(each);
    } else {
      guard = Guard();
      guard.kind = Guard::equal;
      guard.object = Owned(value(i));
    }
  }
  const bool fewer = indices.size() < placeholders->size();
  *placeholders = std::move(indices);
  return fewer;
}

// ---------------------------------------------------------------- the trace

std::unique_ptr<Specialisation> Tracer::learn(PyObject* results, const char** reason) {
  learned_ = std::make_unique<Specialisation>();
  Placeholders placeholders;
  *reason = make_guards(&placeholders);
  if (*reason) return nullptr;
  CapturedInputs captured;
  *reason = "values that changed while it ran";
  for (uint32_t i = 0; i < spec_.sources.size(); ++i)
    if (!learned_->guards[i].check(value(i), session_.values, engine().graph, &captured)) return nullptr;
  for (NodeId input : captured.inputs)
    if (input >= session_.begin) return nullptr;
  *reason = "expressions that are one in some runs only";
  learned_->repeated = captured.repeated();
  if (session_.against && !(session_.against->repeated == learned_->repeated)) return nullptr;
  captured.merge(learned_->repeated);
  *reason = "nodes of something that the source does not read";
  learned_->trace = Trace::capture(engine().graph, session_.begin, captured.inputs, placeholders);
  if (!learned_->trace && !strict_ && !session_.against && make_constants(&placeholders, captured.inputs)) {
    learned_->trace = Trace::capture(engine().graph, session_.begin, captured.inputs, placeholders);
  }
  learned_->partition_guards(sources_);
  for (const auto& p : placeholders) learned_->indices.values.push_back(p.value);
  inputs_ = captured.objects;
  if (!learned_->trace || !collect_steps()) return nullptr;
  *reason = "a result of another kind";
  if (!make_output(spec_.output, results, &learned_->output)) return nullptr;
  for (uint32_t& count : counts_) count = count > 1 ? learned_->n_shared++ : kNone;
  number_shared(counts_, &learned_->output);
  return std::move(learned_);
}

// The steps that builders made during the session.
bool Tracer::collect_steps() {
  const Trace& trace = *learned_->trace;
  for (const auto& [source, before] : session_.builders) {
    RnnBuilder& b = *state_in(value(source))->b->core;
    for (RnnBuilder::Step step = before; step < b.steps(engine()); ++step) {
      std::vector<uint32_t>& positions = learned_->steps.emplace_back(BuilderStep{source, {}}).positions;
      for (uint32_t i = 0; i <= b.state_size(); ++i) {
        positions.push_back(trace.index_of(b.nodes(engine(), step)[i]));
        if (positions.back() == kNone) return false;
      }
    }
  }
  return true;
}

// ---------------------------------------------------------------- results

uint32_t Tracer::number_of(PyObject* object) {
  const auto at = static_cast<size_t>(std::find(objects_.begin(), objects_.end(), object) - objects_.begin());
  if (at == objects_.size()) {
    objects_.push_back(object);
    counts_.push_back(0);
  }
  ++counts_[at];
  return static_cast<uint32_t>(at);
}

// A state that the region made, after one that it read or made.
bool Tracer::make_state_output(PyObject* object, OutputSpec* output) {
  const PyRnnState* s = state_in(object);
  for (uint32_t i = 0; i < spec_.sources.size(); ++i)
    if (value(i) == object && learned_->guards[i].kind == Guard::state) {
      output->kind = RegionOutput::source;
      output->at = i;
      return true;
    }
  uint32_t first = 0;  // of the builder's steps, among all
  for (const auto& [source, before] : session_.builders) {
    if (state_in(value(source))->b != s->b) {
      const auto of_source = [source = source](const BuilderStep& step) { return step.source == source; };
      first +=
          static_cast<uint32_t>(std::count_if(learned_->steps.begin(), learned_->steps.end(), of_source));
      continue;
    }
    if (s->step < before || !s->prev) return false;
    output->kind = RegionOutput::state;
    output->number = number_of(object);
    output->at = first + static_cast<uint32_t>(s->step - before);
    output->parts.emplace_back();
    return make_state_output(reinterpret_cast<PyObject*>(s->prev), &output->parts[0]);
  }
  return false;
}

// An expression that is an input, or a new one, which may be of an input's node.
bool Tracer::make_expression_output(PyObject* object, OutputSpec* output) {
  const PyTypeObject* type = Py_TYPE(object);
  if (type != &ExpressionType && type->tp_base != &ExpressionType) return false;
  if (takes_index(object) && is_table(object)) return false;
  if (PyObject_TypeCheck(object, &ParametersType)) return false;
  output->at = learned_->trace->index_of(reinterpret_cast<PyExpression*>(object)->id);
  const auto known = std::find(inputs_.begin(), inputs_.end(), object);
  if (known != inputs_.end()) {
    output->kind = RegionOutput::input;  // of whatever type
    output->at = static_cast<uint32_t>(known - inputs_.begin());
  } else if (engine().graph.is_parameter(reinterpret_cast<PyExpression*>(object)->id) &&
             may_be_part(object, session_.values.all)) {
    return false;  // an expression of parameters that existed before
  } else {
    output->type = Py_TYPE(object);
    output->number = number_of(object);
  }
  return output->at != kNone;
}

bool Tracer::make_output(const RegionOutput& spec, PyObject* object, OutputSpec* output) {
  output->kind = spec.kind;
  output->at = spec.at;
  output->object = spec.object;
  // A part of something that has no parts is the result of an op.
  const bool op = spec.kind == RegionOutput::source && !value(spec.at);
  // Functions may have other defaults than the source says.
  if (spec.kind == RegionOutput::constant) return is_constant(object, spec.object.get());
  if (spec.kind == RegionOutput::source && !op) return object == value(spec.at);
  const bool sequence = is_sequence(object);
  if (is_plain_value(object) && !op) {  // follows from values that are guarded
    output->kind = RegionOutput::constant;
    output->object = Owned(object);
    return true;
  }
  if (is_parameters(object) && !op) return make_part_output(object, output);
  if (spec.kind == RegionOutput::derived && is_container(object)) return make_derived_output(object, output);
  if (!sequence && (op || spec.kind == RegionOutput::recorded || spec.kind == RegionOutput::either ||
                    spec.kind == RegionOutput::derived)) {
    output->kind = RegionOutput::recorded;
    return Py_TYPE(object) == &RnnStateType ? make_state_output(object, output)
                                            : make_expression_output(object, output);
  }
  return sequence && !op && make_sequence_output(spec, object, output);
}

namespace {

// Adds a way for each place of the object in the value, whose guard is `guard`.
void find_places(PyObject* object, PyObject* value, const Guard& guard, const Owned& way,
                 std::vector<Owned>* found) {
  if (value == object && guard.kind == Guard::parameters) found->push_back(way);
  if (guard.kind != Guard::items) return;
  const bool dict = PyDict_CheckExact(value);
  Py_ssize_t at = 0;
  PyObject *key, *part;
  for (size_t i = 0; i < guard.parts.size(); ++i) {
    if (dict && !PyDict_Next(value, &at, &key, &part)) return;
    if (!dict) part = PySequence_Fast_ITEMS(value)[i];
    const Owned last = dict ? Owned(key) : Owned::steal(PyLong_FromSize_t(i));
    const Owned end = last ? Owned::steal(PyTuple_Pack(1, last.get())) : Owned();
    const Owned longer = end ? Owned::steal(PySequence_Concat(way.get(), end.get())) : Owned();
    if (!longer) throw PythonError();
    find_places(object, part, guard.parts[i], longer, found);
  }
}

}  // namespace

// Parameters that a list or dict of the script's holds in one place, as dy.parameter() returns them. The
// guards of their values decide where; another object in another place could be of the same parameters.
bool Tracer::make_part_output(PyObject* object, OutputSpec* output) {
  std::vector<Owned> ways;
  const Owned empty = Owned::steal(PyTuple_New(0));
  if (!empty) throw PythonError();
  for (uint32_t i = 0; i < spec_.sources.size(); ++i) {
    const size_t before = ways.size();
    if (value(i)) find_places(object, value(i), learned_->guards[i], empty, &ways);
    if (ways.size() > before) output->at = i;
  }
  if (ways.size() != 1) return false;
  output->kind = RegionOutput::part;
  output->object = std::move(ways[0]);
  return true;
}

// A list, tuple or dict of results that the run has made.
bool Tracer::make_derived_output(PyObject* object, OutputSpec* output) {
  static const RegionOutput kDerived{RegionOutput::derived};
  const bool dict = PyDict_CheckExact(object);
  if (may_be_part(object, session_.values.all)) return false;
  output->kind = dict                         ? RegionOutput::dict
                 : PyTuple_CheckExact(object) ? RegionOutput::tuple
                                              : RegionOutput::list;
  output->number = number_of(object);
  if (counts_[output->number] > 1) return true;  // made already, or in itself
  const Py_ssize_t n = dict ? PyDict_GET_SIZE(object) : Py_SIZE(object);
  if (dict) output->object = Owned::steal(PyTuple_New(n));
  Py_ssize_t at = 0;
  PyObject *key, *part;
  for (Py_ssize_t i = 0; i < n; ++i) {
    part = dict ? nullptr : PySequence_Fast_ITEMS(object)[i];
    if (dict) {
      if (!output->object || !PyDict_Next(object, &at, &key, &part) || !is_plain_value(key)) return false;
      PyTuple_SET_ITEM(output->object.get(), i, Owned(key).release());
    }
    output->parts.emplace_back();
    if (!make_output(kDerived, part, &output->parts.back())) return false;
  }
  return true;
}

// A list or tuple. One that existed before, or that an op on lists made, may have other names in the script.
bool Tracer::make_sequence_output(const RegionOutput& spec, PyObject* object, OutputSpec* output) {
  const std::vector<PyObject*>& all = session_.values.all;
  const bool recorded = spec.kind == RegionOutput::recorded;
  const bool known = std::find(all.begin(), all.end(), object) != all.end();
  if (spec.kind == RegionOutput::either || (recorded && (known || PyList_CheckExact(object)))) return false;
  output->kind = PyTuple_CheckExact(object) ? RegionOutput::tuple : RegionOutput::list;
  output->number = number_of(object);
  const size_t n = static_cast<size_t>(Py_SIZE(object));
  if (!recorded && n != spec.parts.size()) return false;
  for (size_t i = 0; i < n; ++i) {
    output->parts.emplace_back();
    const RegionOutput& part = recorded ? spec : spec.parts[i];
    if (!make_output(part, PySequence_Fast_ITEMS(object)[i], &output->parts.back())) return false;
  }
  return true;
}

}  // namespace dyc::py
