#include "bindings/region_walk_reads.h"

#include "bindings/builders.h"
#include "bindings/python_compat.h"

namespace dyc::py {

namespace {

// Not among the kinds of reads: a guard of a region.
constexpr uint64_t kGuard = 64;

// Items of a list of numbers and text that are compared as a whole. Guess: words of a sentence.
constexpr Py_ssize_t kMostCompared = 4 * tuning::kMemoItems;

bool is_parameters_object(PyObject* o) {
  return Py_TYPE(o) == &ParametersType || Py_TYPE(o) == &LookupParametersType;
}

// May any other expression stand in its place? Not for classes of the script, whose operators it may have
// changed.
bool is_input(PyObject* o) {
  return is_expression(o) && !is_parameters(o) && !PyType_HasFeature(Py_TYPE(o), Py_TPFLAGS_HEAPTYPE);
}

// Is it an object of a class of the script, which could get a `__get__` later?
bool may_become_computed(PyTypeObject* type, PyObject* name) {
  PyObject* found = _PyType_Lookup(type, name);
  return found && PyType_HasFeature(Py_TYPE(found), Py_TPFLAGS_HEAPTYPE);
}

bool is_large(PyObject* o) {
  if (PyUnicode_CheckExact(o)) return PyUnicode_GET_LENGTH(o) > tuning::kMemoText;
  if (!PyLong_CheckExact(o)) return false;
  int overflow;
  PyLong_AsLongAndOverflow(o, &overflow);
  return overflow != 0;
}

bool are_plain(PyObject* sequence) {
  PyObject** const items = PySequence_Fast_ITEMS(sequence);
  return std::all_of(items, items + Py_SIZE(sequence), is_plain_value);
}

// Is it compared as a whole where a part is read? Numbers and text are compared fast.
bool is_read_whole(PyObject* sequence) {
  const Py_ssize_t n = Py_SIZE(sequence);
  return n <= tuning::kMemoItems || (n <= kMostCompared && are_plain(sequence));
}

}  // namespace

size_t WalkReads::HashDone::operator()(const Done& d) const {
  const auto mix = [](const void* p) { return reinterpret_cast<uintptr_t>(p) >> 4; };
  return (mix(d.base) * 0x9E3779B97F4A7C15 ^ mix(d.key) * 0xBF58476D1CE4E5B9) + d.kind;
}

void WalkReads::begin_reads(PyObject* const* args, size_t n, PyObject* globals, PyObject* builtins) {
  memo_ = std::make_unique<WalkMemo>();
  is_on_ = true;
  memo_->globals = globals;
  memo_->builtins = builtins;
  args_.assign(args, args + n);
  done_.clear();
  known_.clear();
  made_.clear();
  inputs_.clear();
  input_ids_.clear();
  specialisations_.clear();
  types_.clear();
  keys_.clear();
  input_nodes_.clear();
  for (size_t i = 0; is_on() && i < n; ++i) {
    // An object that is two arguments could be two objects next time.
    if (std::find(args, args + i, args[i]) != args + i && !(args[i] && is_plain_value(args[i])))
      return give_up();
    if (!args[i]) return give_up();
    const bool list = is_sequence(args[i]);
    const MemoExpected expected = list ? MemoExpected{nullptr, Py_TYPE(args[i])} : expect(args[i]);
    memo_->arguments.push_back({expected, list});
  }
}

// ---------------------------------------------------------------- reads

bool WalkReads::is_new(uint64_t kind, const void* base, const void* key) {
  return is_on() && done_.insert({kind, base, key}).second;
}

// Its index among the types of the memo.
uint16_t WalkReads::type_of(PyTypeObject* type) {
  const auto at = types_.find(type);
  if (at != types_.end()) return at->second;
  uint32_t version = 0;
  if (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && (version = type_version(type)) == 0) give_up();
  const size_t index = memo_->types.size();
  if (index > UINT16_MAX) give_up();
  memo_->types.push_back({type, version});
  return types_[type] = static_cast<uint16_t>(index);
}

uint16_t WalkReads::key_of(PyObject* key) {
  const auto [at, fresh] = keys_.emplace(key, static_cast<uint16_t>(memo_->keys.size()));
  if (fresh) {
    if (memo_->keys.size() > UINT16_MAX) give_up();
    memo_->keys.push_back(key);
    keep(key);
  }
  return at->second;
}

// What must be read again in place of this value.
MemoExpected WalkReads::expect(PyObject* value) {
  // A list that is also an argument: any list of equal items could be the argument next time. A bound method
  // is made when it is read. A state may be at the start or not. Large numbers and texts would fill the
  // memory.
  const bool argument = is_sequence(value) && std::find(args_.begin(), args_.end(), value) != args_.end();
  if (argument || PyMethod_Check(value) || Py_TYPE(value) == &RnnStateType || is_large(value)) {
    give_up();
    return {};
  }
  if (is_input(value)) {
    NodeId id;
    if (!to_node(value, "expression", &id)) {
      PyErr_Clear();
      give_up();
      return {};
    }
    if (inputs_.emplace(value, static_cast<uint32_t>(memo_->equal_inputs.size())).second) {
      const auto number = static_cast<uint32_t>(memo_->equal_inputs.size());
      memo_->equal_inputs.push_back(input_nodes_.emplace(id, number).first->second);
      input_ids_.push_back(id);
    } else {
      give_up();  // read in two places, where two expressions may be next time
    }
    return {nullptr, Py_TYPE(value)};
  }
  if (is_plain_value(value)) {
    keep(value);
  } else {
    known_.insert(value);
    if (PyType_Check(value)) type_of(reinterpret_cast<PyTypeObject*>(value));
    if (is_on() && is_parameters_object(value)) parameters(value);
  }
  type_of(Py_TYPE(value));
  return {value, Py_TYPE(value)};
}

void WalkReads::expect(PyObject* value, MemoRead* r) {
  const MemoExpected e = expect(value);
  if (!is_on()) return;
  r->object = e.object;
  r->type = type_of(e.type);
}

bool WalkReads::find_base(PyObject* base, MemoRead* r) {
  const auto at = std::find(args_.begin(), args_.end(), base);
  r->base = base;
  r->of_argument = at != args_.end();
  if (r->of_argument) r->argument = static_cast<uintptr_t>(at - args_.begin());
  else if (!known_.contains(base) && base != memo_->globals) give_up();
  return is_on();
}

// Null: it was added before, or the walk cannot be a memo.
MemoRead* WalkReads::add_read(MemoRead::Kind kind, PyObject* base, PyObject* key) {
  MemoRead r;
  r.kind = kind;
  if (!is_new(kind, base, key) || !find_base(base, &r)) return nullptr;
  return &memo_->reads.emplace_back(r);
}

void WalkReads::read(MemoRead::Kind kind, PyObject* base, PyObject* key, PyObject* value) {
  if (kind == MemoRead::item && !value) kind = MemoRead::absent;
  // The method of its class, made when it is read: what is bound is remembered.
  const bool method = kind == MemoRead::attribute && PyMethod_Check(value) &&
                      PyMethod_GET_SELF(value) == base &&
                      PyMethod_GET_FUNCTION(value) == _PyType_Lookup(Py_TYPE(base), key);
  if (method) return read(MemoRead::method, base, key, PyMethod_GET_FUNCTION(value));
  if (made_.contains(base)) return read_made(value);
  if (!is_new(kind, base, key)) return;
  MemoRead r;
  r.kind = kind;
  if (!find_base(base, &r)) return;
  r.base_type = type_of(Py_TYPE(base));
  if (kind == MemoRead::attribute && may_become_computed(Py_TYPE(base), key)) return give_up();
  if (kind == MemoRead::attribute && (r.n = slot_offset(Py_TYPE(base), key)) != 0) r.kind = MemoRead::slot;
  if (key) r.key = key_of(key);
  if (value) expect(value, &r);
  if (is_on()) memo_->reads.push_back(r);
}

// What an object that the walk has made has of its class, which is as it was (constructor()).
void WalkReads::read_made(PyObject* value) {
  if (!is_on() || made_.contains(value)) return;
  if (is_input(value) || is_sequence(value) || is_dict(value)) return give_up();
  expect(value);
}

void WalkReads::constructor(PyTypeObject* type, PyObject* init) {
  MemoRead* r = add_read(MemoRead::constructor, reinterpret_cast<PyObject*>(type));
  if (!r) return;
  r->base_type = type_of(type);
  if (init) known_.insert(init);
}

void WalkReads::length(PyObject* container) {
  if (!is_on() || !(is_sequence(container) || is_dict(container)) || is_of_program(container)) return;
  if (is_sequence(container) && is_read_whole(container)) return items(container);
  if (!is_new(MemoRead::size, container, nullptr)) return;
  MemoRead r;
  r.kind = MemoRead::size;
  if (!find_base(container, &r)) return;
  r.n = static_cast<uint32_t>(size_of(container));
  memo_->reads.push_back(r);
}

void WalkReads::element(PyObject* sequence, size_t i) {
  if (!is_on() || is_of_program(sequence)) return;
  if (is_read_whole(sequence)) return items(sequence);
  if (!is_new(MemoRead::element, sequence, reinterpret_cast<const void*>(i << 4))) return;
  MemoRead r;
  r.kind = MemoRead::element;
  if (!find_base(sequence, &r)) return;
  r.n = static_cast<uint32_t>(i);
  expect(PySequence_Fast_ITEMS(sequence)[i], &r);
  if (is_on()) memo_->reads.push_back(r);
}

// Is it a tuple of numbers and text that stands in a program?
bool WalkReads::is_of_program(PyObject* o) const {
  return PyTuple_CheckExact(o) && !known_.contains(o) && are_plain(o) &&
         std::find(args_.begin(), args_.end(), o) == args_.end();
}

void WalkReads::items(PyObject* sequence) {
  if (!is_new(MemoRead::sequence, sequence, nullptr)) return;
  MemoRead r;
  r.kind = MemoRead::sequence;
  if (!find_base(sequence, &r)) return;
  r.n = static_cast<uint32_t>(Py_SIZE(sequence));
  r.key = are_plain(sequence);
  for (uint32_t i = 0; i < r.n && is_on(); ++i) {
    const MemoExpected each = expect(PySequence_Fast_ITEMS(sequence)[i]);
    if (is_on()) memo_->items.push_back(each);
  }
  if (is_on()) memo_->reads.push_back(r);
}

void WalkReads::entries(PyObject* dict) {
  if (!is_new(MemoRead::entries, dict, nullptr)) return;
  MemoRead r;
  r.kind = MemoRead::entries;
  if (!find_base(dict, &r)) return;
  Py_ssize_t at = 0;
  PyObject *key, *value;
  while (is_on() && PyDict_Next(dict, &at, &key, &value)) {
    if (!is_plain_value(key)) return give_up();
    for (PyObject* each : {key, value}) {
      const MemoExpected expected = expect(each);
      if (is_on()) memo_->items.push_back(expected);
    }
    r.n += 2;
  }
  if (is_on()) memo_->reads.push_back(r);
}

void WalkReads::function(PyObject* function, const WalkProgram& program) {
  if (!is_new(MemoRead::defaults, function, nullptr)) return;
  MemoRead r;
  r.kind = MemoRead::defaults;
  if (!find_base(function, &r)) return;
  PyObject* code = PyFunction_GET_CODE(function);
  PyObject* defaults = PyFunction_GET_DEFAULTS(function);
  for (Py_ssize_t i = 0; defaults && i < PyTuple_GET_SIZE(defaults); ++i)
    if (!is_plain_value(PyTuple_GET_ITEM(defaults, i))) return give_up();
  r.object = code;
  r.key = key_of(defaults ? defaults : Py_None);
  r.n = static_cast<uint32_t>(memo_->globals_of.size());
  memo_->globals_of.push_back(PyFunction_GET_GLOBALS(function));
  known_.insert(PyFunction_GET_GLOBALS(function));
  for (; r.type < memo_->codes.size(); ++r.type)
    if (reinterpret_cast<PyWeakReference*>(memo_->codes[r.type].code.get())->wr_object == code) break;
  memo_->reads.push_back(r);
  if (r.type < memo_->codes.size()) return;
  Owned reference = Owned::steal(PyWeakref_NewRef(code, nullptr));
  if (!reference) throw PythonError();
  memo_->codes.push_back({std::move(reference), &program});
}

void WalkReads::cell(PyObject* function, uint32_t index, PyObject* value) {
  if (!value || !is_new(MemoRead::cell, function, reinterpret_cast<const void*>(uintptr_t{index} << 4)))
    return;
  MemoRead r;
  r.kind = MemoRead::cell;
  if (!find_base(function, &r)) return;
  r.n = index;
  expect(value, &r);
  if (is_on()) memo_->reads.push_back(r);
}

void WalkReads::parameters(PyObject* object) {
  const std::shared_ptr<Storage>* storage = reinterpret_cast<PyParameters*>(object)->storage;
  if (!storage || !is_new(MemoRead::parameters, object, nullptr)) return;
  MemoRead r;
  r.kind = MemoRead::parameters;
  r.base = object;
  r.n = (*storage)->uid;
  memo_->late_reads.push_back(r);
}

// What the steps of the builder record, and at the start whether its parameters take gradients.
void WalkReads::builder(PyObject* object, bool starts) {
  RnnBuilder& builder = *builder_of(object)->core;
  if (MemoRead* r = starts ? add_read(MemoRead::builder, object) : nullptr) {
    r->n = builder.number;
    r->key = builder.would_update(engine());
  }
  if (MemoRead* r = add_read(MemoRead::rates, object)) r->n = builder.number_of_rates();
}

void WalkReads::dropout(PyObject* object, PyObject* method) {
  builder(object, false);
  if (MemoRead* r = add_read(MemoRead::dropout, object, method)) r->key = key_of(method);
}

void WalkReads::specialisation(Specialisation& s) {
  if (is_on() && specialisations_.insert(&s).second) memo_->specialisations.push_back(s.shared_from_this());
}

// What the guard captures is known from the reads.
void WalkReads::guard(const Guard& guard, PyObject* value) {
  if (!is_on()) return;
  switch (guard.kind) {
    case Guard::none:
    case Guard::equal:
    case Guard::placeholder:
    case Guard::index:
    case Guard::expression:
      return;
    case Guard::parameters:
      if (!is_parameters_object(value)) give_up();
      return;
    case Guard::filled:
      return length(value);
    case Guard::items:
      return guard_items(guard, value);
    case Guard::same:
    case Guard::function:
      if (!is_plain_value(value)) add_guard(guard, value);
      return;
    case Guard::state:
      return reads_of_state(guard, value);
    case Guard::method: {
      MemoRead of_self;  // it must be known, too
      if (find_base(PyMethod_GET_SELF(value), &of_self)) add_guard(guard, PyMethod_GET_FUNCTION(value));
      return;
    }
    case Guard::parameter:
      give_up();
  }
}

namespace {

// Not a method of an object, which would be kept alive with it.
bool is_function_of_module(PyObject* value) {
  if (!PyCFunction_CheckExact(value)) return false;
  PyObject* self = PyCFunction_GET_SELF(value);
  return !self || PyModule_CheckExact(self);
}

}  // namespace

// To be checked with this value, or, of a method, with its function.
void WalkReads::add_guard(const Guard& guard, PyObject* value) {
  const bool lasts = guard.is_permanent() && is_function_of_module(value);
  if (!is_new(kGuard, lasts ? nullptr : &guard, value)) return;
  MemoRead r;
  r.kind = MemoRead::guard;
  if (!find_base(value, &r)) return;
  if (lasts && !r.of_argument) return keep(value);  // while it lives, it is the same
  r.object = reinterpret_cast<PyObject*>(const_cast<Guard*>(&guard));
  memo_->reads.push_back(r);
}

void WalkReads::guard_items(const Guard& guard, PyObject* value) {
  if (PyDict_CheckExact(value)) {
    entries(value);
    Py_ssize_t at = 0;
    PyObject *key, *part;
    for (size_t i = 0; PyDict_Next(value, &at, &key, &part); ++i) this->guard(guard.parts[i], part);
    return;
  }
  if (is_of_program(value)) return;
  items(value);
  for (size_t i = 0; i < guard.parts.size(); ++i)
    this->guard(guard.parts[i], PySequence_Fast_ITEMS(value)[i]);
}

}  // namespace dyc::py
