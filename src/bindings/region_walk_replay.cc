#include "bindings/region_walk_replay.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bindings/operators.h"
#include "bindings/python_compat.h"

namespace dyc::py {

// ---------------------------------------------------------------- reads

namespace {

bool is_equal(PyObject* value, const MemoExpected& expected) {
  if (value == expected.object) return Py_TYPE(value) == expected.type;
  if (Py_TYPE(value) != expected.type || !expected.object) return false;
  if (is_float(value) && std::isnan(PyFloat_AsDouble(value))) return false;  // `in` compares objects
  return is_plain_value(value) && is_plain_value(expected.object) && is_constant(value, expected.object);
}

}  // namespace

bool MemoReplay::accepts(PyObject* value, const MemoExpected& expected) {
  if (!value) return false;
  if (expected.object) {
    const bool argument = is_sequence(value) && std::find(args_.begin(), args_.end(), value) != args_.end();
    return !argument && is_equal(value, expected);
  }
  NodeId id;
  if (Py_TYPE(value) != expected.type || !to_node(value, "expression", &id)) return false;
  inputs_.push_back(value);
  input_nodes_.push_back(id);
  return true;
}

bool MemoReplay::reads_sequence(PyObject* base, const MemoRead& r) {
  if (static_cast<size_t>(Py_SIZE(base)) != r.n) return false;
  PyObject** const items = PySequence_Fast_ITEMS(base);
  const MemoExpected* expected = next_items(r.n);
  for (uint32_t i = 0; i < r.n; ++i) {
    const bool same = r.key && items[i] == expected[i].object;  // kept alive, so it is not looked at
    if (!same && !accepts(items[i], expected[i])) return false;
  }
  return true;
}

bool MemoReplay::reads_entries(PyObject* base, const MemoRead& r) {
  if (2 * static_cast<size_t>(PyDict_GET_SIZE(base)) != r.n) return false;
  Py_ssize_t at = 0;
  PyObject *key, *value;
  const MemoExpected* expected = next_items(r.n);
  for (; PyDict_Next(base, &at, &key, &value); expected += 2)
    if (!is_plain_value(key) || !accepts(key, expected[0]) || !accepts(value, expected[1])) return false;
  return true;
}

bool MemoReplay::reads_function(PyObject* base, const MemoRead& r) {
  PyObject* defaults = PyFunction_GET_DEFAULTS(base);
  const WalkMemo::Code& known = memo_->codes[r.type];
  PyObject* code = reinterpret_cast<PyWeakReference*>(known.code.get())->wr_object;
  if (code == Py_None || find_program(code) != known.program || is_monitored(code)) return false;
  return code == r.object && PyFunction_GET_CODE(base) == r.object &&
         PyFunction_GET_GLOBALS(base) == memo_->globals_of[r.n] &&
         (defaults ? defaults : Py_None) == memo_->keys[r.key] && function_builtins(base) == memo_->builtins;
}

bool MemoReplay::reads_attribute(PyObject* base, const MemoRead& r) {
  const WalkMemo::Type& type = memo_->types[r.base_type];
  if (type.version && type_version(type.type) != type.version) return false;
  if (r.kind == MemoRead::constructor) return true;
  PyObject* key = memo_->keys[r.key];
  switch (r.kind) {
    case MemoRead::of_class:
      return of_class(base, key) == r.object;
    case MemoRead::slot:
      return accepts(*reinterpret_cast<PyObject**>(reinterpret_cast<char*>(base) + r.n), expected(r));
    case MemoRead::method:
      return is_method_of_class(base, key, r.object);
    default:
      break;
  }
  PyObject* value = attribute_or_null(base, key);
  const bool same = accepts(value, expected(r));
  Py_XDECREF(value);
  return same;
}

// The function of its class, or the one that computes a property; borrowed from these.
PyObject* MemoReplay::of_class(PyObject* object, PyObject* name) {
  PyObject* found = _PyType_Lookup(Py_TYPE(object), name);
  if (!found || Py_TYPE(found) != &PyProperty_Type) return found;
  PyObject* getter = PyObject_GetAttrString(found, "fget");
  Py_XDECREF(getter);
  return getter;
}

PyObject* MemoReplay::item(PyObject* base, PyObject* key) {
  return PyDict_GetItemWithError(PyModule_CheckExact(base) ? PyModule_GetDict(base) : base, key);
}

bool MemoReplay::reads(const MemoRead& r) {
  PyObject* base = r.of_argument ? args_[r.argument] : r.base;
  switch (r.kind) {
    case MemoRead::slot:
    case MemoRead::attribute:
    case MemoRead::method:
    case MemoRead::of_class:
    case MemoRead::constructor:
      return reads_attribute(base, r);
    case MemoRead::name: {
      PyObject* value = PyDict_GetItemWithError(base, memo_->keys[r.key]);
      if (!value && PyDict_CheckExact(memo_->builtins))
        value = PyDict_GetItemWithError(memo_->builtins, memo_->keys[r.key]);
      return accepts(value, expected(r));
    }
    case MemoRead::item:
      return accepts(item(base, memo_->keys[r.key]), expected(r));
    case MemoRead::absent:
      return !item(base, memo_->keys[r.key]) && !PyErr_Occurred();
    case MemoRead::keys:
      return has_plain_keys(base);
    case MemoRead::size:
      return static_cast<size_t>(size_of(base)) == r.n;
    case MemoRead::element:
      return static_cast<size_t>(Py_SIZE(base)) > r.n &&
             accepts(PySequence_Fast_ITEMS(base)[r.n], expected(r));
    case MemoRead::sequence:
      return reads_sequence(base, r);
    case MemoRead::entries:
      return reads_entries(base, r);
    case MemoRead::cell:
      return accepts(PyCell_GET(PyTuple_GET_ITEM(PyFunction_GET_CLOSURE(base), r.n)), expected(r));
    case MemoRead::defaults:
      return reads_function(base, r);
    case MemoRead::parameters: {
      const std::shared_ptr<Storage>* storage = reinterpret_cast<PyParameters*>(base)->storage;
      return storage && (*storage)->uid == r.n;
    }
    case MemoRead::builder:
      return starts_plainly(base) && builder_of(base)->core->number == r.n &&
             builder_of(base)->core->would_update(*walker_.engine_) == (r.key != 0);
    case MemoRead::rates: {
      const PyBuilder* builder = builder_of(base);
      return builder && builder->core && builder->core->number_of_rates() == r.n;
    }
    case MemoRead::dropout:
      return sets_dropout_plainly(base, memo_->keys[r.key]);
    case MemoRead::guard: {
      const Guard& guard = *reinterpret_cast<const Guard*>(r.object);
      return guard.kind == Guard::method ? guard.is_of(base)
                                         : guard.check(base, {}, walker_.engine_->graph, &walker_.captured_);
    }
  }
  return false;
}

void MemoReplay::begin(const WalkMemo& memo, PyObject* const* args, size_t n) {
  memo_ = &memo;
  args_ = {args, n};
  used_ = {};
  inputs_.clear();
  input_nodes_.clear();
  made_.clear();
  called_.clear();
  states_.assign(memo.n_states, nullptr);
  results_.assign(memo.results.size(), nullptr);
}

bool MemoReplay::fits() {
  const WalkMemo& m = *memo_;
  if (m.globals != walker_.globals_ || m.builtins != walker_.builtins_) return false;
  if (m.depth > walker_.most_depth_) return false;
  for (size_t i = 0; i < m.arguments.size(); ++i) {
    const WalkMemo::Argument& expected = m.arguments[i];
    const bool same = expected.is_list ? args_[i] && Py_TYPE(args_[i]) == expected.expected.type
                                       : accepts(args_[i], expected.expected);
    if (!same) return false;
  }
  const auto is_as_before = [&](const MemoRead& r) { return reads(r); };
  if (!std::all_of(m.reads.begin(), m.reads.end(), is_as_before)) return false;
  if (!std::all_of(m.late_reads.begin(), m.late_reads.end(), is_as_before)) return false;
  const auto is_current = [](const WalkMemo::Type& t) {
    return t.version == 0 || type_version(t.type) == t.version;
  };
  return std::all_of(m.types.begin(), m.types.end(), is_current) && inputs_are_equal() && regions_are_ready();
}

// Are the same inputs one node as when the walk was written down?
bool MemoReplay::inputs_are_equal() const {
  if (input_nodes_.size() != memo_->equal_inputs.size()) return false;
  std::unordered_map<NodeId, uint32_t> first;
  for (uint32_t i = 0; i < input_nodes_.size(); ++i) {
    const uint32_t equal = input_nodes_.size() > tuning::kWalkArguments
                               ? first.emplace(input_nodes_[i], i).first->second
                               : first_equal(input_nodes_, i);
    if (equal != memo_->equal_inputs[i]) return false;
  }
  for (size_t i = 0; i < args_.size(); ++i)  // one object as two arguments
    for (size_t k = 0; k < i; ++k)
      if (args_[i] == args_[k] && !is_plain_value(args_[i])) return false;
  return true;
}

bool MemoReplay::regions_are_ready() const {
  const auto is_ready = [](const WalkMemo::Use& u) {
    const Region& region = u.use->region;
    return !region.refuted_ && !region.busy_ && !region.is_debugged();
  };
  const auto is_confirmed = [](const Specialisation* s) { return s->indices.confirmed; };
  return std::all_of(memo_->uses.begin(), memo_->uses.end(), is_ready) &&
         std::all_of(memo_->confirmed.begin(), memo_->confirmed.end(), is_confirmed);
}

// ---------------------------------------------------------------- steps

const NodeId* MemoReplay::operands(const MemoStep& s) {
  operands_.nodes.resize(s.n_nodes);
  const MemoNode* nodes = memo_->nodes.data() + std::exchange(used_.nodes, used_.nodes + s.n_nodes);
  for (uint32_t i = 0; i < s.n_nodes; ++i)
    operands_.nodes[i] = nodes[i] & kMemoInput ? input_nodes_[nodes[i] & ~kMemoInput] : made_[nodes[i]];
  return operands_.nodes.data();
}

void MemoReplay::trace(const MemoStep& s) {
  Trace& t = *static_cast<const Specialisation*>(s.object)->trace;
  const NodeId* inputs = operands(s);
  for (uint32_t i = 1; i < s.n_nodes; ++i)
    if (std::find(inputs, inputs + i, inputs[i]) != inputs + i) walker_.refuse("inputs that are one node");
  record(t, inputs);
}

void MemoReplay::stretch(const MemoStep& s) {
  Trace& t = *static_cast<Trace*>(const_cast<void*>(s.object));
  const NodeId* inputs = operands(s);
  for (uint32_t i = t.n_inputs(); i < s.n_nodes; i += 2)
    if (inputs[i] != inputs[i + 1]) walker_.refuse("nodes that are not one any more");
  record(t, inputs);
}

void MemoReplay::record(Trace& t, const NodeId* inputs) {
  Graph& g = walker_.engine_->graph;
  if (!t.matches(g, inputs, words_)) walker_.refuse("inputs of other shapes");
  t.record(g, inputs, words_);
  made_.insert(made_.end(), t.nodes() + t.n_inputs(), t.nodes() + t.n_nodes());
}

NodeId MemoReplay::arithmetic(const MemoStep& s) {
  const NodeId* x = operands(s);
  if (s.which == WalkNode::negative) return walker_.engine_->graph.unary(op_id<Negate>, x[0]);
  const auto which = static_cast<BinaryOperator>(s.which);
  if (s.kind == MemoStep::arithmetic) return record_operator(which, x[0], x[1]);
  float number;
  std::memcpy(&number, words_, sizeof number);
  return s.kind == MemoStep::with_left ? record_operator(which, number, x[0])
                                       : record_operator(which, x[0], number);
}

void MemoReplay::call(const MemoStep& s) {
  const WalkMemo::Call& call = memo_->calls[words_[0]];
  auto* function = static_cast<PyObject*>(const_cast<void*>(s.object));
  std::vector<Owned> objects;
  std::vector<PyObject*> args;
  for (uint32_t i = call.begin; i < call.begin + call.n; ++i) {
    objects.push_back(Owned::steal(walker_.object_of(value(memo_->values[i]), false)));
    args.push_back(objects.back().get());
  }
  if (call.copies_data && !is_plain_data(args[0])) walker_.refuse("data of another kind");
  const size_t named = call.names ? static_cast<size_t>(PyTuple_GET_SIZE(call.names.get())) : 0;
  PyObject* made = function
                       ? PyObject_Vectorcall(function, args.data(), args.size() - named, call.names.get())
                       : PyObject_GetItem(args[0], args[1]);
  const WalkValue recorded = walker_.recorded_by_python(made);
  called_.push_back(recorded.result);
  made_.push_back(recorded.result->id);
}

void MemoReplay::walk(const MemoStep& s) {
  const WalkMemo::Call& call = memo_->calls[words_[0]];
  operands_.values.clear();
  for (uint32_t i = call.begin; i < call.begin + call.n; ++i)
    operands_.values.push_back(value(memo_->values[i]));
  walker_.depth_ = memo_->depth;  // or less
  const WalkValue made =
      walker_.walk_again(static_cast<PyObject*>(const_cast<void*>(s.object)), operands_.values);
  if (made.result->type != call.type) walker_.refuse("a call that returns something else than before");
  called_.push_back(made.result);
  made_.push_back(made.result->id);
}

void MemoReplay::step_made(PyRnnState* from, RnnBuilder::Step step) {
  RnnBuilder& builder = *from->b->core;
  const NodeId* nodes = builder.nodes(*walker_.engine_, step);
  made_.insert(made_.end(), nodes, nodes + builder.width());
}

void MemoReplay::add_inputs(const MemoStep& s) {
  PyRnnState* from = states_[words_[0]];
  RnnBuilder& builder = *from->b->core;
  const uint32_t n_masks = from->step == RnnBuilder::kStart ? builder.n_masks() : 0;
  operands(s);
  RnnBuilder::Step step = builder.add_inputs(*walker_.engine_, from->step, operands_.nodes);
  for (uint32_t i = 0; i < operands_.nodes.size(); ++i, ++step) {
    step_made(from, step);
    if (s.which != WalkNode::transduce) from = add_state(words_[1] + i, next_state(from, step));
  }
  if (n_masks == 0) return;
  const std::vector<NodeId>& masks = builder.masks(*walker_.engine_);
  made_.insert(made_.end(), masks.begin(), masks.end());
}

// The same, where the trace has recorded what the builder would.
void MemoReplay::steps_of_stretch(const MemoStep& s) {
  PyRnnState* from = states_[words_[0]];
  RnnBuilder& builder = *from->b->core;
  const NodeId* nodes = operands(s);
  for (uint32_t i = 0; i < s.n_nodes / builder.width(); ++i, nodes += builder.width()) {
    const RnnBuilder::Step step = builder.add_step(*walker_.engine_, nodes);
    if (s.which != WalkNode::transduce) from = add_state(words_[1] + i, next_state(from, step));
  }
}

void MemoReplay::set_state(const MemoStep& s) {
  PyRnnState* from = states_[words_[0]];
  operands(s);
  const RnnBuilder::Step step = from->b->core->set_s(*walker_.engine_, operands_.nodes);
  step_made(from, step);
  add_state(words_[1], next_state(from, step));
}

void MemoReplay::reads_of_state(const MemoStep& s) {
  CapturedInputs& captured = walker_.captured_;
  captured.clear();
  auto* state = reinterpret_cast<PyObject*>(states_[words_[0]]);
  const bool same = static_cast<const Guard*>(s.object)->check(state, {}, walker_.engine_->graph, &captured);
  if (!same || captured.inputs.size() != words_[1]) walker_.refuse("another state");
  made_.insert(made_.end(), captured.inputs.begin(), captured.inputs.end());
}

PyRnnState* MemoReplay::add_state(uint32_t number, PyObject* made) {
  return states_[number] = reinterpret_cast<PyRnnState*>(walker_.keep(made).object);
}

void MemoReplay::step(const MemoStep& s) {
  auto* object = static_cast<PyObject*>(const_cast<void*>(s.object));
  Graph& g = walker_.engine_->graph;
  words_ = memo_->words.data() + std::exchange(used_.words, used_.words + s.n_words);
  switch (s.kind) {
    case MemoStep::trace:
      return trace(s);
    case MemoStep::stretch:
      return stretch(s);
    case MemoStep::op: {
      const NodeId* x = operands(s);
      const uint32_t index = s.n_words - s.n_attrs;  // is there one?
      if (s.n_words == 0 && s.n_nodes == 1) return made_.push_back(g.unary(s.which, x[0]));
      if (s.n_words == 0 && s.n_nodes == 2) return made_.push_back(g.binary(s.which, x[0], x[1]));
      made_.push_back(g.record(s.which, x, s.n_nodes, words_, s.n_attrs, {words_ + s.n_attrs, index, false}));
      return;
    }
    case MemoStep::arithmetic:
    case MemoStep::with_left:
    case MemoStep::with_right:
      return made_.push_back(arithmetic(s));
    case MemoStep::lookup:
      return made_.push_back(g.lookup(storage_in(object), {words_, 1, false}, true));
    case MemoStep::parameter:
      if (s.n_words > 0) return made_.push_back(g.parameter(storage_in(object), words_[0]));
      return made_.push_back(walker_.node_of_object(object));
    case MemoStep::call:
      return call(s);
    case MemoStep::walk:
      return walk(s);
    case MemoStep::start:
      add_state(words_[0], reinterpret_cast<PyObject*>(start_state(object, builder_of(object), true)));
      return;
    case MemoStep::set:
      return set_state(s);
    case MemoStep::add_inputs:
      return add_inputs(s);
    case MemoStep::recorded:
      return steps_of_stretch(s);
    case MemoStep::reads:
      return reads_of_state(s);
  }
}

// ---------------------------------------------------------------- results

WalkValue MemoReplay::value(const MemoValue& v) {
  switch (v.kind) {
    case MemoValue::object:
      return {v.of};
    case MemoValue::argument:
      return {args_[v.number]};
    case MemoValue::input:
      return {inputs_[v.number]};
    case MemoValue::state:
      return {reinterpret_cast<PyObject*>(states_[v.number])};
    case MemoValue::result:
      return {nullptr, result(v.number)};
  }
  return {};
}

WalkResult* MemoReplay::result(uint32_t number) {
  if (results_[number]) return results_[number];
  const MemoResult& r = memo_->results[number];
  if (r.call != kNone) return results_[number] = called_[r.call];
  if (r.kind == WalkResult::recorded) {
    const NodeId id = r.node & kMemoInput ? input_nodes_[r.node & ~kMemoInput] : made_[r.node];
    return results_[number] = walker_.recorded(id, r.type).result;
  }
  WalkResult* made = results_[number] = walker_.make(static_cast<WalkResult::Kind>(r.kind));
  for (uint32_t i = r.begin; i < r.begin + r.n; ++i) {
    const WalkValue item = value(memo_->values[i]);
    made->items.push_back(item);
  }
  return made;
}

PyObject* MemoReplay::run() {
  for (const MemoStep& s : memo_->steps) step(s);
  for (const auto& [list, appended] : memo_->appends)
    walker_.appends_.emplace_back(value(list).object, value(appended));
  for (const WalkMemo::Stored& s : memo_->stored) {
    PyObject* object = value(s.object).object;
    walker_.may_replace(object, s.name);
    walker_.assigned_.set(object, s.name, value(s.value));
  }
  for (const WalkMemo::Use& u : memo_->uses) {
    u.use->replays = u.replays;
    walker_.used_.push_back(u.use.get());
  }
  return walker_.finish(value(memo_->returned));
}

}  // namespace dyc::py
