// How the run of a block is watched, and what is learned from it.
#include <algorithm>

#include "bindings/compute.h"
#include "bindings/template.h"

namespace dyc::py {

namespace {

constexpr size_t kPrograms = 64;      // ways in which one block is known to run
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

void Template::watch(Program* against) {
  if (!against && misses_ > kTrial && hits_ < kFair * misses_) return give_up("it runs in too many ways");
  const Engine& e = engine();
  watch_.on = true;
  watch_.engine = &e;
  watch_.generation = e.graph.generation();
  watch_.begin = e.graph.size();
  watch_.against = against;
  const std::vector<Owned> before =
      std::exchange(watch_.values, {});  // dropping one may run code of the script
  for (PyObject* v : values_) watch_.values.emplace_back(v);
  const std::vector<Owned> kept = std::exchange(watch_.kept, {});
  watch_.builders.clear();
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    PyObject* v = values_[i];
    if (!v || Py_TYPE(v) != &RnnStateType || !state_in(v)->b) continue;
    const auto same = [&](const auto& known) { return state_in(values_[known.first])->b == state_in(v)->b; };
    if (std::any_of(watch_.builders.begin(), watch_.builders.end(), same)) continue;
    watch_.builders.emplace_back(i, state_in(v)->b->core->steps(engine()));
  }
  watch_.start = programs_.empty() ? 0 : clock();
}

bool Template::watching() const { return watch_.on && watch_.engine == &engine(); }

void Template::keep(PyObject* result) {
  if (watching()) watch_.kept.emplace_back(result);
}

// Whatever it read may go now.
void Template::drop() {
  if (!watching()) return;
  watch_.on = false;
  const std::vector<Owned> values = std::exchange(watch_.values, {}), kept = std::exchange(watch_.kept, {});
}

void Template::done(PyObject* rest) {
  if (!watching()) return;
  watch_.on = false;
  if (watch_.start) costs_.written_ns = std::min(costs_.written_ns, clock() - watch_.start);
  const std::vector<Owned> kept = std::exchange(watch_.kept, {});
  const Owned all = kept.empty() ? Owned(rest) : joined(rest, kept);
  PyObject* results = all.get();
  const Graph& g = engine().graph;
  const bool whole = g.generation() == watch_.generation;
  const char* reason = "the graph was renewed or reverted";
  std::unique_ptr<Program> p = whole ? take(results, &reason) : nullptr;
  if (!p) {
    refusal_ = reason;
    if (watch_.against) watch_.against->confirmed = false;  // compare again
    if (++refusals_ >= kRefusals && programs_.empty()) give_up("what it records cannot be learned");
  } else if (!watch_.against) {
    keep(std::move(p));
  } else if (const std::string other = difference(*p, *watch_.against); !other.empty()) {
    give_up("the script recorded something else than what was learned: " + other);
  } else {
    confirm(watch_.against, *p);
  }
  const std::vector<Owned> before =
      std::exchange(watch_.values, {});  // dropped last, as that may come back here
}

void Template::confirm(Program* p, const Program& again) const {
  p->varied.resize(p->holes.size());
  for (size_t i = 0; i < p->holes.size(); ++i) p->varied[i] |= p->holes[i] != again.holes[i];
  if (++p->compared >= kSameIndex) fix_indices(p);
  p->confirmed = std::all_of(p->varied.begin(), p->varied.end(), [](uint8_t v) { return v; });
}

// Indices that were always the same: runs with another value are another way of running.
void Template::fix_indices(Program* p) const {
  size_t hole = 0;
  for (Guard& g : p->guards) {
    if (g.kind != Guard::hole) continue;
    if (p->varied[hole]) {
      ++hole;
      continue;
    }
    g.kind = Guard::equal;
    g.object = Owned::steal(PyLong_FromUnsignedLong(p->holes[hole]));
    p->pattern->fix(static_cast<uint32_t>(hole), p->holes[hole]);
    p->holes.erase(p->holes.begin() + static_cast<ptrdiff_t>(hole));
    p->varied.erase(p->varied.begin() + static_cast<ptrdiff_t>(hole));
  }
  sort_guards(p);
}

// Those of parts that say nothing of the run itself need to be asked only when the parts have changed.
void Template::sort_guards(Program* p) const {
  p->held.assign(parts_.size(), {});
  p->lasting.assign(parts_.size(), {});
  p->always.clear();
  p->again = {};
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (p->guards[i].kind == Guard::none) continue;
    const bool lasting = slots_[i].of != kNone && p->guards[i].lasts();
    (lasting ? p->lasting[slots_[i].of] : p->always).push_back(i);
  }
}

void Template::keep(std::unique_ptr<Program> p) {
  if (programs_.size() == kPrograms) programs_.pop_back();
  programs_.insert(programs_.begin(), std::move(p));
}

std::string Template::difference(const Program& a, const Program& b) {
  if (a.steps != b.steps) return "other steps of sequences";
  if (!same_result(a.result, b.result)) return "other results";
  return a.pattern->difference(*b.pattern);
}

void Template::give_up(const std::string& reason) {
  off_ = true;
  watch_.on = false;
  watch_.against = nullptr;
  reason_ = reason;
  // Dropped last: that may come back here.
  const std::vector<Owned> before = std::exchange(watch_.values, {}), kept = std::exchange(watch_.kept, {});
  const auto programs = std::exchange(programs_, {});
}

// What the block does with defaults was told from how they are written.
bool Template::has_defaults(PyObject* function, PyObject* defaults) {
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

bool Template::may_call(const TemplateSlot& slot, PyObject* function) const {
  PyObject* plain = PyMethod_Check(function) ? PyMethod_GET_FUNCTION(function) : function;
  // The values a function of the script reads are looked up in the module whose function runs now.
  if (PyFunction_Check(plain) && slot.codes && PyFunction_GET_GLOBALS(plain) == PyEval_GetGlobals()) {
    PyObject* codes = slot.codes.get();
    // Functions that were not written anew have code that is only equal.
    const int known = PySequence_Contains(codes, PyFunction_GET_CODE(plain));
    if (known < 0) PyErr_Clear();
    if (known == 1) return !slot.defaults || has_defaults(plain, slot.defaults.get());
  }
  if (plain != function || !(PyFunction_Check(plain) || PyCFunction_Check(plain))) return false;
  const int known = PySet_Contains(functions_.get(), function);
  if (known < 0) PyErr_Clear();
  return known == 1;
}

// Is the slot's value itself read, or only its parts? An op with an index reads both.
bool Template::used_as_value(uint32_t slot) const {
  if (slots_[slot].called || slots_[slot].state || slots_[slot].indices || slots_[slot].others) return true;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const TemplateSlot& s = slots_[i];
    const bool at = s.kind == TemplateSlot::item_at;
    const bool reads = (s.kind == TemplateSlot::item || at) && (s.base == slot || (at && s.key_slot == slot));
    if (reads && !watch_.values[i]) return true;
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

Template::Index Template::index_uses(uint32_t slot, uint32_t* uses) const {
  PyObject* value = watch_.values[slot].get();
  if (!value || !PyLong_CheckExact(value) || slots_[slot].others) return no_index;
  *uses = slots_[slot].indices;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const TemplateSlot& s = slots_[i];
    if (s.kind == TemplateSlot::item_at && s.key_slot == slot && !watch_.values[i] &&
        takes_index(watch_.values[s.base].get()))
      *uses += static_cast<uint32_t>(s.n);
  }
  if (*uses == 0) return no_index;
  int overflow;
  const long v = PyLong_AsLongAndOverflow(value, &overflow);
  if (overflow || v < 0 || v >= long{1} << 31) return no_index;
  std::vector<long> all = ints_;
  for (uint32_t i = 0; i < slots_.size(); ++i)
    if (i != slot && used_as_value(i)) add_ints(watch_.values[i].get(), &all);
  return std::find(all.begin(), all.end(), v) == all.end() ? an_index : unclear;
}

const char* Template::make_guard(uint32_t slot, Guard* guard, uint32_t* budget,
                                 std::vector<Pattern::Hole>* holes) const {
  PyObject* value = watch_.values[slot].get();
  uint32_t uses = 0;
  const bool read = value && used_as_value(slot);
  Index index = read ? index_uses(slot, &uses) : no_index;
  const Guard::Kind known = watch_.against ? watch_.against->guards[slot].kind : Guard::none;
  if (index == unclear && (refusals_ < kRefusals / 2 || known == Guard::hole))
    return "an index that cannot be told from other numbers";
  if (index == an_index && known == Guard::equal) index = no_index;
  if (index == an_index) {
    guard->kind = Guard::hole;
    holes->push_back({static_cast<uint32_t>(PyLong_AsLong(value)), uses});
  } else if (read) {
    *guard = slots_[slot].own ? Guard::of_function(value) : Guard::of(value, watch_.values, budget);
    if (guard->kind == Guard::none) return "a value that can change unnoticed";
  }
  return fits_use(slot, *guard);
}

// Is the value what the block takes it for?
const char* Template::fits_use(uint32_t slot, const Guard& guard) const {
  const TemplateSlot& s = slots_[slot];
  PyObject* value = watch_.values[slot].get();
  const bool bound = guard.kind == Guard::method;
  // Of a method that was found in the class the value is the function.
  const bool of_class = s.kind == TemplateSlot::attribute && value && PyFunction_Check(value);
  const bool of_base = bound ? guard.slot == s.base : of_class;
  if (s.called && (s.method ? !of_base : bound)) return "a method of another object";
  if (s.called && !(value && may_call(s, value))) return "a function that does not only record";
  if (s.state && guard.kind != Guard::state) return "a method of something that is no RNNState";
  if (s.expression && guard.kind != Guard::expression) return "+= of something that is no Expression";
  if (s.appended && !(value && PyList_CheckExact(value))) return "append() of something that is no list";
  return nullptr;
}

const char* Template::make_guards(Program* p, std::vector<Pattern::Hole>* holes) const {
  uint32_t budget = kMostParts;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    p->guards.emplace_back();
    if (const char* reason = make_guard(i, &p->guards.back(), &budget, holes)) return reason;
  }
  sort_guards(p);
  return nullptr;
}

std::unique_ptr<Template::Program> Template::take(PyObject* results, const char** reason) const {
  auto p = std::make_unique<Program>();
  std::vector<Pattern::Hole> holes;
  *reason = make_guards(p.get(), &holes);
  if (*reason) return nullptr;
  Reads reads;
  reads.appended = reads_.appended;
  std::vector<PyObject*> values;
  for (const Owned& v : watch_.values) values.push_back(v.get());
  Graph& g = engine().graph;
  *reason = "values that changed while it ran";
  for (size_t i = 0; i < slots_.size(); ++i)
    if (!p->guards[i].holds(values[i], values.data(), g, &reads)) return nullptr;
  for (NodeId input : reads.inputs)
    if (input >= watch_.begin) return nullptr;
  *reason = "nodes made of something that it does not read as it is written, or one expression read twice";
  p->pattern = Pattern::take(g, watch_.begin, reads.inputs, holes);
  p->holes = reads.holes;
  if (!p->pattern || !make_steps(p.get())) return nullptr;
  *reason = "a result of another kind";
  Objects objects{reads.objects, {}, {}};
  if (!make_result(result_, results, *p, &objects, &p->result)) return nullptr;
  for (uint32_t& places : objects.places) places = places > 1 ? p->n_shared++ : kNone;
  number_shared(objects.places, &p->result);
  return p;
}

// Objects that are in one place only need no number.
void Template::number_shared(const std::vector<uint32_t>& numbers, Made* made) {
  if (made->number != kNone) made->number = numbers[made->number];
  for (Made& part : made->parts) number_shared(numbers, &part);
}

// The steps that builders made while the block ran.
bool Template::make_steps(Program* p) const {
  for (const auto& [slot, before] : watch_.builders) {
    RnnBuilder& b = *state_in(watch_.values[slot].get())->b->core;
    for (RnnBuilder::Step step = before; step < b.steps(engine()); ++step) {
      p->steps.push_back({slot, {}});
      for (uint32_t i = 0; i <= b.state_size(); ++i) {
        p->steps.back().places.push_back(p->pattern->place_of(b.nodes(engine(), step)[i]));
        if (p->steps.back().places.back() == kNone) return false;
      }
    }
  }
  return true;
}

uint32_t Template::Objects::number(PyObject* object) {
  const auto at = std::find(made.begin(), made.end(), object) - made.begin();
  if (static_cast<size_t>(at) == made.size()) {
    made.push_back(object);
    places.push_back(0);
  }
  ++places[static_cast<size_t>(at)];
  return static_cast<uint32_t>(at);
}

// A state made by the block: after one that it read, or made.
bool Template::make_state(PyObject* object, const Program& p, Objects* objects, Made* made) const {
  const PyRnnState* s = state_in(object);
  for (uint32_t i = 0; i < slots_.size(); ++i)
    if (watch_.values[i].get() == object && p.guards[i].kind == Guard::state) {
      made->kind = TemplateResult::slot;
      made->at = i;
      return true;
    }
  uint32_t first = 0;  // of the builder's steps, among all
  for (const auto& [slot, before] : watch_.builders) {
    const bool same = state_in(watch_.values[slot].get())->b == s->b;
    const auto of_slot = [slot = slot](const Step& step) { return step.slot == slot; };
    if (!same) {
      first += static_cast<uint32_t>(std::count_if(p.steps.begin(), p.steps.end(), of_slot));
      continue;
    }
    if (s->step < before || !s->prev) return false;
    made->kind = TemplateResult::state;
    made->number = objects->number(object);
    made->at = first + static_cast<uint32_t>(s->step - before);
    made->parts.emplace_back();
    return make_state(reinterpret_cast<PyObject*>(s->prev), p, objects, &made->parts[0]);
  }
  return false;
}

// An expression that is one of the inputs, or a new one: also of an input's node.
bool Template::make_expression_result(PyObject* object, const Program& p, Objects* objects,
                                      Made* made) const {
  const PyTypeObject* type = Py_TYPE(object);
  if (type != &ExpressionType && type->tp_base != &ExpressionType) return false;
  if (takes_index(object) && is_table(object)) return false;
  if (PyObject_TypeCheck(object, &ParametersType)) return false;
  made->at = p.pattern->place_of(reinterpret_cast<PyExpression*>(object)->id);
  if (made->at < objects->inputs.size() && objects->inputs[made->at] == object) {
    made->kind = TemplateResult::input;  // of whatever type
  } else {
    made->type = Py_TYPE(object);
    made->number = objects->number(object);
  }
  return made->at != kNone;
}

bool Template::make_result(const TemplateResult& spec, PyObject* object, const Program& p, Objects* objects,
                           Made* made) const {
  made->kind = spec.kind;
  made->at = spec.at;
  made->object = spec.object;
  // A part of something that has no parts is what an op made of it.
  const bool op = spec.kind == TemplateResult::slot && !watch_.values[spec.at];
  if (op) made->kind = TemplateResult::recorded;
  // Defaults of functions may be others than they are written.
  if (spec.kind == TemplateResult::constant) return is_constant(object, spec.object.get());
  if (spec.kind == TemplateResult::slot && !op) return true;
  const bool sequence = PyTuple_CheckExact(object) || PyList_CheckExact(object);
  const bool recorded = spec.kind == TemplateResult::recorded, either = spec.kind == TemplateResult::either;
  if (!sequence && (op || recorded || either)) {
    made->kind = TemplateResult::recorded;
    if (Py_TYPE(object) == &RnnStateType) return make_state(object, p, objects, made);
    return make_expression_result(object, p, objects, made);
  }
  // A list or tuple that was there before, or that an op on lists made, may be known under other names.
  const auto is_read = [object](const Owned& value) { return value.get() == object; };
  const bool known = std::any_of(watch_.values.begin(), watch_.values.end(), is_read);
  if (!sequence || op || either || (recorded && (known || PyList_CheckExact(object)))) return false;
  made->kind = PyTuple_CheckExact(object) ? TemplateResult::tuple : TemplateResult::list;
  made->number = objects->number(object);
  const size_t n = static_cast<size_t>(Py_SIZE(object));
  if (!recorded && n != spec.parts.size()) return false;
  for (size_t i = 0; i < n; ++i) {
    made->parts.emplace_back();
    const TemplateResult& part = recorded ? spec : spec.parts[i];
    if (!make_result(part, PySequence_Fast_ITEMS(object)[i], p, objects, &made->parts.back())) return false;
  }
  return true;
}

bool Template::same_result(const Made& a, const Made& b) {
  return a.kind == b.kind && a.at == b.at && a.number == b.number && a.type == b.type &&
         a.parts.size() == b.parts.size() &&
         std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), same_result);
}

}  // namespace dyc::py
