// The statements and expressions of a program.
#include "bindings/region_walk.h"

#include <algorithm>

#include "bindings/python_compat.h"
#include "bindings/region_walk_log.h"

namespace dyc::py {

namespace {

PyTypeObject* const kIterators[] = {&PyZip_Type, &PyEnum_Type, &PyReversed_Type, &PyRange_Type};

}  // namespace

void Walker::refuse(const char* reason) {
  reason_ = reason;
  throw Refused();
}

WalkValue Walker::keep(PyObject* reference) {
  if (!reference) refuse("a value that cannot be read");
  kept_.push_back(Owned::steal(reference));
  return {reference};
}

// As keep(), but drops the reference if another object refers to the value, too.
WalkValue Walker::keep_part(PyObject* reference) {
  if (!reference || Py_REFCNT(reference) == 1) return keep(reference);
  Py_DECREF(reference);
  return {reference};
}

// Counts what it does: calls, iterations, copied items.
void Walker::spend(size_t n) {
  if ((spent_ += n) > tuning::kWalkWork) refuse("a long loop");
}

// ---------------------------------------------------------------- calls

WalkValue* Walker::take_slots(const WalkProgram& program) {
  if (n_stack_ + program.n_slots > stack_.size()) refuse("too many values");
  WalkValue* slots = stack_.data() + n_stack_;
  n_stack_ += program.n_slots;
  std::fill_n(slots, program.n_slots, WalkValue());
  return slots;
}

WalkValue Walker::call(const WalkProgram& program, WalkValue* slots) {
  ++depth_;
  if (log_) [[unlikely]]
    log_->depth(depth_);
  if (depth_ > most_depth_ || stack_start_ - stack_pointer() > tuning::kWalkStack)
    refuse("too many calls inside one another");
  spend(1);
  Frame frame{slots, {}};
  if (execute(program.body, frame) != Flow::returned) frame.returned = {Py_None};
  --depth_;
  n_stack_ = static_cast<size_t>(slots - stack_.data());
  return frame.returned;
}

const WalkProgram& Walker::program_of(PyObject* function, const WalkNode& node) {
  PyObject* code = PyFunction_GET_CODE(function);
  if (node.found_in == walk_ && node.code == code) return *node.program;
  const WalkProgram* program = find_program(code);
  if (!program) unknown_ = Owned(function);
  if (!program || !program->usable || program->begun || is_monitored(code) ||
      function_builtins(function) != builtins_)
    refuse("a function that does more than record");
  node.program = program;
  node.code = code;
  node.found_in = walk_;
  return *program;
}

WalkValue Walker::call_function(PyObject* function, WalkValue self, const WalkNode& node, Frame& frame) {
  const WalkProgram* program = &program_of(function, node);
  if (log_) [[unlikely]]
    log_->function(function, *program);
  const size_t n = program->parameters.size();
  WalkValue* slots = take_slots(*program);
  size_t given = 0;
  if (self.object || self.result) slots[given++] = self;
  const auto named = static_cast<size_t>(PyTuple_GET_SIZE(node.object.get()));
  const size_t by_place = node.parts.size() - 1 - named;
  if (given + by_place > n) refuse("too many arguments");
  const WalkNode* argument = node.parts.data() + 1;
  for (size_t i = 0; i < by_place; ++i) slots[given++] = evaluate(*argument++, frame);
  for (size_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GET_ITEM(node.object.get(), static_cast<Py_ssize_t>(i));
    size_t at = given;
    while (at < n && PyUnicode_Compare(program->parameters[at].get(), name) != 0) ++at;
    if (at == n || slots[at].object || slots[at].result) refuse("an argument that does not fit");
    slots[at] = evaluate(node.parts[1 + by_place + i], frame);
  }
  PyObject* defaults = given < n ? PyFunction_GET_DEFAULTS(function) : nullptr;
  const size_t n_defaults = defaults ? static_cast<size_t>(PyTuple_GET_SIZE(defaults)) : 0;
  for (size_t i = given; i < n; ++i) {
    if (slots[i].object || slots[i].result) continue;
    if (i + n_defaults < n) refuse("a missing argument");
    slots[i] = {PyTuple_GET_ITEM(defaults, static_cast<Py_ssize_t>(i + n_defaults - n))};
  }
  if (!log_) return call_bound(function, *program, slots);
  const WalkLog::Mark before = log_->mark();
  const std::vector<WalkValue> args(slots, slots + n);  // which the call may assign
  const bool writes = !assigned_.is_empty() || !appends_.empty();
  const WalkValue returned = call_bound(function, *program, slots);
  if (log_->has_drawn_since(before)) {
    if (writes || !assigned_.is_empty() || !appends_.empty()) log_->give_up();
    log_->walk(before, function, args, returned);
  }
  return returned;
}

// The values of the parameters are in the slots.
WalkValue Walker::call_bound(PyObject* function, const WalkProgram& program, WalkValue* slots) {
  for (size_t i = 0; i < program.free.size(); ++i) {
    PyObject* cell =
        PyTuple_GET_ITEM(PyFunction_GET_CLOSURE(function), static_cast<Py_ssize_t>(program.free[i]));
    WalkValue& slot = slots[program.parameters.size() + i];
    slot = {PyCell_GET(cell)};
    if (log_) log_->cell(function, program.free[i], slot.object);
  }
  PyObject* globals = std::exchange(globals_, PyFunction_GET_GLOBALS(function));
  const WalkValue returned = call(program, slots);
  globals_ = globals;
  return returned;
}

// The function that a call of an object of the script is.
PyObject* Walker::call_of(PyObject* object) {
  static PyObject* const name = PyUnicode_InternFromString("__call__");
  PyObject* found = _PyType_Lookup(Py_TYPE(object), name);
  if (!found || !PyFunction_Check(found)) refuse("a call of an object that is no function");
  if (log_) log_->read(MemoRead::of_class, object, name, found);
  return found;
}

// `found`, which its class has by this name, if that is the function that a method of the object calls, or
// Python's own.
PyObject* Walker::method_of(PyObject* base, PyObject* name, PyObject* found) {
  PyTypeObject* type = Py_TYPE(base);
  if (type->tp_getattro != PyObject_GenericGetAttr) refuse("a class that looks attributes up itself");
  if (!PyFunction_Check(found) && Py_TYPE(found) != &PyMethodDescr_Type)
    refuse("a method that is no plain function");
  if (!is_method_of_class(base, name, found)) refuse("a method of an object's own");
  if (log_) log_->read(MemoRead::method, base, name, found);
  return found;
}

WalkValue Walker::evaluate_call(const WalkNode& node, Frame& frame) {
  const WalkNode& called = node.parts[0];
  if (PyObject* function = known_recorder(node)) return record_call(function, node, frame);
  if (called.kind != WalkNode::attribute) {
    PyObject* function = evaluate(called, frame).object;
    if (!function) refuse("a call of a result");
    return call_object(function, node, frame);
  }
  const WalkValue base = evaluate(called.parts[0], frame);
  PyObject* name = called.object.get();
  const bool list =
      base.object ? PyList_CheckExact(base.object) : base.result && base.result->kind == WalkResult::list;
  if (list) return call_list_method(base, node, frame);
  if (!base.object) refuse("a method of a result");
  if (node.number == WalkNode::get && is_dict(base.object)) return get_item(base, node, frame);
  if (PyUnicode_CheckExact(base.object)) {
    PyObject* method = _PyType_Lookup(&PyUnicode_Type, name);
    if (!method || Py_TYPE(method) != &PyMethodDescr_Type) refuse("an attribute of a text");
    // Scripts may register codecs and what they do with errors.
    if (PyUnicode_CompareWithASCIIString(name, "encode") == 0) refuse("a method that may run other code");
    return call_plainly(method, base, node, frame);
  }
  if (Py_TYPE(base.object) == &RnnStateType) return call_state_method(base.object, node, frame);
  if (is_start(base, node)) return start_sequence(base.object, node, frame);
  if (node.number == WalkNode::expr && node.parts.size() == 1 && Py_TYPE(base.object) == &ParametersType)
    return record_constant(base.object);
  if (node.number >= WalkNode::set_dropout && sets_dropout_plainly(base.object, name))
    return set_dropout(base.object, node, frame);
  if (PyModule_CheckExact(base.object)) {
    if (called.value.of != base.object || called.value.walk != walk_)
      called.value = {walk_, base.object, read_module(base.object, name)};
    return call_object(called.value.function, node, frame);
  }
  WalkNode::Known& known = node.known;
  if (known.walk == walk_ && known.of == base.object) return call_function(known.function, base, node, frame);
  PyObject* found = _PyType_Lookup(Py_TYPE(base.object), name);
  if (!found || Py_TYPE(found) == &PyStaticMethod_Type) {  // a function that is an attribute of the object
    PyObject* function = attribute(called, base).object;
    if (!function) refuse("a call of a result");
    return call_object(function, node, frame);
  }
  if (node.drawer.walk == walk_ && node.drawer.of == base.object) return draw(node.drawer.found, node, frame);
  if (const Drawer drawer = Drawer::of_method(base.object, name); drawer.kind != Drawer::none) {
    node.drawer = {walk_, base.object, drawer};
    return draw(drawer, node, frame);
  }
  PyObject* function = method_of(base.object, name, found);
  if (!PyFunction_Check(function)) refuse("a method that is no plain function");
  known = {walk_, base.object, function};
  return call_function(known.function, base, node, frame);
}

// The function of the API that `module.name` was found to be in this walk, for a global name; or null. Walks
// assign no attributes of modules.
PyObject* Walker::known_recorder(const WalkNode& node) const {
  const WalkNode& called = node.parts[0];
  if (called.kind != WalkNode::attribute || called.parts[0].kind != WalkNode::global) return nullptr;
  const WalkNode::Known &module = called.parts[0].known, &member = called.value;
  if (module.walk != walk_ || module.of != globals_ || !PyModule_CheckExact(module.function)) return nullptr;
  const bool known =
      member.walk == walk_ && member.of == module.function && member.function == node.recorder.get();
  return known ? member.function : nullptr;
}

// Lists that are appended to have their new items when the walk ends.
void Walker::note_read(PyObject* list) {
  if (!appended_.empty() && std::find(appended_.begin(), appended_.end(), list) != appended_.end())
    refuse("it reads a list that it has appended to");
}

// ---------------------------------------------------------------- statements

// These two only choose a method, so that they need no frame of the machine's stack: they are called for
// every node of a program.
Walker::Flow Walker::execute(const WalkNode& node, Frame& frame) {
  switch (node.kind) {
    case WalkNode::block:
      return execute_block(node, frame);
    case WalkNode::branch:
      return execute_branch(node, frame);
    case WalkNode::region:
      return execute_region(node, frame);
    case WalkNode::result:
      return execute_result(node, frame);
    case WalkNode::loop:
      return execute_for(node, frame);
    case WalkNode::while_loop:
      return execute_while(node, frame);
    case WalkNode::jump:
      return node.number ? Flow::again : Flow::broken;
    case WalkNode::failure:
      refuse("an exception");
    default:
      return execute_expression(node, frame);
  }
}

Walker::Flow Walker::execute_block(const WalkNode& node, Frame& frame) {
  for (const WalkNode& each : node.parts) {
    if (each.kind == WalkNode::assignment) assign(each.parts[0], evaluate(each.parts[1], frame), frame);
    else if (const Flow flow = execute(each, frame); flow != Flow::next) return flow;
  }
  return Flow::next;
}

Walker::Flow Walker::execute_branch(const WalkNode& node, Frame& frame) {
  return execute(node.parts[holds(node.parts[0], frame) ? 1 : 2], frame);
}

Walker::Flow Walker::execute_result(const WalkNode& node, Frame& frame) {
  frame.returned = evaluate(node.parts[0], frame);
  return Flow::returned;
}

Walker::Flow Walker::execute_expression(const WalkNode& node, Frame& frame) {
  evaluate(node.parts[0], frame);
  return Flow::next;
}

Walker::Flow Walker::execute_for(const WalkNode& node, Frame& frame) {
  return iterate(node.parts[0], node.parts[1], frame, [&] { return execute(node.parts[2], frame); });
}

Walker::Flow Walker::execute_while(const WalkNode& node, Frame& frame) {
  while (holds(node.parts[0], frame)) {
    spend(1);
    const Flow flow = execute(node.parts[1], frame);
    if (flow == Flow::returned) return flow;
    if (flow == Flow::broken) break;
  }
  return Flow::next;
}

Walker::Flow Walker::execute_region(const WalkNode& node, Frame& frame) {
  RegionUse& use = *node.use;
  const WalkNode &targets = node.parts[1], &lists = node.parts[2];
  use.appended.clear();
  for (const WalkNode& list : lists.parts) use.appended.push_back(evaluate(list, frame));
  for (size_t i = 0; i < node.parts[0].parts.size(); ++i)
    use.arguments[i] = evaluate(node.parts[0].parts[i], frame);
  const OutputSpec* results = step(use);
  if (!results) return execute(node.parts[3], frame);
  const bool returns = node.number & WalkNode::returns;
  const Flow flow = returns ? Flow::returned : Flow::next;
  if (node.number & WalkNode::alone) {
    if (returns) frame.returned = build(*results, use);
    else assign(targets.parts[0], build(*results, use), frame);
    return flow;
  }
  size_t i = 0;
  for (const WalkNode& target : targets.parts) assign(target, build(results->parts[i++], use), frame);
  for (const WalkValue& list : use.appended) append(list, build(results->parts[i++], use));
  if (returns) frame.returned = build(results->parts[i], use);
  return flow;
}

void Walker::assign_other(const WalkNode& target, WalkValue value, Frame& frame) {
  if (target.kind == WalkNode::item) return store_item(target, value, frame);
  if (target.kind == WalkNode::attribute) return store_attribute(target, value, frame);
  if (length(value) != target.parts.size()) refuse("a value with another number of parts");
  if (value.object && !is_sequence(value.object)) refuse("it unpacks something else than a list");
  const auto is_slot = [](const WalkNode& t) { return t.kind == WalkNode::slot; };
  if (std::all_of(target.parts.begin(), target.parts.end(), is_slot)) {
    for (size_t i = 0; i < target.parts.size(); ++i) assign(target.parts[i], element(value, i), frame);
    return;
  }
  std::vector<WalkValue> parts;  // before any of them changes the list
  for (size_t i = 0; i < target.parts.size(); ++i) parts.push_back(element(value, i));
  for (size_t i = 0; i < target.parts.size(); ++i) assign(target.parts[i], parts[i], frame);
}

// ---------------------------------------------------------------- expressions

WalkValue Walker::evaluate_other(const WalkNode& node, Frame& frame) {
  switch (node.kind) {
    case WalkNode::global:
      return evaluate_global(node);
    case WalkNode::attribute:
      return evaluate_attribute(node, frame);
    case WalkNode::item:
      return evaluate_item(node, frame);
    case WalkNode::slice:
      return evaluate_slice(node, frame);
    case WalkNode::call:
      return evaluate_call(node, frame);
    case WalkNode::tuple:
      return make_sequence(WalkResult::tuple, node, frame);
    case WalkNode::list:
      return make_sequence(WalkResult::list, node, frame);
    case WalkNode::negation:
    case WalkNode::all:
    case WalkNode::any:
      return evaluate_logic(node, frame);
    case WalkNode::comparison:
      return evaluate_comparison(node, frame);
    case WalkNode::conditional:
      return evaluate_conditional(node, frame);
    case WalkNode::arithmetic:
      return evaluate_arithmetic(node, frame);
    case WalkNode::each:
      return collect(node, frame);
    case WalkNode::text:
      return join(node, frame);
    case WalkNode::iterator:
      return copy_of(node, frame);
    case WalkNode::region:
      return evaluate_region(node, frame);
    default:
      refuse("a statement");
  }
}

WalkValue Walker::evaluate_region(const WalkNode& node, Frame& frame) {
  RegionUse& use = *node.use;
  use.appended.clear();
  for (size_t i = 0; i < node.parts[0].parts.size(); ++i)
    use.arguments[i] = evaluate(node.parts[0].parts[i], frame);
  const OutputSpec* result = step(use);
  return result ? build(*result, use) : evaluate(node.parts[1].parts.at(0), frame);
}

WalkValue Walker::evaluate_global(const WalkNode& node) {
  if (node.known.of == globals_ && node.known.walk == walk_) return {node.known.function};
  PyObject* name = node.object.get();
  const bool plain = PyDict_CheckExact(builtins_);
  const uint64_t versions[2] = {dict_version(globals_), plain ? dict_version(builtins_) : 0};
  const bool same = versions[0] && versions[1] && std::equal(versions, versions + 2, node.versions);
  PyObject* value = same ? node.known.function : PyDict_GetItemWithError(globals_, name);
  if (!value && plain) value = PyDict_GetItemWithError(builtins_, name);
  if (!value) refuse("a name without a value");
  std::copy_n(versions, 2, node.versions);
  node.known = {walk_, globals_, value};
  if (log_) log_->read(MemoRead::name, globals_, name, value);
  return {value};
}

WalkValue Walker::make_sequence(WalkResult::Kind kind, const WalkNode& node, Frame& frame) {
  WalkResult* made = make(kind);
  for (const WalkNode& part : node.parts) {
    const WalkValue value = evaluate(part, frame);
    made->items.push_back(value);
  }
  return {nullptr, made};
}

WalkValue Walker::collect(const WalkNode& node, Frame& frame) {
  WalkResult* made = make(WalkResult::list);
  depth_ += kLevelsOfComprehension;
  if (log_) log_->depth(depth_);
  if (depth_ > most_depth_) refuse("too many calls inside one another");
  iterate(node.parts[0], node.parts[1], frame, [&] {
    const auto passes = [&](const WalkNode& test) { return holds(test, frame); };
    if (!std::all_of(node.parts.begin() + 3, node.parts.end(), passes)) return Flow::next;
    const WalkValue value = evaluate(node.parts[2], frame);
    made->items.push_back(value);
    return Flow::next;
  });
  depth_ -= kLevelsOfComprehension;
  return {nullptr, made};
}

// list() of what a loop may run over.
WalkValue Walker::copy_of(const WalkNode& iterable, Frame& frame) {
  WalkResult* made = make(WalkResult::list);
  visit(iterable, frame, [&](WalkValue item) {
    made->items.push_back(item);
    return Flow::next;
  });
  return {nullptr, made};
}

// Has the body, which is run for each item, returned?
template <class F>
Walker::Flow Walker::iterate(const WalkNode& target, const WalkNode& iterable, Frame& frame, F&& body) {
  return visit(iterable, frame, [&](WalkValue item) {
    assign(target, item, frame);
    return body();
  });
}

template <class F>
Walker::Flow Walker::visit(const WalkNode& iterable, Frame& frame, F&& body) {
  Items items = items_of(iterable, frame);
  Flow flow = Flow::next;
  for (WalkValue item; flow != Flow::returned && flow != Flow::broken && next(items, &item);) {
    spend(1);
    flow = body(item);
  }
  return flow == Flow::returned ? flow : Flow::next;
}

Walker::Items Walker::items_of(const WalkNode& node, Frame& frame) {
  Items items;
  if (node.kind != WalkNode::iterator) {
    items.of = evaluate(node, frame);
    length(items.of);
    return items;
  }
  if (evaluate(node.parts[0], frame).object != reinterpret_cast<PyObject*>(kIterators[node.number]))
    refuse("a function that does more than record");
  if (node.number == WalkNode::range) return numbers(node, frame);
  for (size_t i = 1; i < node.parts.size(); ++i) items.parts.push_back(items_of(node.parts[i], frame));
  items.kind = node.number == WalkNode::zip ? Items::zip : Items::enumerate;
  if (node.number != WalkNode::reversed) return items;
  const WalkNode& of = node.parts[1];
  if (of.kind == WalkNode::iterator && of.number != WalkNode::range) refuse("reversed() of an iterator");
  Items back = items.parts[0];
  const size_t n = back.kind == Items::list ? length(back.of) : back.left;
  back.at += (static_cast<Py_ssize_t>(n) - 1) * back.step;
  back.step = -back.step;
  return back;
}

Walker::Items Walker::numbers(const WalkNode& range, Frame& frame) {
  Py_ssize_t bounds[3] = {0, 0, 1};
  const size_t n = range.parts.size() - 1;
  if (n < 1 || n > 3) refuse("range() of another number of arguments");
  for (size_t i = 0; i < n; ++i) {
    const WalkValue bound = evaluate(range.parts[1 + i], frame);
    if (!bound.object || !PyLong_CheckExact(bound.object)) refuse("an index that is no whole number");
    bounds[n == 1 ? 1 : i] = PyLong_AsSsize_t(bound.object);
    if (bounds[n == 1 ? 1 : i] == -1 && PyErr_Occurred()) refuse("an index out of range");
  }
  const auto [first, end, step] = bounds;
  constexpr Py_ssize_t kMost = PY_SSIZE_T_MAX / 4;
  if (step == 0 || std::max({first, end, step}) > kMost || std::min({first, end, step}) < -kMost)
    refuse("an index out of range");
  Items items;
  items.kind = Items::numbers;
  items.at = first;
  items.step = step;
  const Py_ssize_t way = step > 0 ? end - first : first - end, size = std::abs(step);
  items.left = way > 0 ? static_cast<size_t>((way - 1) / size + 1) : 0;
  return items;
}

// The next item, or false.
bool Walker::next(Items& items, WalkValue* item) {
  if (items.kind == Items::list) {
    if (items.at < 0 || items.at >= static_cast<Py_ssize_t>(length(items.of))) return false;
    *item = element(items.of, static_cast<size_t>(items.at));
    items.at += items.step;
    return true;
  }
  if (items.kind == Items::numbers) {
    if (items.left == 0) return false;
    --items.left;
    *item = keep_part(PyLong_FromSsize_t(items.at));
    items.at += items.step;
    return true;
  }
  WalkResult* tuple = make(WalkResult::tuple);
  if (items.kind == Items::enumerate) tuple->items.push_back(keep_part(PyLong_FromSsize_t(items.at++)));
  for (Items& part : items.parts) {
    if (!next(part, item)) return false;
    tuple->items.push_back(*item);
  }
  *item = {nullptr, tuple};
  return !items.parts.empty();
}

}  // namespace dyc::py
