// How a block is watched, and recorded again.
//
// A block runs as the script has it until a run was watched from its first node to its last. What it read then
// is held against what it reads now; where that is the same but for expressions of equal extents and for
// indices, the block would record the same ops, and they are recorded without it. Every kReview-th time the
// script runs all the same and what it records is compared.
#include "bindings/template.h"

#include <algorithm>
#include <cstddef>

#include "bindings/arguments.h"
#include "bindings/compute.h"

namespace dyc::py {

namespace {

constexpr size_t kPrograms = 64;      // ways in which one block is known to run
constexpr uint64_t kFair = 4;        // a block that is recorded less often than it is learned is left alone
constexpr uint64_t kTrial = 256;     // but not before it was learned as often as this
constexpr uint64_t kRefusals = 64;   // runs that could not be learned from, until the block is left alone
constexpr uint64_t kReview = 1024;
constexpr uint32_t kSameIndex = 8;  // runs with one value of an index, until it is taken for a constant
constexpr uint32_t kMostParts = 128;  // values in the lists that a block reads

PyRnnState* state_in(PyObject* o) { return reinterpret_cast<PyRnnState*>(o); }
bool is_table(PyObject* o) { return PyObject_TypeCheck(o, &LookupParametersType); }
bool takes_index(PyObject* o) { return o && is_expression(o) && (is_table(o) || !PyObject_TypeCheck(o, &ParametersType)); }

}  // namespace

// ---------------------------------------------------------------- calls

bool Template::evaluate(const TemplateSlot& slot, PyObject** value) {
  PyObject* base = values_[slot.base];
  *value = nullptr;
  if (!base) return true;
  const bool sequence = PyTuple_CheckExact(base) || PyList_CheckExact(base);
  // What is appended to a list shows in its length and items.
  if (std::find(reads_.appended.begin(), reads_.appended.end(), base) != reads_.appended.end()) return false;
  if (slot.kind == TemplateSlot::count) return sequence && Py_SIZE(base) == slot.n;
  if (slot.kind == TemplateSlot::attribute) {
    *value = PyObject_GetAttr(base, slot.key.get());
    attribute_values_.push_back(Owned::steal(*value));
    return *value != nullptr;
  }
  PyObject* key = slot.kind == TemplateSlot::item ? slot.key.get() : values_[slot.key_slot];
  if (sequence) {
    if (!key || !PyLong_CheckExact(key)) return false;
    Py_ssize_t i = PyLong_AsSsize_t(key);
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

bool Template::evaluate(PyObject* const* args) {
  std::copy(args, args + n_args_, values_.begin());
  reads_.appended.clear();
  for (uint32_t i = 0; i < n_args_; ++i)
    if (slots_[i].appended) reads_.appended.push_back(values_[i]);
  for (size_t i = n_args_; i < slots_.size(); ++i)
    if (!evaluate(slots_[i], &values_[i])) return false;
  return true;
}

bool Template::matches(const Program& p, const Graph& graph) {
  reads_.clear();
  for (size_t i = 0; i < slots_.size(); ++i)
    if (!p.guards[i].holds(values_[i], values_.data(), graph, &reads_)) return false;
  return p.pattern->fits(graph, reads_.inputs.data(), reads_.holes.data());
}

PyObject* Template::replay(Program& p) {
  p.pattern->record(engine().graph, reads_.inputs.data(), reads_.holes.data());
  new_steps_.clear();
  std::vector<NodeId>& nodes = reads_.nodes;
  for (const Step& s : p.steps) {
    nodes.clear();
    for (const uint32_t place : s.places) nodes.push_back(p.pattern->nodes()[place]);
    new_steps_.push_back(state_in(values_[s.slot])->b->core->add_step(engine(), nodes));
  }
  return build(p.result, p);
}

PyObject* Template::call(PyObject* const* args, size_t n) {
  if (off_ || busy_ || n != n_args_) return nullptr;
  Engine* e = engine_or_error();
  if (!e || e->options.immediate) return nullptr;
  busy_ = true;
  PyObject* result = nullptr;
  if (evaluate(args)) {
    const auto p = std::find_if(programs_.begin(), programs_.end(),
                                [&](const auto& each) { return matches(*each, e->graph); });
    if (p == programs_.end()) {
      ++misses_;
      watch(nullptr);
    } else if (!(*p)->confirmed || ++(*p)->hits % kReview == 0) {
      ++reviews_;
      watch(p->get());
    } else {
      ++hits_;
      std::rotate(programs_.begin(), p, p + 1);  // what runs now runs again soon
      result = replay(*programs_.front());
    }
  }
  attribute_values_.clear();
  busy_ = false;
  return result;
}

PyObject* Template::build(const Made& made, const Program& p) const {
  switch (made.kind) {
    case TemplateResult::slot:
      return Owned(values_[made.at]).release();
    case TemplateResult::constant:
      return Owned(made.object.get()).release();
    case TemplateResult::recorded: {
      PyObject* input = made.at < p.pattern->n_inputs() ? reads_.objects[made.at] : nullptr;
      return input ? Owned(input).release() : make_expression(p.pattern->nodes()[made.at], made.type);
    }
    case TemplateResult::state: {
      const Owned prev = Owned::steal(build(made.parts[0], p));
      return next_state(state_in(prev.get()), new_steps_[made.at]);
    }
    case TemplateResult::tuple:
    case TemplateResult::list:
      break;
  }
  const auto n = static_cast<Py_ssize_t>(made.parts.size());
  const bool tuple = made.kind == TemplateResult::tuple;
  PyObject* all = tuple ? PyTuple_New(n) : PyList_New(n);
  if (!all) throw PythonError();
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* part = build(made.parts[static_cast<size_t>(i)], p);
    if (tuple) PyTuple_SET_ITEM(all, i, part);
    else PyList_SET_ITEM(all, i, part);
  }
  return all;
}

// ---------------------------------------------------------------- learning

void Template::watch(Program* against) {
  if (!against && misses_ > kTrial && hits_ < kFair * misses_) return give_up("it runs in too many ways");
  const Engine& e = engine();
  watch_.on = true;
  watch_.engine = &e;
  watch_.version = e.graph.version();
  watch_.reverts = e.graph.reverts();
  watch_.begin = e.graph.size();
  watch_.against = against;
  watch_.values.clear();
  for (PyObject* v : values_) watch_.values.emplace_back(v);
  watch_.builders.clear();
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    PyObject* v = values_[i];
    if (!v || Py_TYPE(v) != &RnnStateType || !state_in(v)->b) continue;
    const auto same = [&](const auto& known) { return state_in(values_[known.first])->b == state_in(v)->b; };
    if (std::any_of(watch_.builders.begin(), watch_.builders.end(), same)) continue;
    watch_.builders.emplace_back(i, state_in(v)->b->core->steps(engine()));
  }
}

void Template::done(PyObject* results) {
  if (!watch_.on || watch_.engine != &engine()) return;
  watch_.on = false;
  const Graph& g = engine().graph;
  const bool whole = g.version() == watch_.version && g.reverts() == watch_.reverts;
  const char* reason = "the graph was renewed or reverted";
  std::unique_ptr<Program> p = whole ? take(results, &reason) : nullptr;
  if (!p) {
    refusal_ = reason;
    if (watch_.against) watch_.against->confirmed = false;  // compare again
    if (++refusals_ >= kRefusals && programs_.empty()) give_up("what it records cannot be learned");
  } else if (!watch_.against) {
    keep(std::move(p));
  } else if (!p->pattern->same_as(*watch_.against->pattern) || p->steps != watch_.against->steps ||
             !same_result(p->result, watch_.against->result)) {
    give_up("the script recorded something else than what was learned");
  } else {
    confirm(watch_.against, *p);
  }
  watch_.values.clear();
}

void Template::confirm(Program* p, const Program& again) {
  p->varied.resize(p->holes.size());
  for (size_t i = 0; i < p->holes.size(); ++i) p->varied[i] |= p->holes[i] != again.holes[i];
  if (++p->compared >= kSameIndex) fix_indices(p);
  p->confirmed = std::all_of(p->varied.begin(), p->varied.end(), [](uint8_t v) { return v; });
}

// Indices that were always the same: runs with another value are another way of running.
void Template::fix_indices(Program* p) {
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
}

void Template::keep(std::unique_ptr<Program> p) {
  if (programs_.size() == kPrograms) programs_.pop_back();
  programs_.insert(programs_.begin(), std::move(p));
}

void Template::give_up(const char* reason) {
  off_ = true;
  reason_ = reason;
  programs_.clear();
}

bool Template::may_call(const TemplateSlot& slot, PyObject* function) const {
  PyObject* plain = PyMethod_Check(function) ? PyMethod_GET_FUNCTION(function) : function;
  if (PyFunction_Check(plain) && slot.codes) {
    PyObject* codes = slot.codes.get();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(codes); ++i)
      if (PyList_GET_ITEM(codes, i) == PyFunction_GET_CODE(plain)) return true;
  }
  if (plain != function || !(PyFunction_Check(plain) || PyCFunction_Check(plain))) return false;
  const int known = PySet_Contains(functions_.get(), function);
  if (known < 0) PyErr_Clear();
  return known == 1;
}

// Reading an attribute must run no code of the script.
bool Template::attributes_are_plain() const {
  const auto plain = [&](uint32_t base, PyObject* name) {
    PyObject* object = watch_.values[base].get();
    if (!object) return true;
    PyObject* answer = PyObject_CallFunctionObjArgs(plain_attribute_.get(), object, name, nullptr);
    if (!answer) PyErr_Clear();
    const bool yes = answer == Py_True;
    Py_XDECREF(answer);
    return yes;
  };
  for (const Attribute& a : attributes_)
    if (!plain(a.base, a.name.get())) return false;
  for (const TemplateSlot& s : slots_)
    if (s.kind == TemplateSlot::attribute && !plain(s.base, s.key.get())) return false;
  return true;
}

// Is the slot's value itself read, or only its parts? An op with an index reads both.
bool Template::used_as_value(uint32_t slot) const {
  if (slots_[slot].value || slots_[slot].called || slots_[slot].state || slots_[slot].indices || slots_[slot].others) return true;
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
      ++*uses;
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
  const TemplateSlot& s = slots_[slot];
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
    *guard = Guard::of(value, watch_.values, budget);
    if (guard->kind == Guard::none) return "a value that can change unnoticed";
  }
  if (s.called && !(value && may_call(s, value))) return "a function that does not only record";
  if (s.state && guard->kind != Guard::state) return "a method of something that is no RNNState";
  if (s.expression && guard->kind != Guard::expression) return "+= of something that is no Expression";
  if (s.appended && !(value && PyList_CheckExact(value))) return "append() of something that is no list";
  return nullptr;
}

const char* Template::make_guards(Program* p, std::vector<Pattern::Hole>* holes) const {
  uint32_t budget = kMostParts;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    p->guards.emplace_back();
    if (const char* reason = make_guard(i, &p->guards.back(), &budget, holes)) return reason;
  }
  return nullptr;
}

std::unique_ptr<Template::Program> Template::take(PyObject* results, const char** reason) const {
  auto p = std::make_unique<Program>();
  std::vector<Pattern::Hole> holes;
  *reason = "an attribute whose reading runs code";
  if (!attributes_are_plain()) return nullptr;
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
  return make_result(result_, results, *p, &p->result) ? std::move(p) : nullptr;
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

// A state made by the block: after one that it read, or made.
bool Template::make_state(PyObject* object, const Program& p, Made* made) const {
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
    made->at = first + static_cast<uint32_t>(s->step - before);
    made->parts.emplace_back();
    return make_state(reinterpret_cast<PyObject*>(s->prev), p, &made->parts[0]);
  }
  return false;
}

bool Template::make_result(const TemplateResult& spec, PyObject* object, const Program& p, Made* made) const {
  made->kind = spec.kind;
  made->at = spec.at;
  made->object = spec.object;
  // A part of something that has no parts is what an op made of it.
  const bool op = spec.kind == TemplateResult::slot && !watch_.values[spec.at];
  if (op) made->kind = TemplateResult::recorded;
  if ((spec.kind == TemplateResult::slot && !op) || spec.kind == TemplateResult::constant) return true;
  const bool sequence = PyTuple_CheckExact(object) || PyList_CheckExact(object);
  if ((op || spec.kind == TemplateResult::recorded) && !sequence) {
    const PyTypeObject* type = Py_TYPE(object);
    if (type == &RnnStateType) return make_state(object, p, made);
    if (type != &ExpressionType && type->tp_base != &ExpressionType) return false;
    if (takes_index(object) && is_table(object)) return false;
    if (PyObject_TypeCheck(object, &ParametersType)) return false;
    made->at = p.pattern->place_of(reinterpret_cast<PyExpression*>(object)->id);
    made->type = Py_TYPE(object);
    return made->at != kNone;
  }
  if (!sequence || op) return false;
  made->kind = PyTuple_CheckExact(object) ? TemplateResult::tuple : TemplateResult::list;
  const size_t n = static_cast<size_t>(Py_SIZE(object));
  if (spec.kind != TemplateResult::recorded && n != spec.parts.size()) return false;
  for (size_t i = 0; i < n; ++i) {
    made->parts.emplace_back();
    const TemplateResult& part = spec.kind == TemplateResult::recorded ? spec : spec.parts[i];
    if (!make_result(part, PySequence_Fast_ITEMS(object)[i], p, &made->parts.back())) return false;
  }
  return true;
}

bool Template::same_result(const Made& a, const Made& b) {
  return a.kind == b.kind && a.at == b.at && a.type == b.type && a.parts.size() == b.parts.size() &&
         std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), same_result);
}

// ---------------------------------------------------------------- made in Python

namespace {

TemplateResult read_result(PyObject* spec) {
  TemplateResult r;
  int kind;
  PyObject* payload;
  if (!PyArg_ParseTuple(spec, "iO", &kind, &payload)) throw PythonError();
  r.kind = static_cast<TemplateResult::Kind>(kind);
  if (r.kind == TemplateResult::slot) r.at = static_cast<uint32_t>(PyLong_AsLong(payload));
  if (r.kind == TemplateResult::constant) r.object = Owned(payload);
  if (r.kind == TemplateResult::tuple || r.kind == TemplateResult::list)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(payload); ++i)
      r.parts.push_back(read_result(PyTuple_GET_ITEM(payload, i)));
  return r;
}

}  // namespace

void Template::read_slots(PyObject* spec) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(spec); ++i) {
    TemplateSlot s;
    int kind, value, called, expression, state, appended;
    PyObject *key, *codes;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(spec, i), "iIOInpppppIIO!", &kind, &s.base, &key, &s.key_slot, &s.n,
                          &value, &called, &expression, &state, &appended, &s.indices, &s.others, &PyList_Type, &codes))
      throw PythonError();
    s.kind = static_cast<TemplateSlot::Kind>(kind);
    s.key = Owned(key);
    s.value = value;
    s.called = called;
    s.expression = expression;
    s.state = state;
    s.appended = appended;
    s.codes = Owned(codes);
    slots_.push_back(std::move(s));
  }
}

Template::Template(PyObject* spec, PyObject* functions, PyObject* plain_attribute)
    : functions_(functions), plain_attribute_(plain_attribute) {
  const char* name;
  PyObject *slots, *attributes, *ints, *result;
  if (!PyArg_ParseTuple(spec, "sIIO!O!O!O!", &name, &n_args_, &parts_, &PyTuple_Type, &slots, &PyTuple_Type, &attributes,
                        &PyTuple_Type, &ints, &PyTuple_Type, &result))
    throw PythonError();
  name_ = name;
  read_slots(slots);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(attributes); ++i) {
    Attribute a;
    PyObject* attribute;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(attributes, i), "IO", &a.base, &attribute)) throw PythonError();
    a.name = Owned(attribute);
    attributes_.push_back(std::move(a));
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ints); ++i)
    ints_.push_back(PyLong_AsLong(PyTuple_GET_ITEM(ints, i)));
  if (PyErr_Occurred()) throw PythonError();
  result_ = read_result(result);
  values_.resize(slots_.size());
}

PyObject* Template::statistics() const {
  return Py_BuildValue("{s:s,s:K,s:K,s:K,s:K,s:n,s:s,s:s}", "name", name_.c_str(), "hits", hits_, "misses", misses_, "reviews", reviews_,
                       "refusals", refusals_, "programs", static_cast<Py_ssize_t>(programs_.size()), "off",
                       reason_.c_str(), "refusal", refusal_.c_str());
}

// ---------------------------------------------------------------- the Python type

namespace {

struct PyTemplate {
  PyObject_HEAD vectorcallfunc call;
  Template* core;
};

Template* core_of(PyObject* self) { return reinterpret_cast<PyTemplate*>(self)->core; }

// The results, or None: then the script runs. An error here is none of the script's: it runs.
PyObject* call(PyObject* self, PyObject* const* args, size_t n, PyObject*) {
  PyObject* result = nullptr;
  try {
    result = core_of(self)->call(args, static_cast<size_t>(PyVectorcall_NARGS(n)));
  } catch (...) {
    set_error();
  }
  if (result) return result;
  if (PyErr_Occurred()) PyErr_Clear();
  Py_RETURN_NONE;
}

// done(results) -> results
PyObject* done(PyObject* self, PyObject* results) {
  return guarded([&] {
    core_of(self)->done(results);
    Py_INCREF(results);
    return results;
  });
}

PyObject* statistics(PyObject* self, PyObject*) {
  return guarded([&] { return core_of(self)->statistics(); });
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *spec, *functions, *plain_attribute;
  if (!PyArg_ParseTuple(args, "O!O!O:_Template", &PyTuple_Type, &spec, &PySet_Type, &functions,
                        &plain_attribute))
    return nullptr;
  return guarded([&] {
    auto core = std::make_unique<Template>(spec, functions, plain_attribute);
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) throw PythonError();
    reinterpret_cast<PyTemplate*>(self)->call = call;
    reinterpret_cast<PyTemplate*>(self)->core = core.release();
    return self;
  });
}

void dealloc(PyObject* self) {
  delete core_of(self);
  Py_TYPE(self)->tp_free(self);
}

template <PyObject* (Template::*f)(PyObject*, PyObject*, PyObject*)>
PyObject* mapping(PyObject* self, PyObject* args) {
  PyObject *over, *run, *reads;
  if (!PyArg_ParseTuple(args, "OOO", &over, &run, &reads)) return nullptr;
  return guarded([&] { return (core_of(self)->*f)(over, run, reads); });
}

PyMethodDef methods[] = {
    {"done", done, METH_O, "done(results)\n\nThe block ran as the script has it and left these results behind."},
    {"map", mapping<&Template::map>, METH_VARARGS,
     "map(iterable, run, reads)\n\nThe list of run(item) for all items."},
    {"map_zip", mapping<&Template::map_zip>, METH_VARARGS,
     "map_zip(iterables, run, reads)\n\nThe list of run(item) for all items of zip(*iterables)."},
    {"statistics", statistics, METH_NOARGS, "statistics()\n\nHow often the block was recorded by one call."},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject TemplateType = blank_type();

}  // namespace

void add_templates(PyObject* module) {
  PyTypeObject& t = TemplateType;
  t.tp_name = "_dynet._Template";
  t.tp_basicsize = sizeof(PyTemplate);
  t.tp_vectorcall_offset = offsetof(PyTemplate, call);
  t.tp_call = PyVectorcall_Call;
  t.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  t.tp_dealloc = dealloc;
  t.tp_methods = methods;
  t.tp_new = create;
  t.tp_doc = "_Template(spec, functions, plain_attribute): a block of a script, recorded by one call.";
  if (PyType_Ready(&t) < 0) throw PythonError();
  Py_INCREF(&t);
  if (PyModule_AddObject(module, "_Template", reinterpret_cast<PyObject*>(&t)) < 0) throw PythonError();
}

}  // namespace dyc::py
