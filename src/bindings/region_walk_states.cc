// Builders and their states in a walk.
#include "bindings/builders.h"
#include "bindings/compute.h"
#include "bindings/region_walk_log.h"

namespace dyc::py {

// Is this a call of initial_state(), without arguments or with a list?
bool Walker::is_start(WalkValue builder, const WalkNode& node) {
  if (node.number != WalkNode::initial_state || node.parts.size() > 2) return false;
  if (PyTuple_GET_SIZE(node.object.get()) != 0) return false;
  WalkNode::Known& known = node.known;
  if (known.walk == walk_ && known.of == builder.object) return !known.function;
  if (!starts_plainly(builder.object)) return false;
  known = {walk_, builder.object, nullptr};
  return true;
}

WalkValue Walker::start_sequence(PyObject* builder, const WalkNode& node, Frame& frame) {
  const WalkValue nodes = node.parts.size() == 2 ? evaluate(node.parts[1], frame) : WalkValue{Py_None};
  may_record();
  const WalkValue made = keep(reinterpret_cast<PyObject*>(start_state(builder, builder_of(builder), true)));
  if (log_) log_->start(builder, made.object);
  return nodes.object == Py_None ? made : set_state(state_in(made.object), WalkNode::set_s, nodes);
}

// Sets rates that are what they are set to. A change is for the statements.
WalkValue Walker::set_dropout(PyObject* object, const WalkNode& node, Frame& frame) {
  const uint32_t method = node.number;
  const size_t n = node.parts.size() - 1;
  const size_t expected = method == WalkNode::set_dropouts ? 2 : method == WalkNode::set_dropout ? 1 : 0;
  if (n != expected || PyTuple_GET_SIZE(node.object.get()) != 0) refuse("arguments of another kind");
  float rates[2] = {};
  for (size_t i = 0; i < n; ++i) {
    PyObject* rate = evaluate(node.parts[1 + i], frame).object;
    if (!rate || !(PyFloat_CheckExact(rate) || PyLong_CheckExact(rate))) refuse("a rate that is no number");
    rates[i] = as_float(rate, "set_dropout", "rate");
  }
  RnnBuilder& builder = *builder_of(object)->core;
  const bool changes = builder.would_change([&] {
    if (method == WalkNode::set_dropouts) builder.set_dropouts(rates[0], rates[1]);
    else builder.set_dropout(rates[0]);
  });
  if (changes) refuse("a change of dropout");
  if (log_) log_->dropout(object, node.parts[0].object.get());
  return {Py_None};
}

WalkValue Walker::call_state_method(PyObject* object, const WalkNode& node, Frame& frame) {
  const size_t n = node.parts.size() - 1;
  if (PyTuple_GET_SIZE(node.object.get()) != 0) refuse("an argument by name");
  const bool asks = node.number >= WalkNode::output && node.number <= WalkNode::s;
  const bool takes_input = node.number >= WalkNode::add_input && node.number <= WalkNode::transduce;
  const bool sets = node.number == WalkNode::set_s || node.number == WalkNode::set_h;
  if (!(asks || takes_input || sets) || n != (asks ? 0 : 1)) refuse("a method of a state");
  PyRnnState* state = state_in(object);
  if (!state->b || !check_state(state, "RNNState")) refuse("a state of another graph");
  if (asks) return parts_of_state(state, node.number);
  const WalkValue x = evaluate(node.parts[1], frame);
  if (sets) return set_state(state, node.number, x);
  if (node.number != WalkNode::add_input) return add_inputs(state, node.number, x);
  if (!is_node(x)) refuse("an input that is no expression");
  may_record();
  const WalkValue made =
      keep(next_state(state, state->b->core->add_input(*engine_, state->step, node_of(x))));
  if (log_) log_->add_input(object, x, made.object);
  return made;
}

std::vector<NodeId> Walker::nodes_in(WalkValue xs) {
  std::vector<NodeId> ids;
  for (size_t i = 0, n = length(xs); i < n; ++i) {
    const WalkValue x = element(xs, i);
    if (!is_node(x)) refuse("an input that is no expression");
    ids.push_back(node_of(x));
  }
  spend(ids.size());
  may_record();
  return ids;
}

// Only of all its nodes: others would be those of the builder's latest step.
WalkValue Walker::set_state(PyRnnState* from, uint32_t method, WalkValue nodes) {
  RnnBuilder& builder = *from->b->core;
  const std::vector<NodeId> ids = nodes_in(nodes);
  const bool whole = method == WalkNode::set_s || builder.state_size() == builder.layers();
  if (!whole || ids.size() != builder.state_size() || ids.empty())
    refuse("a state with nodes of another one");
  const RnnBuilder::Step step = builder.set_s(*engine_, ids);
  const WalkValue made = keep(next_state(from, step));
  if (log_) log_->set_state(reinterpret_cast<PyObject*>(from), nodes, made.object);
  return made;
}

// Expressions or states after each of the inputs in turn.
WalkValue Walker::add_inputs(PyRnnState* state, uint32_t method, WalkValue xs) {
  auto* from = reinterpret_cast<PyObject*>(state);
  RnnBuilder& builder = *state->b->core;
  WalkResult* all = make(WalkResult::list);
  const std::vector<NodeId> ids = nodes_in(xs);
  if (ids.empty()) return {nullptr, all};
  const RnnBuilder::Step first = builder.add_inputs(*engine_, state->step, ids);
  RnnBuilder::Step step = first;
  for (size_t i = 0; i < ids.size(); ++i, ++step) {
    if (method == WalkNode::transduce) {
      all->items.push_back(recorded(builder.output(*engine_, step), &ExpressionType));
    } else {
      all->items.push_back(keep(next_state(state, step)));
      state = state_in(all->items.back().object);
    }
  }
  if (log_) log_->add_inputs(from, method, xs, first, all->items);
  return {nullptr, all};
}

// output(), h() and s().
WalkValue Walker::parts_of_state(PyRnnState* state, uint32_t method) {
  RnnBuilder& builder = *state->b->core;
  const bool start = state->step == RnnBuilder::kStart;
  const uint32_t size = builder.state_size(), layers = builder.layers();
  if (method == WalkNode::output) {
    if (start) return {Py_None};
    if (layers == 0) refuse("a builder without layers");
    if (log_) log_->parts(reinterpret_cast<PyObject*>(state));
    return recorded(builder.output(*engine_, state->step), &ExpressionType);
  }
  WalkResult* all = make(WalkResult::tuple);
  const NodeId* nodes = start ? nullptr : builder.nodes(*engine_, state->step);
  for (uint32_t i = method == WalkNode::h ? size - layers : 0; !start && i < size; ++i)
    all->items.push_back(recorded(nodes[i], &ExpressionType));
  if (log_ && !start) log_->parts(reinterpret_cast<PyObject*>(state));
  return {nullptr, all};
}

}  // namespace dyc::py
