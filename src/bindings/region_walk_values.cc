// Values in a walk: tests, items and attributes, read without running code of the script.
#include <structmember.h>

#include "bindings/python_compat.h"
#include "bindings/region_walk_log.h"
#include "bindings/region_walk.h"

namespace dyc::py {

namespace {

// Is this what a class has for a name of its __slots__?
bool is_slot(PyObject* found) {
  if (Py_TYPE(found) != &PyMemberDescr_Type) return false;
  const PyMemberDef& member = *reinterpret_cast<PyMemberDescrObject*>(found)->d_member;
  return member.type == T_OBJECT_EX && member.flags == 0;
}

bool compare_numbers(uint32_t how, Py_ssize_t x, Py_ssize_t y) {
  switch (how) {
    case Py_LT:
      return x < y;
    case Py_LE:
      return x <= y;
    case Py_EQ:
      return x == y;
    case Py_NE:
      return x != y;
    case Py_GT:
      return x > y;
    default:
      return x >= y;
  }
}

}  // namespace

uint32_t slot_offset(PyTypeObject* type, PyObject* name) {
  PyObject* found = _PyType_Lookup(type, name);
  if (!found || !is_slot(found)) return 0;
  return static_cast<uint32_t>(reinterpret_cast<PyMemberDescrObject*>(found)->d_member->offset);
}

// Of a node that decides a branch. Its value is not made.
bool Walker::holds(const WalkNode& node, Frame& frame) {
  if (node.kind == WalkNode::negation) return !holds(node.parts[0], frame);
  if (node.kind != WalkNode::all && node.kind != WalkNode::any) return truth(evaluate(node, frame));
  const bool any = node.kind == WalkNode::any;
  for (const WalkNode& part : node.parts)
    if (holds(part, frame) == any) return any;
  return !any;
}

bool Walker::other_truth(WalkValue value) {
  if (value.result) return true;  // an expression
  PyObject* o = value.object;
  if (o == Py_None) return false;
  if (is_sequence(o) || is_dict(o)) return length(value) != 0;
  if (is_plain_value(o)) return PyObject_IsTrue(o) == 1;
  if (is_node(value) && Py_TYPE(o) != &LookupParametersType) return true;
  const PyTypeObject* type = Py_TYPE(o);
  const bool asks = (type->tp_as_number && type->tp_as_number->nb_bool) ||
                    (type->tp_as_mapping && type->tp_as_mapping->mp_length) ||
                    (type->tp_as_sequence && type->tp_as_sequence->sq_length);
  if (asks) refuse("the truth of an object that computes it");
  return true;
}

size_t Walker::other_length(WalkValue value) {
  if (value.result) refuse("the length of something else than a list");
  PyObject* o = value.object;
  if (is_sequence(o)) {
    note_read(o);
    if (log_) log_->length(o);
    return static_cast<size_t>(Py_SIZE(o));
  }
  if (is_dict(o)) {
    if (log_) log_->length(o);
    return static_cast<size_t>(PyDict_GET_SIZE(o));
  }
  if (!PyUnicode_CheckExact(o)) refuse("the length of something else than a list");
  return static_cast<size_t>(PyUnicode_GET_LENGTH(o));
}

WalkValue Walker::item(WalkValue base, WalkValue key) {
  if (base.result && base.result->is_sequence()) return element(base, index(base, key));
  if (!key.object) refuse("an index that is a result");
  if (base.object && is_dict(base.object)) {
    if (!PyLong_CheckExact(key.object) && !PyUnicode_CheckExact(key.object)) refuse("a key of another kind");
    if (!has_plain_keys(base.object)) refuse("keys that are no numbers or text");
    if (log_) log_->read(MemoRead::keys, base.object);
    PyObject* value = PyDict_GetItemWithError(base.object, key.object);
    if (!value) refuse("a missing key");
    if (log_) log_->read(MemoRead::item, base.object, key.object, value);
    return {value};
  }
  const bool rows = base.object && Py_TYPE(base.object) == &LookupParametersType;
  const bool node =
      base.object ? Py_TYPE(base.object) == &ExpressionType : base.result->kind == WalkResult::recorded;
  if (rows || node) return record_item(base, key);
  const bool items = !base.object || is_sequence(base.object) || PyUnicode_CheckExact(base.object);
  if (!items) refuse("an item of something else than a list");
  return element(base, index(base, key));
}

WalkValue Walker::character(WalkValue text, size_t i) {
  if (!text.object || !PyUnicode_CheckExact(text.object)) refuse("items of something else than a list");
  const auto at = static_cast<Py_ssize_t>(i);
  return keep_part(PyUnicode_Substring(text.object, at, at + 1));
}

size_t Walker::index(WalkValue base, WalkValue key) {
  if (!key.object || !PyLong_CheckExact(key.object)) refuse("an index that is no whole number");
  const auto n = static_cast<Py_ssize_t>(length(base));
  Py_ssize_t i;
  if (!as_short_int(key, &i)) {
    i = PyLong_AsSsize_t(key.object);
    if (i == -1 && PyErr_Occurred()) refuse("an index out of range");
  }
  if (i < 0) i += n;
  if (i < 0 || i >= n) refuse("an index out of range");
  return static_cast<size_t>(i);
}

WalkValue Walker::slice(WalkValue base, WalkValue from, WalkValue to, Py_ssize_t step) {
  if (base.object && !is_sequence(base.object)) refuse("a part of something else than a list");
  Py_ssize_t first = step > 0 ? 0 : PY_SSIZE_T_MAX, end = step > 0 ? PY_SSIZE_T_MAX : PY_SSIZE_T_MIN;
  for (const auto& [bound, value] : {std::pair{from, &first}, {to, &end}}) {
    if (bound.object == Py_None) continue;
    if (!bound.object || !PyLong_CheckExact(bound.object)) refuse("an index that is no whole number");
    *value = PyLong_AsSsize_t(bound.object);
    if (PyErr_Occurred()) refuse("an index out of range");
  }
  const auto length_of_base = static_cast<Py_ssize_t>(length(base));
  const Py_ssize_t n = PySlice_AdjustIndices(length_of_base, &first, &end, step);
  const bool tuple = base.object ? PyTuple_CheckExact(base.object) : base.result->kind == WalkResult::tuple;
  if (tuple && step == 1 && n == length_of_base) return base;  // as Python
  spend(static_cast<size_t>(n));
  WalkResult* made = make(tuple ? WalkResult::tuple : WalkResult::list);
  for (Py_ssize_t i = 0; i < n; ++i)
    made->items.push_back(element(base, static_cast<size_t>(first + i * step)));
  return {nullptr, made};
}

bool Walker::contains(WalkValue container, WalkValue value) {
  if (!value.object || !is_python_value(value.object))
    refuse("a search for something else than a number or text");
  if (container.object && is_dict(container.object)) {
    if (!has_plain_keys(container.object)) refuse("keys that are no numbers or text");
    if (log_) log_->read(MemoRead::keys, container.object);
    PyObject* found = PyDict_GetItemWithError(container.object, value.object);
    if (log_) log_->read(MemoRead::item, container.object, value.object, found);
    return found != nullptr;
  }
  if (container.object && !is_sequence(container.object)) refuse("a search in something else than a list");
  for (size_t i = 0; i < length(container); ++i)
    if (element(container, i) == value || truth(compare(Py_EQ, element(container, i), value))) return true;
  return false;
}

// get() of a dict.
WalkValue Walker::get_item(WalkValue dict, const WalkNode& node, Frame& frame) {
  const size_t n = node.parts.size() - 1;
  if (PyTuple_GET_SIZE(node.object.get()) != 0 || n < 1 || n > 2) refuse("get() with other arguments");
  if (!PyDict_CheckExact(dict.object)) {
    PyObject *name = node.parts[0].object.get(), *own = _PyType_Lookup(&PyDict_Type, name);
    if (_PyType_Lookup(Py_TYPE(dict.object), name) != own) refuse("a get() of its own");
    method_of(dict.object, name, own);
  }
  const WalkValue key = evaluate(node.parts[1], frame);
  const WalkValue otherwise = n == 2 ? evaluate(node.parts[2], frame) : WalkValue{Py_None};
  return contains(dict, key) ? WalkValue{PyDict_GetItemWithError(dict.object, key.object)} : otherwise;
}

WalkValue Walker::compare(uint32_t how, WalkValue a, WalkValue b) {
  Py_ssize_t x, y;
  if (how < WalkNode::is && as_short_int(a, &x) && as_short_int(b, &y))
    return {compare_numbers(how, x, y) ? Py_True : Py_False};
  if (how == WalkNode::is || how == WalkNode::is_not) {
    // Such an object is never one that the walk makes in the place of an equal one.
    const auto single = [](WalkValue v) {
      if (!v.object || v.object == Py_None) return v.object != nullptr;
      return PyBool_Check(v.object) || PyType_HasFeature(Py_TYPE(v.object), Py_TPFLAGS_HEAPTYPE);
    };
    if (!single(a) && !single(b)) refuse("whether two objects are the same");
    return {(a == b) == (how == WalkNode::is) ? Py_True : Py_False};
  }
  if (how == WalkNode::in || how == WalkNode::not_in)
    return {contains(b, a) == (how == WalkNode::in) ? Py_True : Py_False};
  if (!a.object || !b.object || !is_python_value(a.object) || !is_python_value(b.object))
    refuse("a comparison of objects");
  return keep_part(PyObject_RichCompare(a.object, b.object, static_cast<int>(how)));
}

WalkValue Walker::evaluate_attribute(const WalkNode& node, Frame& frame) {
  const WalkValue base = evaluate(node.parts[0], frame);
  const WalkNode::Known& known = node.value;
  if (base.object && known.of == base.object && known.walk == walk_ && assigned_.is_empty())
    return {known.function};
  return attribute(node, base);
}

WalkValue Walker::evaluate_item(const WalkNode& node, Frame& frame) {
  const WalkValue base = evaluate(node.parts[0], frame);
  return item(base, evaluate(node.parts[1], frame));
}

WalkValue Walker::evaluate_slice(const WalkNode& node, Frame& frame) {
  const WalkValue base = evaluate(node.parts[0], frame), from = evaluate(node.parts[1], frame);
  return slice(base, from, evaluate(node.parts[2], frame), static_cast<int32_t>(node.number));
}

WalkValue Walker::evaluate_logic(const WalkNode& node, Frame& frame) {
  if (node.kind == WalkNode::negation) return {holds(node.parts[0], frame) ? Py_False : Py_True};
  for (size_t i = 0;; ++i) {
    const WalkValue value = evaluate(node.parts[i], frame);
    if (i + 1 == node.parts.size() || truth(value) == (node.kind == WalkNode::any)) return value;
  }
}

WalkValue Walker::evaluate_comparison(const WalkNode& node, Frame& frame) {
  const WalkValue a = evaluate(node.parts[0], frame);
  return compare(node.number, a, evaluate(node.parts[1], frame));
}

WalkValue Walker::evaluate_conditional(const WalkNode& node, Frame& frame) {
  return evaluate(node.parts[holds(node.parts[0], frame) ? 1 : 2], frame);
}

WalkValue Walker::evaluate_arithmetic(const WalkNode& node, Frame& frame) {
  const WalkValue a = evaluate(node.parts[0], frame);
  return arithmetic(node.number, a, node.parts.size() > 1 ? evaluate(node.parts[1], frame) : WalkValue());
}

// ---------------------------------------------------------------- attributes

PyObject* Walker::read_module(PyObject* module, PyObject* name) {
  PyObject* value = PyDict_GetItemWithError(PyModule_GetDict(module), name);
  if (!value) refuse("a name that the module does not have");
  if (log_) log_->read(MemoRead::item, module, name, value);
  return value;
}

WalkValue Walker::attribute(const WalkNode& node, WalkValue base) {
  PyObject* name = node.object.get();
  if (!base.object) refuse("an attribute of a result");
  if (const WalkValue* assigned = assigned_.find(base.object, name)) return *assigned;
  if (node.value.of == base.object && node.value.walk == walk_) return {node.value.function};
  if (PyModule_CheckExact(base.object)) return {read_module(base.object, name)};
  PyTypeObject* type = Py_TYPE(base.object);
  WalkNode::Known& known = node.known;
  if (known.walk != walk_ || known.of != type) {
    if (type->tp_getattro != PyObject_GenericGetAttr) refuse("a class that looks attributes up itself");
    PyObject *found, *getter = nullptr;
    if (is_computed(type, name, &found) && Py_TYPE(found) != &PyStaticMethod_Type) {
      if (Py_TYPE(found) != &PyProperty_Type) refuse("an attribute that its class computes");
      getter = keep(PyObject_GetAttrString(found, "fget")).object;
      if (!PyFunction_Check(getter)) refuse("a property that is no plain function");
    }
    known = {walk_, type, getter};
  }
  if (known.function) {
    if (log_) log_->read(MemoRead::of_class, base.object, name, known.function);
    return property_value(known.function, base);
  }
  // No code runs that could change it during the walk.
  node.value = {walk_, base.object, keep_part(PyObject_GetAttr(base.object, name)).object};
  if (log_) log_->read(MemoRead::attribute, base.object, name, node.value.function);
  return {node.value.function};
}

// The value that is replaced is released when the walk ends, which is later than in Python.
void Walker::may_replace(PyObject* base, PyObject* name) {
  const Owned old = Owned::steal(attribute_or_null(base, name));
  if (old && Py_REFCNT(old.get()) <= 2 && !frees_quietly(old.get(), tuning::kLargeDict))
    refuse("an attribute whose old value may run code when it is released");
}

// The object is one whose attributes Python itself stores.
void Walker::store_attribute(const WalkNode& target, WalkValue value, Frame& frame) {
  PyObject* base = evaluate(target.parts[0], frame).object;
  PyObject* name = target.object.get();
  if (!base) refuse("an attribute of a result");
  PyTypeObject* type = Py_TYPE(base);
  WalkNode::Known& known = target.known;
  if (known.walk != walk_ || known.of != type) {
    if (type->tp_setattro != PyObject_GenericSetAttr || type->tp_getattro != PyObject_GenericGetAttr)
      refuse("a class that stores attributes itself");
    PyObject* found = _PyType_Lookup(type, name);
    const bool slot = found && is_slot(found);
    const bool computed = found && (Py_TYPE(found)->tp_descr_get || Py_TYPE(found)->tp_descr_set);
    if (!slot && (computed || type->tp_dictoffset == 0)) refuse("an attribute that its class computes");
    known = {walk_, type, nullptr};
  }
  if (!assigned_.find(base, name) && !objects_.contains(base)) may_replace(base, name);
  assigned_.set(base, name, value);
}

// Where the entry of this attribute is, or would be.
size_t AssignedAttributes::slot(PyObject* object, PyObject* name) const {
  const size_t mask = table_.size() - 1;
  size_t at = (hash(object) * 0x9E3779B1u + hash(name)) & mask;
  for (; table_[at] != kNone; at = (at + 1) & mask)
    if (entries_[table_[at]].object.get() == object && entries_[table_[at]].name == name) break;
  return at;
}

const WalkValue* AssignedAttributes::find_entry(PyObject* object, PyObject* name) const {
  const uint32_t entry = table_[slot(object, name)];
  return entry == kNone ? nullptr : &entries_[entry].value;
}

void AssignedAttributes::set(PyObject* object, PyObject* name, WalkValue value) {
  ++assignments_;
  names_ |= bit(name);
  if (2 * (entries_.size() + 1) > table_.size()) {
    table_.assign(std::max<size_t>(64, 2 * table_.size()), kNone);
    for (uint32_t i = 0; i < entries_.size(); ++i)
      table_[slot(entries_[i].object.get(), entries_[i].name)] = i;
  }
  uint32_t& entry = table_[slot(object, name)];
  if (entry != kNone) {
    entries_[entry].value = value;
    return;
  }
  entry = static_cast<uint32_t>(entries_.size());
  entries_.push_back({Owned(object), name, value});
}

std::vector<AssignedAttributes::Entry> AssignedAttributes::take() {
  if (!entries_.empty()) table_.clear();
  names_ = 0;
  return std::exchange(entries_, {});
}

WalkValue Walker::property_value(PyObject* function, WalkValue self) {
  static const WalkNode* const no_arguments = [] {
    auto* node = new WalkNode;
    node->kind = WalkNode::call;
    node->object = Owned::steal(PyTuple_New(0));
    node->parts.resize(1);
    return node;
  }();
  Frame frame{nullptr, {}};
  return call_function(function, self, *no_arguments, frame);
}

}  // namespace dyc::py
