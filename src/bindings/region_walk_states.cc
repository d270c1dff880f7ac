// Builders and their states in a walk. The first pass decides which steps there are; the second makes them.
#include "bindings/builders.h"
#include "bindings/compute.h"
#include "bindings/region_walk.h"

namespace dyc::py {

// ---------------------------------------------------------------- the first pass

// Is this a call of initial_state(), without arguments?
bool Walker::is_start(WalkValue builder, const WalkNode& node) {
  if (node.number != WalkNode::initial_state || node.parts.size() != 1) return false;
  WalkNode::Known& known = node.known;
  if (known.walk == walk_ && known.of == builder.object) return !known.function;
  if (!starts_plainly(builder.object)) return false;
  known = {walk_, builder.object, nullptr};
  return true;
}

WalkValue Walker::as_state(WalkValue result, RnnBuilder* builder, bool start) {
  result.result->kind = WalkResult::state;
  result.result->builder = builder;
  result.result->start = start;
  return result;
}

WalkValue Walker::start_sequence(PyObject* builder) {
  Call call{Call::start};
  call.called = builder;
  return as_state(add_call(call, call_args_.size()), builder_of(builder)->core.get(), true);
}

RnnBuilder* Walker::builder_of_state(WalkValue state) {
  if (state.result) return state.result->builder;
  const PyRnnState* s = state_in(state.object);
  if (!s->b || !check_state(s, "RNNState")) refuse("a state of another graph");
  return s->b->core.get();
}

WalkValue Walker::call_state_method(WalkValue state, const WalkNode& node, Frame& frame) {
  const size_t n = node.parts.size() - 1;
  if (PyTuple_GET_SIZE(node.object.get()) != 0) refuse("an argument by name");
  const bool takes_input = node.number >= WalkNode::add_input && node.number <= WalkNode::transduce;
  if (node.number < WalkNode::add_input || n != (takes_input ? 1 : 0)) refuse("a method of a state");
  if (!takes_input) return parts_of_state(state, node.number);
  const WalkValue x = evaluate(node.parts[1], frame);
  if (node.number != WalkNode::add_input) return add_inputs(state, node.number, x);
  if (!is_node(x)) refuse("an input that is no expression");
  const size_t first = call_args_.size();
  call_args_.insert(call_args_.end(), {state, x});
  return as_state(add_call({Call::step}, first), builder_of_state(state), false);
}

// Expressions or states after each of the inputs in turn.
WalkValue Walker::add_inputs(WalkValue state, uint32_t method, WalkValue xs) {
  RnnBuilder* builder = builder_of_state(state);
  const size_t n = length(xs), first = call_args_.size();
  if (n == 0) return {nullptr, make(WalkResult::list)};
  spend(n);
  call_args_.push_back(state);
  for (size_t i = 0; i < n; ++i) {
    const WalkValue x = element(xs, i);
    if (!is_node(x)) refuse("an input that is no expression");
    call_args_.push_back(x);
  }
  WalkResult* made = add_call({Call::steps, method}, first).result;
  made->kind = WalkResult::list;
  for (size_t i = 0; i < n; ++i) {
    const WalkValue each{nullptr, make(WalkResult::recorded)};
    each.result->type = &ExpressionType;
    each.result->dim = nullptr;
    made->items.push_back(method == WalkNode::transduce ? each : as_state(each, builder, false));
  }
  WalkResult* all = make(WalkResult::list);  // which the script may change before the steps are made
  all->items = made->items;
  return {nullptr, all};
}

// output(), h() and s().
WalkValue Walker::parts_of_state(WalkValue state, uint32_t method) {
  RnnBuilder* builder = builder_of_state(state);
  const bool start = state.result ? state.result->start : state_in(state.object)->step == RnnBuilder::kStart;
  const uint32_t size = builder->state_size(), layers = builder->layers();
  if (method == WalkNode::output) {
    if (start) return {Py_None};
    if (layers == 0) refuse("a builder without layers");
    const NodeId* nodes = state.object ? builder->nodes(*engine_, state_in(state.object)->step) : nullptr;
    const bool is_h = nodes ? nodes[size] == nodes[size - 1] : !builder->drops();
    return part_of_state(state, is_h ? size - 1 : size, size + 1);
  }
  WalkResult* all = make(WalkResult::tuple);
  for (uint32_t i = method == WalkNode::h ? size - layers : 0; !start && i < size; ++i) {
    const WalkValue part = part_of_state(state, i, size + 1);
    all->items.push_back(part);
  }
  return {nullptr, all};
}

// Node i of the n that a step has: another object at each call.
WalkValue Walker::part_of_state(WalkValue state, uint32_t i, uint32_t n) {
  const size_t first = call_args_.size();
  call_args_.push_back(state);
  const WalkValue part = add_call({Call::part, i}, first);
  if (state.object) return part;
  std::vector<WalkValue>& known = state.result->items;
  known.resize(n);
  if (known[i].result) part.result->same = known[i].result;
  else known[i] = part;
  return part;
}

// ---------------------------------------------------------------- the second pass

PyRnnState* Walker::state_of(WalkValue value) {
  return state_in(value.object ? value.object : value.result->made.get());
}

void Walker::perform_sequence(const Call& call) {
  Engine& e = *engine_;
  WalkResult& result = *call.result;
  if (call.kind == Call::start) {
    PyRnnState* start = start_state(call.called, builder_of(call.called), true);
    result.made = Owned::steal(reinterpret_cast<PyObject*>(start));
    return;
  }
  const WalkValue* values = call_args_.data() + call.args;
  PyRnnState* from = state_of(values[0]);  // of this graph, as the first pass has checked
  RnnBuilder& builder = *from->b->core;
  const auto step_to = [&](WalkResult* to, RnnBuilder::Step step) {
    to->made = Owned::steal(next_state(from, step));
    if (!to->made) throw PythonError();
    from = state_in(to->made.get());
  };
  if (call.kind == Call::part) {
    result.id = builder.nodes(e, from->step)[call.number];
  } else if (call.kind == Call::step) {
    step_to(&result, builder.add_input(e, from->step, node_of(values[1])));
  } else {
    std::vector<NodeId> xs;
    for (uint32_t i = 1; i < call.n; ++i) xs.push_back(node_of(values[i]));
    RnnBuilder::Step step = builder.add_inputs(e, from->step, xs);
    for (const WalkValue& item : result.items) {
      if (call.number == WalkNode::transduce) item.result->id = builder.output(e, step);
      else step_to(item.result, step);
      ++step;
    }
  }
}

}  // namespace dyc::py
