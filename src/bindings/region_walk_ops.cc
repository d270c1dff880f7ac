// Single ops in a walk, and what it does to lists.
#include <algorithm>

#include "bindings/compute.h"
#include "bindings/operators.h"
#include "bindings/python_compat.h"
#include "bindings/region_walk_log.h"

namespace dyc::py {

namespace {

bool is_python_number(WalkValue v) {
  return v.object && (PyLong_CheckExact(v.object) || PyFloat_CheckExact(v.object));
}

bool is_number(WalkValue v) { return is_python_number(v) || (v.object && is_numpy_number(v.object)); }

bool as_index(WalkValue v, uint32_t* index) {
  Py_ssize_t small;
  if (as_short_int(v, &small) && small >= 0) {
    *index = static_cast<uint32_t>(small);
    return true;
  }
  return v.object && dyc::py::as_index(v.object, index);
}

constexpr int kMostNested = 2;  // lists inside lists that an op takes

bool is_table(WalkValue v) { return v.object && Py_TYPE(v.object) == &LookupParametersType; }

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

// Is this one of the package's functions that only record?
bool Walker::only_records(const WalkNode& node, PyObject* function) {
  if (node.recorder.get() == function) return true;
  if (!PyCFunction_Check(function) || PySet_Contains(recording_, function) != 1) return false;  // or walked
  node.recorder = Owned(function);
  node.op = op_of_function(function);
  node.plain = node.op == kOps ? PlainCall() : plain_call(node.op, node.parts.size() - 1);
  return true;
}

// May an op take this value? Using it runs no code of the script. `depth`: of lists inside lists that it may
// be, as a list may hold itself. Copying lists of NumPy's numbers is left to Python, as it may warn.
bool Walker::is_operand(WalkValue value, int depth) {
  if (is_node(value)) return true;
  const bool part = depth < kMostNested;
  if (value.object && (part ? is_python_value(value.object) : is_plain_value(value.object))) return true;
  if (depth == 0 || (value.object && !is_sequence(value.object))) return false;
  if (value.result && !value.result->is_sequence()) return false;
  for (size_t i = 0; i < length(value); ++i)
    if (!is_operand(element(value, i), depth - 1)) return false;
  return true;
}

// Numbers that the function copies into a node: a replay copies those of that time, so they are not compared.
bool Walker::is_data(WalkValue value) {
  if (!value.object || !is_plain_data(value.object)) return false;
  if (is_sequence(value.object)) note_read(value.object);
  return true;
}

// Random numbers that an instance of batch_map draws cannot be taken back, as recorded nodes can.
void Walker::may_record() {
  if (engine_->graph.instances.current() != Instances::kOutside)
    refuse("a single op in an instance of batch_map");
}

// What a function or operator of the package returned, a new reference.
WalkValue Walker::recorded_by_python(PyObject* made) {
  if (!made) throw PythonError();
  Owned owned = Owned::steal(made);
  if (!is_expression(made) || is_parameters(made))
    refuse("an op that makes something else than an expression");
  const WalkValue value = recorded(reinterpret_cast<const PyExpression*>(made)->id, Py_TYPE(made));
  value.result->made = std::move(owned);
  return value;
}

WalkValue Walker::record_call(PyObject* function, const WalkNode& node, Frame& frame) {
  WalkValue arguments[tuning::kWalkArguments], items[tuning::kWalkArguments];
  const OpId op = node.op;  // which an argument may change, as it may walk this node, too
  const PlainCall plain = node.plain;
  const size_t n = node.parts.size() - 1;
  if (n > tuning::kWalkArguments) refuse("a call with many arguments");
  const auto named = static_cast<size_t>(PyTuple_GET_SIZE(node.object.get()));
  const bool plainly = plain.possible && named == 0;
  // A list that is written in the call is only made for what is not recorded plainly.
  const bool written = plainly && plain.list && node.parts[1].kind == WalkNode::list &&
                       node.parts[1].parts.size() <= tuning::kWalkArguments;
  const size_t n_items = written ? node.parts[1].parts.size() : 0;
  for (size_t i = 0; i < n_items; ++i) items[i] = evaluate(node.parts[1].parts[i], frame);
  for (size_t i = written; i < n; ++i) arguments[i] = evaluate(node.parts[1 + i], frame);
  may_record();
  if (plainly) {
    const WalkValue* index = plain.index ? &arguments[n - 1] : nullptr;
    NodeId id;
    if (written       ? record_plainly(op, plain, items, n_items, index, &id)
        : !plain.list ? record_plainly(op, plain, arguments, n - plain.index, index, &id)
                      : record_list(op, plain, arguments[0], index, &id))
      return recorded(id, op == op_id<Pick> ? &PickerType : &ExpressionType);
  }
  uint32_t row;
  if (op == kOps && named == 0 && n == 2 && is_lookup(function) && is_table(arguments[0]) &&
      as_index(arguments[1], &row))
    return record_item(arguments[0], arguments[1]);
  if (written) {
    arguments[0] = {nullptr, make(WalkResult::list)};
    arguments[0].result->items.assign(items, items + n_items);
  }
  std::vector<Owned> objects;
  operands_.clear();
  const bool has_data = n > 0 && copies_data(function) && is_data(arguments[0]);
  for (size_t i = 0; i < n; ++i) {
    if (!(i == 0 && has_data) && !is_operand(arguments[i], kMostNested))
      refuse("an argument that is no expression, number or list of these");
    objects.push_back(Owned::steal(object_of(arguments[i], false)));
    operands_.push_back(objects.back().get());
  }
  PyObject* names = named ? node.object.get() : nullptr;
  Owned made = Owned::steal(PyObject_Vectorcall(function, operands_.data(), n - named, names));
  if (n == 1 && made.get() == operands_[0]) return arguments[0];  // of dy.parameter()
  const WalkValue value = recorded_by_python(made.release());
  if (log_) log_->call(function, names, arguments, n, value);
  return value;
}

// [concatenate([x, y]) for x, y in zip(xs, ys)]
WalkValue Walker::record_pairs(const WalkNode& node, Frame& frame) {
  static const PlainCall plain = plain_call(op_id<Concatenate>, 1);
  if (node.parts.size() != 3 || PyTuple_GET_SIZE(node.object.get()) != 0) refuse("other arguments");
  const WalkValue xs = evaluate(node.parts[1], frame), ys = evaluate(node.parts[2], frame);
  may_record();
  WalkResult* all = make(WalkResult::list);
  const size_t n = length(xs);
  if (length(ys) != n) refuse("lists of other lengths, whose last items are looked at, too");
  spend(n);
  for (size_t i = 0; i < n; ++i) {
    const WalkValue pair[] = {element(xs, i), element(ys, i)};
    NodeId id;
    if (!record_plainly(op_id<Concatenate>, plain, pair, 2, nullptr, &id))
      refuse("an input that is no expression");
    all->items.push_back(recorded(id, &ExpressionType));
  }
  return {nullptr, all};
}

// parameters.expr(), whose node takes no gradient.
WalkValue Walker::record_constant(PyObject* parameters) {
  may_record();
  const NodeId id = engine_->graph.parameter(storage_in(parameters), kConstant);
  if (log_) log_->parameters(MemoStep::parameter, parameters, kConstant, id);
  return recorded(id, &ExpressionType);
}

// Most calls are of expressions and indices only: these need no Python objects. False: others.
bool Walker::record_plainly(OpId op, const PlainCall& plain, const WalkValue* operands, size_t n,
                            const WalkValue* index, NodeId* id) {
  NodeId few[tuning::kWalkArguments];
  NodeId* ids = few;
  if (n > tuning::kWalkArguments) {
    ids_.resize(n);
    ids = ids_.data();
  }
  for (size_t i = 0; i < n; ++i) {
    if (!is_node(operands[i])) return false;
    ids[i] = node_of(operands[i]);
  }
  uint32_t number = 0;
  if (n == 0 || (index && !as_index(*index, &number))) return false;
  *id = engine_->graph.record(op, ids, static_cast<uint32_t>(n), plain.attrs, plain.n_attrs,
                              {&number, index != nullptr, false});
  if (log_) log_->op(op, plain, operands, n, index ? &number : nullptr, *id);
  return true;
}

bool Walker::record_list(OpId op, const PlainCall& plain, WalkValue list, const WalkValue* index,
                         NodeId* id) {
  if (list.result ? !list.result->is_sequence() : !is_sequence(list.object)) return false;
  const size_t n = length(list);
  if (list.result) return record_plainly(op, plain, list.result->items.data(), n, index, id);
  listed_.clear();
  for (size_t i = 0; i < n; ++i) listed_.push_back(element(list, i));
  return record_plainly(op, plain, listed_.data(), n, index, id);
}

NodeId Walker::node_of_object(PyObject* object) {
  NodeId id;
  if (!to_node(object, "expression", &id)) throw PythonError();
  return id;
}

// An item of an expression, or a row of a table.
WalkValue Walker::record_item(WalkValue base, WalkValue key) {
  uint32_t index;
  if (is_table(base) && as_index(key, &index)) {
    const NodeId id = engine_->graph.lookup(storage_in(base.object), {&index, 1, false}, true);
    if (log_) log_->parameters(MemoStep::lookup, base.object, index, id);
    return recorded(id, &LookupType);
  }
  if (!key.object || !PyLong_CheckExact(key.object)) refuse("an index that is no whole number");
  may_record();
  const Owned object = Owned::steal(object_of(base));
  const WalkValue made = recorded_by_python(PyObject_GetItem(object.get(), key.object));
  const WalkValue operands[] = {base, key};
  if (log_) log_->call(nullptr, nullptr, operands, 2, made);
  return made;
}

// ---------------------------------------------------------------- operators

WalkValue Walker::arithmetic(uint32_t how, WalkValue a, WalkValue b) {
  const uint32_t operation = how & ~uint32_t{WalkNode::in_place};
  if (operation != WalkNode::negative && is_node(a) && is_node(b)) return record_operation(operation, a, b);
  const bool one = operation == WalkNode::negative;
  if (is_python_number(a) && (one || is_python_number(b)))
    return keep_part(calculate(operation, a.object, b.object));
  if (one ? is_node(a) : (is_node(a) && (is_node(b) || is_number(b))) || (is_number(a) && is_node(b)))
    return record_operation(operation, a, b);
  const auto is_text = [](WalkValue v) { return v.object && PyUnicode_CheckExact(v.object); };
  if (operation == WalkNode::add && is_text(a) && is_text(b))
    return keep_part(PyUnicode_Concat(a.object, b.object));
  const bool list = a.result ? a.result->kind == WalkResult::list : PyList_CheckExact(a.object);
  if (how == operation || !list) return sum_of_lists(operation, a, b);
  if (operation != WalkNode::add) refuse("a list that changes in place");
  extend(a, b);
  return a;
}

WalkValue Walker::record_operation(uint32_t operation, WalkValue a, WalkValue b) {
  static_assert(uint32_t{WalkNode::divide} == static_cast<uint32_t>(BinaryOperator::divide));
  may_record();
  const auto number = [&](WalkValue v) {
    const double d = PyFloat_AsDouble(v.object);
    if (d == -1.0 && PyErr_Occurred()) throw PythonError();
    return static_cast<float>(d);
  };
  if (operation == WalkNode::negative) {
    const NodeId id = engine_->graph.unary(op_id<Negate>, node_of(a));
    if (log_) log_->arithmetic(operation, a, 0.0f, id);
    return recorded(id, &ExpressionType);
  }
  if (operation > WalkNode::divide) refuse("an operator that expressions do not have");
  const auto which = static_cast<BinaryOperator>(operation);
  const NodeId id = is_number(a)   ? record_operator(which, number(a), node_of(b))
                    : is_number(b) ? record_operator(which, node_of(a), number(b))
                                   : record_operator(which, node_of(a), node_of(b));
  if (log_) {
    if (is_number(a)) log_->arithmetic(operation, number(a), b, id);
    else if (is_number(b)) log_->arithmetic(operation, a, number(b), id);
    else log_->arithmetic(operation, a, b, id);
  }
  return recorded(id, &ExpressionType);
}

// Lists one after the other, or a list several times.
WalkValue Walker::sum_of_lists(uint32_t how, WalkValue a, WalkValue b) {
  const auto type = [](WalkValue v) {
    if (v.result) return v.result->kind;
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
  if (PyErr_Occurred() || n > static_cast<long>(tuning::kWalkWork)) refuse("a long list");
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
  if (n > 2 || (n == 2 && node.number != WalkNode::insert)) refuse("a method of a list");
  const WalkValue argument = n ? evaluate(node.parts[1], frame) : WalkValue();
  if (node.number == WalkNode::insert && n == 2)
    return insert(list, argument, evaluate(node.parts[2], frame));
  if (node.number == WalkNode::append && n) {
    append(list, argument);
    return {Py_None};
  }
  if (node.number == WalkNode::extend && n) {
    extend(list, argument);
    return {Py_None};
  }
  const bool reverses = node.number == WalkNode::reverse && n == 0;
  if (node.number != WalkNode::pop && !reverses) refuse("a method of a list");
  if (!list.result) refuse("pop() or reverse() of a list that the function has not made");
  std::vector<WalkValue>& items = list.result->items;
  if (reverses) {
    std::reverse(items.begin(), items.end());
    return {Py_None};
  }
  if (items.empty()) refuse("an index out of range");
  const size_t at = n ? index(list, argument) : items.size() - 1;
  const WalkValue last = items[at];
  items.erase(items.begin() + static_cast<ptrdiff_t>(at));
  return last;
}

WalkValue Walker::insert(WalkValue list, WalkValue key, WalkValue value) {
  Py_ssize_t at;
  if (!list.result) refuse("insert() into a list that the function has not made");
  if (!as_short_int(key, &at)) refuse("an index that is no whole number");
  std::vector<WalkValue>& items = list.result->items;
  const auto n = static_cast<Py_ssize_t>(items.size());
  at = std::clamp<Py_ssize_t>(at < 0 ? at + n : at, 0, n);
  items.insert(items.begin() + at, value);
  return {Py_None};
}

void Walker::store_item(const WalkNode& target, WalkValue value, Frame& frame) {
  const WalkValue list = evaluate(target.parts[0], frame), key = evaluate(target.parts[1], frame);
  if (!list.result || list.result->kind != WalkResult::list)
    refuse("an item of something else than a list that the function has made");
  list.result->items[index(list, key)] = value;
}

}  // namespace dyc::py
