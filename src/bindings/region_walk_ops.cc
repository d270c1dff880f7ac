// Single ops in a walk, and what it does to lists.
#include <algorithm>

#include "bindings/compute.h"
#include "bindings/region_walk.h"

namespace dyc::py {

namespace {

bool is_number(WalkValue v) {
  return v.object && (PyLong_CheckExact(v.object) || PyFloat_CheckExact(v.object));
}

bool as_index(WalkValue v, uint32_t* index) {
  if (!v.object || !PyLong_CheckExact(v.object)) return false;
  int overflow;
  const long number = PyLong_AsLongAndOverflow(v.object, &overflow);
  if (overflow || number < 0 || number >= long{1} << 31) return false;
  *index = static_cast<uint32_t>(number);
  return true;
}

PyObject* calculate(uint32_t operation, PyObject* a, PyObject* b) {
  switch (operation) {
    case WalkNode::add:
      return PyNumber_Add(a, b);
    case WalkNode::subtract:
      return PyNumber_Subtract(a, b);
    case WalkNode::multiply:
      return PyNumber_Multiply(a, b);
    case WalkNode::divide:
      return PyNumber_TrueDivide(a, b);
    case WalkNode::floor_divide:
      return PyNumber_FloorDivide(a, b);
    case WalkNode::modulo:
      return PyNumber_Remainder(a, b);
    default:
      return PyNumber_Negative(a);
  }
}

}  // namespace

// ---------------------------------------------------------------- single ops

// An expression or parameters of a class of the package, whose operators no script has changed.
bool Walker::is_node(WalkValue value) {
  if (value.result) return value.result->kind == WalkResult::recorded;
  return is_expression(value.object) && !PyType_HasFeature(Py_TYPE(value.object), Py_TPFLAGS_HEAPTYPE);
}

// Is this one of the package's functions that only record?
bool Walker::only_records(const WalkNode& node, PyObject* function) {
  WalkNode::Known& known = node.known;
  if (known.of == function && known.walk == walk_) return known.function != nullptr;
  if (!PyCFunction_Check(function)) return false;  // those in Python are walked
  const bool is = PySet_Contains(recording_, function) == 1;
  known = {walk_, function, is ? function : nullptr, op_of_function(function)};
  return is;
}

// May an op take this value? Using it runs no code of the script. `depth`: of lists inside lists that it may
// be, as a list may hold itself.
bool Walker::is_operand(WalkValue value, int depth) {
  if (is_node(value)) return true;
  if (value.object && is_plain_value(value.object)) return true;
  if (depth == 0 || (value.object && !is_sequence(value.object))) return false;
  if (value.result && !value.result->is_sequence()) return false;
  for (size_t i = 0; i < length(value); ++i)
    if (!is_operand(element(value, i), depth - 1)) return false;
  return true;
}

// The value as it is now: lists of the walk may change before the op is recorded.
WalkValue Walker::snapshot(WalkValue value) {
  if (!value.result || !value.result->is_sequence()) return value;
  WalkResult* copy = make(value.result->kind);
  for (const WalkValue& item : value.result->items) copy->items.push_back(snapshot(item));
  return {nullptr, copy};
}

// The arguments from `first_arg` on are the call's. It may fail in the second pass, which takes back what was
// recorded, but not random numbers that an instance of batch_map has drawn.
WalkValue Walker::add_call(Call call, size_t first_arg) {
  if (call.kind != Call::row && engine_->graph.instances.current() != Instances::kOutside)
    refuse("a single op in an instance of batch_map");
  steps_.push_back({nullptr, nullptr, static_cast<uint32_t>(inputs_.size()),
                    static_cast<uint32_t>(placeholders_.size()), static_cast<uint32_t>(n_results_),
                    static_cast<uint32_t>(calls_.size())});
  call.args = static_cast<uint32_t>(first_arg);
  call.n = static_cast<uint32_t>(call_args_.size() - first_arg);
  call.result = make(WalkResult::recorded);
  call.result->type = call.kind == Call::row                                ? &LookupType
                      : call.kind == Call::op && call.number == op_id<Pick> ? &PickerType
                      : call.kind == Call::op || call.kind == Call::part    ? &ExpressionType
                                                                            : nullptr;
  call.result->dim = nullptr;
  calls_.push_back(call);
  return {nullptr, call.result};
}

WalkValue Walker::record_call(PyObject* function, const WalkNode& node, Frame& frame) {
  constexpr size_t kMost = 8;
  WalkValue arguments[kMost];
  const OpId op = node.known.op;  // which an argument may change, as it may walk this node, too
  const size_t n = node.parts.size() - 1;
  if (n > kMost) refuse("a call with many arguments");
  for (size_t i = 0; i < n; ++i) arguments[i] = evaluate(node.parts[1 + i], frame);
  PyObject* names = PyTuple_GET_SIZE(node.object.get()) ? node.object.get() : nullptr;
  if (!names && op != kOps)
    if (const WalkValue made = record_plainly(op, arguments, n); made.result) return made;
  for (size_t i = 0; i < n; ++i) {
    if (!is_operand(arguments[i], 2)) refuse("an argument that is no expression, number or list of these");
    arguments[i] = snapshot(arguments[i]);
  }
  const size_t first = call_args_.size();
  call_args_.insert(call_args_.end(), arguments, arguments + n);
  Call call{Call::function};
  call.called = function;
  call.names = names;
  return add_call(call, first);
}

// Most calls are of expressions and indices only: these need no Python objects. No value: others.
WalkValue Walker::record_plainly(OpId op, const WalkValue* arguments, size_t n) {
  const PlainCall plain = plain_call(op, n);
  if (!plain.possible) return {};
  Call call{Call::op, op};
  const size_t first = call_args_.size();
  const auto add = [&](WalkValue v) {
    if (is_node(v)) call_args_.push_back(v);
    return is_node(v);
  };
  bool all = true;
  const size_t n_nodes = n - plain.index;
  if (plain.list) {
    const bool list =
        arguments[0].result ? arguments[0].result->is_sequence() : is_sequence(arguments[0].object);
    for (size_t i = 0, k = list ? length(arguments[0]) : 0; all && i < k; ++i)
      all = add(element(arguments[0], i));
    all = all && call_args_.size() > first;
  } else {
    for (size_t i = 0; all && i < n_nodes; ++i) all = add(arguments[i]);
  }
  if (all && plain.index) all = as_index(arguments[n - 1], &call.index);
  if (all) return add_call(call, first);
  call_args_.resize(first);
  return {};
}

NodeId Walker::node_of(WalkValue value) {
  if (value.result) return value.result->id;
  NodeId id;
  if (!to_node(value.object, "expression", &id)) throw PythonError();
  return id;
}

// In the second pass.
void Walker::perform(const Call& call) {
  WalkResult& result = *call.result;
  const WalkValue* values = call_args_.data() + call.args;
  if (call.kind >= Call::start) return perform_sequence(call);
  if (call.kind == Call::row) {
    result.id = engine_->graph.lookup(storage_in(values[0].object), {&call.number, 1, false}, true);
    return;
  }
  if (call.kind == Call::op) {
    ids_.clear();
    for (uint32_t i = 0; i < call.n; ++i) ids_.push_back(node_of(values[i]));
    const auto op = static_cast<OpId>(call.number);
    result.id = record_plain(op, ids_.data(), call.n, call.index == kNone ? nullptr : &call.index);
    return;
  }
  std::vector<Owned> arguments;
  operands_.clear();
  for (uint32_t i = 0; i < call.n; ++i) {
    arguments.push_back(Owned::steal(object_of(values[i])));
    operands_.push_back(arguments.back().get());
  }
  PyObject* const* args = operands_.data();
  const size_t named = call.names ? static_cast<size_t>(PyTuple_GET_SIZE(call.names)) : 0;
  PyObject* made = call.kind == Call::function
                       ? PyObject_Vectorcall(call.called, args, call.n - named, call.names)
                   : call.kind == Call::item ? PyObject_GetItem(args[0], args[1])
                                             : calculate(call.number, args[0], args[call.n - 1]);
  result.made = Owned::steal(made);
  if (!made) throw PythonError();
  if (!is_expression(made)) refuse("an op that makes something else than an expression");
  result.id = reinterpret_cast<const PyExpression*>(made)->id;
}

// An item of an expression, or a row of a table.
WalkValue Walker::record_item(WalkValue base, WalkValue key) {
  const size_t first = call_args_.size();
  call_args_.push_back(base);
  Call call{Call::item};
  const bool row = base.object && Py_TYPE(base.object) == &LookupParametersType;
  if (row && as_index(key, &call.number)) {
    call.kind = Call::row;
    const WalkValue made = add_call(call, first);
    made.result->dim = &storage_in(base.object)->dim;
    return made;
  }
  if (!key.object || !PyLong_CheckExact(key.object)) refuse("an index that is no whole number");
  call_args_.push_back(key);
  return add_call(call, first);
}

// ---------------------------------------------------------------- operators

WalkValue Walker::arithmetic(uint32_t how, WalkValue a, WalkValue b) {
  const uint32_t operation = how & ~uint32_t{WalkNode::in_place};
  const bool one = operation == WalkNode::negative;
  if (is_number(a) && (one || is_number(b))) return keep_part(calculate(operation, a.object, b.object));
  if (one ? is_node(a) : (is_node(a) && (is_node(b) || is_number(b))) || (is_number(a) && is_node(b)))
    return record_operation(operation, a, b);
  const bool list = a.result ? a.result->kind == WalkResult::list : PyList_CheckExact(a.object);
  if (how == operation || !list) return sum_of_lists(operation, a, b);
  if (operation != WalkNode::add) refuse("a list that changes in place");
  extend(a, b);
  return a;
}

WalkValue Walker::record_operation(uint32_t operation, WalkValue a, WalkValue b) {
  const size_t first = call_args_.size();
  call_args_.push_back(a);
  if (operation != WalkNode::negative) call_args_.push_back(b);
  return add_call({Call::operation, operation}, first);
}

// Lists one after the other, or a list several times.
WalkValue Walker::sum_of_lists(uint32_t how, WalkValue a, WalkValue b) {
  const auto type = [](WalkValue v) {
    if (v.result) return v.result->kind == WalkResult::state ? WalkResult::recorded : v.result->kind;
    return !is_sequence(v.object)         ? WalkResult::recorded
           : PyTuple_CheckExact(v.object) ? WalkResult::tuple
                                          : WalkResult::list;
  };
  if (how == WalkNode::multiply && is_number(a)) std::swap(a, b);
  const WalkResult::Kind kind = type(a);
  const bool times = how == WalkNode::multiply && b.object && PyLong_CheckExact(b.object);
  if (kind == WalkResult::recorded || !(times || (how == WalkNode::add && type(b) == kind)))
    refuse("an operator on something else than numbers, lists and expressions");
  const long n = times ? PyLong_AsLong(b.object) : 1;
  if (PyErr_Occurred() || n > long{1} << 20) refuse("a long list");
  // As Python, which makes no second tuple of equal items.
  if (kind == WalkResult::tuple && times && (n == 1 || length(a) == 0)) return a;
  if (kind == WalkResult::tuple && !times && length(b) == 0) return a;
  if (kind == WalkResult::tuple && !times && length(a) == 0) return b;
  spend(n > 0 ? static_cast<size_t>(n) * length(a) : 0);
  if (!times) spend(length(b));
  WalkResult* made = make(kind);
  for (long k = 0; k < n; ++k)
    for (size_t i = 0; i < length(a); ++i) made->items.push_back(element(a, i));
  for (size_t i = 0; !times && i < length(b); ++i) made->items.push_back(element(b, i));
  return {nullptr, made};
}

// ---------------------------------------------------------------- lists

void Walker::append(WalkValue list, WalkValue value) {
  if (list.result) {
    list.result->items.push_back(value);
    return;
  }
  if (std::find(appended_.begin(), appended_.end(), list.object) == appended_.end())
    appended_.push_back(list.object);
  appends_.emplace_back(list.object, value);
}

void Walker::extend(WalkValue list, WalkValue more) {
  const size_t n = length(more);  // which may be the same list
  spend(n);
  for (size_t i = 0; i < n; ++i) append(list, element(more, i));
}

WalkValue Walker::call_list_method(WalkValue list, const WalkNode& node, Frame& frame) {
  const size_t n = node.parts.size() - 1;
  if (PyTuple_GET_SIZE(node.object.get()) != 0) refuse("an argument by name");
  if (n > 1) refuse("a method of a list");
  const WalkValue argument = n ? evaluate(node.parts[1], frame) : WalkValue();
  if (node.number == WalkNode::append && n) {
    append(list, argument);
    return {Py_None};
  }
  if (node.number == WalkNode::extend && n) {
    extend(list, argument);
    return {Py_None};
  }
  if (node.number != WalkNode::pop) refuse("a method of a list");
  if (!list.result) refuse("pop() from a list that the function has not made");
  std::vector<WalkValue>& items = list.result->items;
  if (items.empty()) refuse("an index out of range");
  const size_t at = n ? index(list, argument) : items.size() - 1;
  const WalkValue last = items[at];
  items.erase(items.begin() + static_cast<ptrdiff_t>(at));
  return last;
}

void Walker::store_item(const WalkNode& target, WalkValue value, Frame& frame) {
  const WalkValue list = evaluate(target.parts[0], frame), key = evaluate(target.parts[1], frame);
  if (!list.result || list.result->kind != WalkResult::list)
    refuse("an item of something else than a list that the function has made");
  list.result->items[index(list, key)] = value;
}

}  // namespace dyc::py
