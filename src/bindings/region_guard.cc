#include "bindings/region_guard.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "bindings/builders.h"
#include "bindings/python_compat.h"

namespace dyc::py {

namespace {

// For expressions: parameters hold more.
bool holds_parameters(PyObject* o) {
  if (Py_TYPE(o)->tp_basicsize == sizeof(PyExpression)) [[likely]]
    return false;
  return is_parameters(o);
}

// Is the expression the parameters with this number?
bool has_uid(PyObject* o, uint32_t uid) {
  const auto* storage = holds_parameters(o) ? reinterpret_cast<PyParameters*>(o)->storage : nullptr;
  return storage && (*storage)->uid == uid;
}

// For exact built-in types, whose comparison runs no code of the script.
bool equal_values(PyObject* a, PyObject* b) {
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (is_float(a)) {
    const double x = PyFloat_AsDouble(a), y = PyFloat_AsDouble(b);
    return std::memcmp(&x, &y, sizeof x) == 0;
  }
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

}  // namespace

bool is_numpy_number(PyObject* o) {
  struct Types {
    Types() {
      const Owned numpy = Owned::steal(PyImport_ImportModule("numpy"));
      for (const char* name : {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                               "longlong", "ulonglong", "float16", "float32", "float64"}) {
        const Owned type = Owned::steal(numpy ? PyObject_GetAttrString(numpy.get(), name) : nullptr);
        if (type) all.push_back(reinterpret_cast<PyTypeObject*>(type.get()));  // which last for ever
        else PyErr_Clear();
      }
      std::sort(all.begin(), all.end());
    }
    std::vector<const PyTypeObject*> all;
  };
  static const Types types;
  const PyTypeObject* const type = Py_TYPE(o);
  if (types.all.empty() || type < types.all.front() || type > types.all.back()) return false;
  return std::find(types.all.begin(), types.all.end(), type) != types.all.end();
}

bool as_index(PyObject* value, uint32_t* index) {
  if (!PyLong_CheckExact(value) && !(is_numpy_number(value) && PyIndex_Check(value))) return false;
  const Py_ssize_t v = PyNumber_AsSsize_t(value, nullptr);  // of larger ones: the largest
  if (v < 0 || v >= Py_ssize_t{1} << 31) return false;
  *index = static_cast<uint32_t>(v);
  return true;
}

bool has_plain_keys(PyObject* dict) {
  static auto* const known = new std::unordered_map<PyObject*, uint64_t>;
  const Py_ssize_t n = PyDict_GET_SIZE(dict);
  const uint64_t version = n > tuning::kSmallDict ? dict_version(dict) : 0;
  if (version) {
    const auto found = known->find(dict);
    if (found != known->end() && found->second == version) return true;
  }
  if (n > tuning::kLargeDict && !version) return false;
  Py_ssize_t at = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &at, &key, &value))
    if (PyType_HasFeature(Py_TYPE(key), Py_TPFLAGS_HEAPTYPE)) return false;
  if (!version) return true;
  if (known->size() >= tuning::kWatchedDicts) known->clear();
  (*known)[dict] = version;
  return true;
}

// OrderedDict iterates in a way of its own over the same keys.
bool is_derived_dict(PyObject* o) {
  struct Method {
    explicit Method(const char* text) : name(PyUnicode_InternFromString(text)) {}
    PyObject *name, *of_dict = _PyType_Lookup(&PyDict_Type, name),
                    *of_ordered = _PyType_Lookup(&PyODict_Type, name);
  };
  static const Method methods[] = {Method("__getitem__"), Method("__contains__"), Method("__len__"),
                                   Method("__bool__"),    Method("__iter__"),     Method("__reversed__")};
  return std::all_of(std::begin(methods), std::end(methods), [o](const Method& m) {
    PyObject* found = _PyType_Lookup(Py_TYPE(o), m.name);
    return found == m.of_dict || found == m.of_ordered;
  });
}

CapturedInputs::Repeated CapturedInputs::repeated() const {
  Repeated r;
  bool any = false;
  first_equals(inputs, &r.first);
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    any |= r.first[i] != i;
    r.same_object.push_back(objects[i] == objects[r.first[i]]);
  }
  return any ? r : Repeated();
}

bool is_constant(PyObject* value, PyObject* constant) {
  return value == constant || (Py_TYPE(value) == Py_TYPE(constant) && value != Py_None &&
                               !PyBool_Check(value) && equal_values(value, constant));
}

bool frees_quietly(PyObject* o, ptrdiff_t most) {
  PyTypeObject* type = Py_TYPE(o);
  if (type->tp_dealloc == ExpressionType.tp_dealloc) return true;  // not of a class of the script
  if (type == &RnnStateType || is_plain_value(o)) return true;
  if (!is_sequence(o) || Py_SIZE(o) > most) return false;
  PyObject** parts = PySequence_Fast_ITEMS(o);
  return std::all_of(parts, parts + Py_SIZE(o), [](PyObject* part) { return frees_quietly(part, 0); });
}

// ---------------------------------------------------------------- states

Guard Guard::of_state(PyObject* value) {
  Guard g;
  const auto* s = reinterpret_cast<const PyRnnState*>(value);
  Engine& e = engine();
  std::vector<NodeId> nodes;
  if (!s->b || !is_current(s, e) || !s->b->core->reads(e, s->step, &nodes)) return g;
  g.kind = state;
  g.number = s->b->core->number;
  g.settings = s->b->core->settings(e);
  g.start = s->step == RnnBuilder::kStart;
  first_equals(nodes, &g.equals);
  return g;
}

bool Guard::check_state(PyObject* value, CapturedInputs* captured) const {
  if (Py_TYPE(value) != &RnnStateType) return false;
  const auto* s = reinterpret_cast<const PyRnnState*>(value);
  Engine& e = engine();
  if (!s->b || !is_current(s, e) || s->b->core->number != number) return false;
  if (start != (s->step == RnnBuilder::kStart) || settings != s->b->core->settings(e)) return false;
  std::vector<NodeId>& nodes = captured->nodes;
  nodes.clear();
  if (!s->b->core->reads(e, s->step, &nodes) || nodes.size() != equals.size()) return false;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] >= e.graph.size() || first_equal(nodes, i) != equals[i]) return false;
    if (equals[i] != i) continue;
    captured->inputs.push_back(nodes[i]);
    captured->objects.push_back(nullptr);
  }
  return true;
}

void Guard::refer_to(PyObject* value) {
  weak = PyType_SUPPORTS_WEAKREFS(Py_TYPE(value));
  object = weak ? Owned::steal(PyWeakref_NewRef(value, nullptr)) : Owned(value);
  if (!object) throw PythonError();
}

bool Guard::refers_to(PyObject* value) const {
  if (!weak) return value == object.get();
  // A dead weak reference reads as None, which a value may be, too.
  return value != Py_None && value == reinterpret_cast<PyWeakReference*>(object.get())->wr_object;
}

namespace {

// The defaults, with an ellipsis in place of those that are not constants: the region does not use them.
Owned constants_of(PyObject* defaults) {
  if (!defaults) return {};
  Owned all = Owned::steal(PyTuple_New(PyTuple_GET_SIZE(defaults)));
  if (!all) throw PythonError();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(defaults); ++i) {
    PyObject* each = PyTuple_GET_ITEM(defaults, i);
    PyTuple_SET_ITEM(all.get(), i, Owned(is_python_value(each) ? each : Py_Ellipsis).release());
  }
  return all;
}

bool are_constants(PyObject* known, PyObject* defaults) {
  const Py_ssize_t n = defaults ? PyTuple_GET_SIZE(defaults) : 0;
  if (n != (known ? PyTuple_GET_SIZE(known) : 0)) return false;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* each = PyTuple_GET_ITEM(known, i);
    if (each != Py_Ellipsis && each != PyTuple_GET_ITEM(defaults, i)) return false;
  }
  return true;
}

}  // namespace

void FunctionBody::note(PyObject* function) {
  if (!PyFunction_Check(function)) return;
  code = Owned(PyFunction_GET_CODE(function));
  defaults = constants_of(PyFunction_GET_DEFAULTS(function));
  PyObject* named = PyFunction_GET_KW_DEFAULTS(function);
  by_name = named != nullptr;
  by_name_version = named ? dict_version(named) : 0;
}

// Keeps alive neither the function nor expressions of earlier graphs in its closure.
Guard Guard::of_function(PyObject* function) {
  Guard g;
  if (!PyFunction_Check(function) || PyFunction_GET_KW_DEFAULTS(function)) return g;
  g.kind = Guard::function;
  g.body.note(function);
  return g;
}

bool FunctionBody::matches(PyObject* function) const {
  if (!code) return true;
  PyObject* named = PyFunction_GET_KW_DEFAULTS(function);
  if (PyFunction_GET_CODE(function) != code.get() || by_name != (named != nullptr) ||
      !are_constants(defaults.get(), PyFunction_GET_DEFAULTS(function)))
    return false;
  return !by_name || (by_name_version && dict_version(named) == by_name_version);
}

bool Guard::check_items(PyObject* value, const SourceValues& values, const Graph& graph,
                        CapturedInputs* captured) const {
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != object.get() ||
      static_cast<size_t>(size_of(value)) != parts.size())
    return false;
  if (PyDict_CheckExact(value)) return check_dict(value, values, graph, captured);
  if (std::find(values.appended.begin(), values.appended.end(), value) != values.appended.end()) return false;
  for (size_t i = 0; i < parts.size(); ++i)
    if (!parts[i].check(PySequence_Fast_ITEMS(value)[i], values, graph, captured)) return false;
  return true;
}

bool Guard::check_dict(PyObject* value, const SourceValues& values, const Graph& graph,
                       CapturedInputs* captured) const {
  Py_ssize_t at = 0;
  PyObject *key, *part;
  for (size_t i = 0; PyDict_Next(value, &at, &key, &part); ++i) {
    PyObject* known = PyTuple_GET_ITEM(keys.get(), static_cast<Py_ssize_t>(i));
    if (key != known && !equal_values(key, known)) return false;
    if (!parts[i].check(part, values, graph, captured)) return false;
  }
  return true;
}

bool Guard::check_filled(PyObject* value, const SourceValues& values) const {
  if (!is_container(value)) return false;
  if (std::find(values.appended.begin(), values.appended.end(), value) != values.appended.end()) return false;
  return (size_of(value) != 0) == (number != 0);
}

bool Guard::check(PyObject* value, const SourceValues& values, const Graph& graph,
                  CapturedInputs* captured) const {
  if (kind == none) return true;
  if (!value) return false;
  switch (kind) {
    case same:
      return refers_to(value) && body.matches(value);
    case function:
      return PyFunction_Check(value) && body.matches(value);
    case parameters:
      return reinterpret_cast<PyObject*>(Py_TYPE(value)) == object.get() && has_uid(value, number);
    case parameter: {
      if (!is_expression(value) || holds_parameters(value)) return false;
      const auto* e = reinterpret_cast<const PyExpression*>(value);
      return is_current(e, graph) && graph.is_parameter(e->id) && graph.sig(e->id).attr(0) == number &&
             graph.sig(e->id).attr(1) == settings;
    }
    case equal:
      return value == object.get() || equal_values(value, object.get());
    case placeholder: {
      uint32_t index;
      if (!as_index(value, &index)) return false;
      captured->placeholders.push_back(index);
      return true;
    }
    case index: {
      uint32_t found;
      return as_index(value, &found) && found == number;
    }
    case expression: {
      if (!is_expression(value)) return false;
      const auto* e = reinterpret_cast<const PyExpression*>(value);
      // Parameters have no node of their own: they are no inputs.
      if (!is_current(e, graph) || holds_parameters(value)) return false;
      captured->inputs.push_back(e->id);
      captured->objects.push_back(value);
      return true;
    }
    case method:
      return PyMethod_Check(value) && refers_to(PyMethod_GET_FUNCTION(value)) &&
             PyMethod_GET_SELF(value) == values.all[number] && body.matches(PyMethod_GET_FUNCTION(value));
    case items:
      return check_items(value, values, graph, captured);
    case filled:
      return check_filled(value, values);
    case state:
      return check_state(value, captured);
    case none:
      break;
  }
  return true;
}

Guard Guard::of_truth(PyObject* container) {
  Guard g;
  g.kind = filled;
  g.number = size_of(container) != 0;
  return g;
}

// Of a dict: its keys must be numbers or text, and stay in their order.
Guard Guard::of_items(PyObject* value, const std::vector<PyObject*>& values, uint32_t* budget) {
  Guard g;
  const bool dict = PyDict_CheckExact(value);
  if (dict) {
    g.keys = Owned::steal(PyTuple_New(PyDict_GET_SIZE(value)));
    if (!g.keys) throw PythonError();
  }
  Py_ssize_t at = 0;
  PyObject *key, *part;
  for (Py_ssize_t i = 0; i < (dict ? PyDict_GET_SIZE(value) : Py_SIZE(value)); ++i) {
    if (dict) {
      if (!PyDict_Next(value, &at, &key, &part)) return Guard();
      if (!PyLong_CheckExact(key) && !PyUnicode_CheckExact(key)) return Guard();
      PyTuple_SET_ITEM(g.keys.get(), i, Owned(key).release());
    } else {
      part = PySequence_Fast_ITEMS(value)[i];
    }
    g.parts.push_back(of(part, values, budget));
    if (g.parts.back().kind == none) return Guard();
  }
  g.kind = items;
  g.object = Owned(reinterpret_cast<PyObject*>(Py_TYPE(value)));
  return g;
}

Guard Guard::of(PyObject* value, const std::vector<PyObject*>& values, uint32_t* budget) {
  Guard g;
  if (*budget == 0) return g;
  --*budget;
  const bool fixed = value == Py_None || PyBool_Check(value) || PyType_Check(value) ||
                     PyFunction_Check(value) || PyCFunction_Check(value);
  if (Py_TYPE(value) == &RnnStateType) return of_state(value);
  if (is_expression(value)) {
    const Graph& graph = engine().graph;
    const auto* e = reinterpret_cast<const PyExpression*>(value);
    g.kind = expression;
    if (holds_parameters(value)) {
      g.kind = parameters;
      g.number = storage_in(value)->uid;
      g.object = Owned(reinterpret_cast<PyObject*>(Py_TYPE(value)));
    } else if (is_current(e, graph) && graph.is_parameter(e->id)) {
      g.kind = parameter;
      g.number = graph.sig(e->id).attr(0);
      g.settings = graph.sig(e->id).attr(1);
    }
  } else if (fixed) {
    g.kind = same;
  } else if (is_plain_value(value)) {
    g.kind = equal;
  } else if (PyMethod_Check(value)) {
    const auto self = std::find(values.begin(), values.end(), PyMethod_GET_SELF(value));
    if (self == values.end()) return g;
    g.kind = method;
    g.number = static_cast<uint32_t>(self - values.begin());
    g.refer_to(PyMethod_GET_FUNCTION(value));
    g.body.note(PyMethod_GET_FUNCTION(value));
    return g;
  } else if (is_container(value)) {
    return of_items(value, values, budget);
  }
  if (g.kind == equal) g.object = Owned(value);
  if (g.kind == same) {
    g.refer_to(value);
    g.body.note(value);
  }
  return g;
}

}  // namespace dyc::py
