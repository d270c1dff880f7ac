#include "bindings/region_walk_log.h"

#include <cstring>

#include "bindings/operators.h"

namespace dyc::py {

namespace {

std::vector<WalkValue> items_of(WalkValue sequence) {
  if (sequence.result) return sequence.result->items;
  std::vector<WalkValue> items;
  for (Py_ssize_t i = 0; i < Py_SIZE(sequence.object); ++i)
    items.push_back({PySequence_Fast_ITEMS(sequence.object)[i]});
  return items;
}

}  // namespace

void WalkLog::begin(Engine& engine, PyObject* const* args, size_t n, PyObject* globals, PyObject* builtins) {
  engine_ = &engine;
  states_.clear();
  numbers_.clear();
  parameters_.clear();
  results_.clear();
  calls_.clear();
  uses_.clear();
  walked_ = {engine.graph.size(), {}, {}, {}};
  drawn_ = 0;
  begin_reads(args, n, globals, builtins);
}

// ---------------------------------------------------------------- steps

void WalkLog::add_step(MemoStep step, const std::vector<uint32_t>& words) {
  if (words.size() > UINT16_MAX) give_up();
  step.n_words = static_cast<uint16_t>(words.size());
  memo_->words.insert(memo_->words.end(), words.begin(), words.end());
  memo_->steps.push_back(step);
  walked_.steps.push_back({engine_->graph.size(), n_nodes()});
}

void WalkLog::made(NodeId id) {
  numbers_[id] = n_nodes();
  walked_.made.push_back(id);
}

bool WalkLog::number_of(NodeId id, MemoNode* node) {
  const auto at = numbers_.find(id);
  if (at == numbers_.end()) {
    give_up();
    return false;
  }
  *node = at->second;
  return true;
}

bool WalkLog::node_of(WalkValue value, MemoNode* node) {
  if (value.result) return number_of(value.result->id, node);
  if (!value.object) {
    give_up();
    return false;
  }
  if (const auto at = inputs_.find(value.object); at != inputs_.end()) {
    *node = at->second | kMemoInput;
    return true;
  }
  if (const auto at = parameters_.find(value.object); at != parameters_.end()) {
    *node = at->second;
    return true;
  }
  NodeId id;
  const bool known = known_.contains(value.object) && Py_TYPE(value.object) == &ParametersType;
  if (!known || !to_node(value.object, "expression", &id)) {
    PyErr_Clear();
    give_up();
    return false;
  }
  MemoStep step;
  step.kind = MemoStep::parameter;
  step.object = value.object;
  add_step(step, {});
  *node = parameters_[value.object] = n_nodes();
  made(id);
  return true;
}

bool WalkLog::add_nodes(MemoStep* step, const WalkValue* values, size_t n) {
  std::vector<MemoNode> nodes;  // finding one may add a step
  for (size_t i = 0; i < n; ++i) {
    MemoNode node;
    if (!node_of(values[i], &node)) return false;
    nodes.push_back(node);
  }
  add_nodes(step, nodes);
  return true;
}

void WalkLog::add_nodes(MemoStep* step, const std::vector<MemoNode>& nodes) {
  if (nodes.size() > UINT16_MAX) give_up();
  step->n_nodes = static_cast<uint16_t>(nodes.size());
  memo_->nodes.insert(memo_->nodes.end(), nodes.begin(), nodes.end());
}

void WalkLog::trace(RegionUse& use, Specialisation& s, const CapturedInputs& captured,
                    const std::vector<WalkValue>& values) {
  if (!is_on()) return;
  MemoStep step;
  step.kind = MemoStep::trace;
  std::vector<MemoNode> inputs;
  const std::vector<uint32_t>& first = s.repeated.first;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!first.empty() && first[i] != i) continue;
    const WalkValue& v = values[i];
    if (inputs.size() == captured.inputs.size()) return give_up();
    MemoNode node;
    // Neither object nor result: a node of a state.
    if (!(v.object || v.result ? node_of(v, &node) : number_of(captured.inputs[inputs.size()], &node)))
      return;
    inputs.push_back(node);
  }
  if (inputs.size() != captured.inputs.size()) return give_up();
  add_nodes(&step, inputs);
  step.object = &s;
  add_step(step, captured.placeholders);
  for (uint32_t i = s.trace->n_inputs(); i < s.trace->n_nodes(); ++i) made(s.trace->nodes()[i]);
  const auto [at, fresh] = uses_.emplace(&use, static_cast<uint32_t>(memo_->uses.size()));
  if (fresh) memo_->uses.push_back({use.shared_from_this(), 0});
  ++memo_->uses[at->second].replays;
}

void WalkLog::op(OpId op, const PlainCall& plain, const WalkValue* operands, size_t n, const uint32_t* index,
                 NodeId id) {
  if (!is_on()) return;
  MemoStep step;
  step.kind = MemoStep::op;
  if (!add_nodes(&step, operands, n)) return;
  step.which = op;
  step.n_attrs = plain.n_attrs;
  std::vector<uint32_t> words(plain.attrs, plain.attrs + plain.n_attrs);
  if (index) words.push_back(*index);
  add_step(step, words);
  made(id);
}

bool WalkLog::arithmetic_step(MemoStep::Kind kind, uint32_t which, const WalkValue* operands, size_t n,
                              float number, NodeId id) {
  MemoStep step;
  step.kind = kind;
  if (!is_on() || !add_nodes(&step, operands, n)) return false;
  step.which = static_cast<uint16_t>(which);
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  add_step(step, {bits});
  made(id);
  return true;
}

void WalkLog::arithmetic(uint32_t which, WalkValue a, WalkValue b, NodeId id) {
  const WalkValue operands[] = {a, b};
  arithmetic_step(MemoStep::arithmetic, which, operands, 2, 0, id);
}

void WalkLog::arithmetic(uint32_t which, float a, WalkValue b, NodeId id) {
  arithmetic_step(MemoStep::with_left, which, &b, 1, a, id);
}

void WalkLog::arithmetic(uint32_t which, WalkValue a, float b, NodeId id) {
  arithmetic_step(MemoStep::with_right, which, &a, 1, b, id);
}

void WalkLog::parameters(MemoStep::Kind kind, PyObject* object, uint32_t number, NodeId id) {
  if (!is_on()) return;
  if (!known_.contains(object)) return give_up();
  MemoStep step;
  step.kind = kind;
  step.object = object;
  add_step(step, {number});
  made(id);
}

void WalkLog::call(PyObject* function, PyObject* names, const WalkValue* args, size_t n, WalkValue made_by) {
  if (!is_on()) return;
  if (function) keep(function);
  add_call({nullptr, 0, 0, 0, MemoStep::call}, function, names, args, n, made_by);
}

void WalkLog::add_call(MemoStep step, PyObject* function, PyObject* names, const WalkValue* args, size_t n,
                       WalkValue made_by) {
  std::vector<MemoValue> values;
  for (size_t i = 0; i < n && is_on(); ++i) values.push_back(value(args[i], false));
  if (!is_on()) return;
  step.object = function;
  const auto number = static_cast<uint32_t>(memo_->calls.size());
  memo_->calls.push_back({Owned(names), static_cast<uint32_t>(memo_->values.size()), static_cast<uint32_t>(n),
                          function && copies_data(function)});
  memo_->values.insert(memo_->values.end(), values.begin(), values.end());
  calls_.insert_or_assign(made_by.result, number);
  add_step(step, {number});
  made(made_by.result->id);
}

WalkLog::Mark WalkLog::mark() const {
  const WalkMemo& m = *memo_;
  return {m.steps.size(), m.nodes.size(), m.words.size(), m.calls.size(), m.n_states, n_nodes(), drawn_};
}

void WalkLog::walk(const Mark& before, PyObject* function, const std::vector<WalkValue>& args,
                   WalkValue made_by) {
  if (!is_on()) return;
  const bool recorded = made_by.result && !made_by.result->is_sequence();
  const auto known = recorded ? numbers_.find(made_by.result->id) : numbers_.end();
  if (known == numbers_.end() || known->second < before.made) return give_up();
  const auto is_list = [](WalkValue v) { return v.result && v.result->is_sequence(); };
  if (std::any_of(args.begin(), args.end(), is_list)) return give_up();
  memo_->steps.resize(before.steps);
  memo_->nodes.resize(before.nodes);
  memo_->words.resize(before.words);
  memo_->calls.resize(before.calls);
  walked_.steps.resize(before.steps);
  walked_.made.resize(before.made);
  const auto forget = [](auto& map, size_t first) {
    std::erase_if(map, [&](const auto& entry) { return entry.second >= first; });
  };
  forget(numbers_, before.made);
  forget(parameters_, before.made);
  forget(states_, before.states);
  walked_.states.resize(before.states);
  memo_->n_states = static_cast<uint32_t>(before.states);
  forget(calls_, before.calls);
  drawn_ = before.drawn;
  add_call({nullptr, 0, 0, 0, MemoStep::walk}, function, nullptr, args.data(), args.size(), made_by);
  if (is_on()) memo_->calls.back().type = made_by.result->type;
}

// ---------------------------------------------------------------- states

bool WalkLog::state_of(PyObject* state, uint32_t* number) {
  const auto at = states_.find(state);
  if (at == states_.end()) {
    give_up();
    return false;
  }
  *number = at->second;
  return true;
}

void WalkLog::add_state(PyObject* state, MemoNode nodes, MemoNode masks) {
  RnnBuilder& builder = *reinterpret_cast<PyRnnState*>(state)->b->core;
  states_.emplace(state, memo_->n_states++);
  walked_.states.push_back({nodes, masks, builder.state_size(), builder.n_masks(), walked_.steps.size() - 1});
}

// Numbers the nodes of a step, and returns the first number.
MemoNode WalkLog::step_made(PyRnnState* from, RnnBuilder::Step step) {
  RnnBuilder& builder = *from->b->core;
  const NodeId* nodes = builder.nodes(*engine_, step);
  const MemoNode first = n_nodes();
  for (uint32_t i = 0; i < builder.width(); ++i) made(nodes[i]);
  return first;
}

void WalkLog::start(PyObject* of, PyObject* state) {
  if (!is_on()) return;
  if (!known_.contains(of)) return give_up();
  builder(of, true);
  if (states_.contains(state)) return;  // the builder has started nothing since
  MemoStep step;
  step.kind = MemoStep::start;
  step.object = of;
  add_step(step, {memo_->n_states});
  add_state(state, kNone, kNone);
}

void WalkLog::add_input(PyObject* from, WalkValue x, PyObject* state) {
  if (!is_on()) return;
  add_inputs(from, WalkNode::add_inputs, &x, 1, reinterpret_cast<PyRnnState*>(state)->step, {{state}});
}

void WalkLog::add_inputs(PyObject* from, uint32_t method, WalkValue xs, RnnBuilder::Step first,
                         const std::vector<WalkValue>& all) {
  if (!is_on()) return;
  const std::vector<WalkValue> inputs = items_of(xs);
  add_inputs(from, method, inputs.data(), inputs.size(), first, all);
}

void WalkLog::add_inputs(PyObject* from, uint32_t method, const WalkValue* inputs, size_t n,
                         RnnBuilder::Step first, const std::vector<WalkValue>& all) {
  MemoStep step;
  step.kind = MemoStep::add_inputs;
  uint32_t number;
  if (!state_of(from, &number) || !add_nodes(&step, inputs, n)) return;
  step.which = static_cast<uint16_t>(method);
  auto* const state = reinterpret_cast<PyRnnState*>(from);
  RnnBuilder& builder = *state->b->core;
  const uint32_t n_masks = state->step == RnnBuilder::kStart ? builder.n_masks() : 0;
  add_step(step, {number, memo_->n_states});
  const MemoNode masks = n_masks ? n_nodes() + static_cast<MemoNode>(all.size()) * builder.width()
                                 : walked_.states[number].masks;
  for (const WalkValue& each : all) {
    const MemoNode nodes = step_made(state, first++);
    if (each.object) add_state(each.object, nodes, masks);
  }
  for (uint32_t i = 0; i < n_masks; ++i) made(builder.masks(*engine_)[i]);
}

// The first step after it may draw dropout masks, which only steps from the start may do here.
void WalkLog::set_state(PyObject* of, WalkValue nodes, PyObject* state) {
  if (!is_on()) return;
  auto* const from = reinterpret_cast<PyRnnState*>(of);
  const std::vector<WalkValue> inputs = items_of(nodes);
  MemoStep step;
  step.kind = MemoStep::set;
  uint32_t number;
  if (from->b->core->drops()) return give_up();
  if (!state_of(of, &number) || !add_nodes(&step, inputs.data(), inputs.size())) return;
  add_step(step, {number, memo_->n_states});
  add_state(state, step_made(from, reinterpret_cast<PyRnnState*>(state)->step), kNone);
}

void WalkLog::parts(PyObject* state) {
  if (is_on() && !states_.contains(state)) give_up();
}

void WalkLog::reads_of_state(const Guard& guard, PyObject* state) {
  MemoStep step;
  step.kind = MemoStep::reads;
  CapturedInputs captured;
  uint32_t number;
  if (!state_of(state, &number)) return;
  if (!guard.check(state, {}, engine_->graph, &captured)) return give_up();
  step.object = &guard;
  add_step(step, {number, static_cast<uint32_t>(captured.inputs.size())});
  for (const NodeId id : captured.inputs) made(id);
}

// ---------------------------------------------------------------- the end

MemoValue WalkLog::value(WalkValue v, bool is_last, int depth) {
  if (v.result) return result(v.result, is_last, depth);
  MemoValue m;
  if (const auto at = states_.find(v.object); at != states_.end()) {
    m.kind = MemoValue::state;
    m.number = at->second;
  } else if (const auto input = inputs_.find(v.object); input != inputs_.end()) {
    m.kind = MemoValue::input;
    m.number = input->second;
  } else if (const auto arg = std::find(args_.begin(), args_.end(), v.object); arg != args_.end()) {
    m.kind = MemoValue::argument;
    m.number = static_cast<uint32_t>(arg - args_.begin());
  } else if (v.object && is_plain_value(v.object)) {
    m.of = v.object;
    if (is_on()) keep(v.object);
  } else if (known_.contains(v.object)) {
    m.of = v.object;
  } else {
    give_up();
  }
  return m;
}

// A list that the walk may still change is written down as it is now.
MemoValue WalkLog::result(const WalkResult* r, bool is_last, int depth) {
  MemoValue m;
  m.kind = MemoValue::result;
  if (depth > tuning::kMemoNesting) give_up();
  if (!is_on()) return m;
  if (const auto at = results_.find(r); is_last && at != results_.end()) {
    m.number = at->second;
    return m;
  }
  m.number = static_cast<uint32_t>(memo_->results.size());
  if (is_last) results_.emplace(r, m.number);
  MemoResult made{r->kind};
  made.type = r->type;
  if (r->kind == WalkResult::recorded) {
    if (!number_of(r->id, &made.node)) return m;
    if (const auto at = calls_.find(r); at != calls_.end()) made.call = at->second;
    memo_->results.push_back(made);
    return m;
  }
  memo_->results.push_back(made);
  std::vector<MemoValue> items;
  for (const WalkValue& each : r->items) {
    items.push_back(value(each, is_last, depth + 1));
    if (!is_on()) return m;
  }
  memo_->results[m.number].begin = static_cast<uint32_t>(memo_->values.size());
  memo_->results[m.number].n = static_cast<uint32_t>(items.size());
  memo_->values.insert(memo_->values.end(), items.begin(), items.end());
  return m;
}

void WalkLog::finish(WalkValue returned, const std::vector<std::pair<PyObject*, WalkValue>>& appends,
                     const std::vector<AssignedAttributes::Entry>& assigned) {
  if (drawn_ > 0) give_up();
  if (is_on()) memo_->returned = value(returned, true);
  for (size_t i = 0; is_on() && i < appends.size(); ++i) {
    const MemoValue list = value({appends[i].first}, true);
    if (is_on()) memo_->appends.emplace_back(list, value(appends[i].second, true));
  }
  for (size_t i = 0; is_on() && i < assigned.size(); ++i) {
    if (made_.contains(assigned[i].object.get()))
      continue;  // an object that nobody else sees, or value() has given up
    const MemoValue object = value({assigned[i].object.get()}, true);
    if (!is_on()) return;
    keep(assigned[i].name);
    memo_->stored.push_back({object, assigned[i].name, value(assigned[i].value, true)});
  }
  if (is_on()) join_stretches(engine_->graph, walked_, input_ids_, memo_.get());
}

}  // namespace dyc::py
