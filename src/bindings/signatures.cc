#include "bindings/signatures.h"

#include <pybind11/pybind11.h>

#include <cstring>
#include <deque>
#include <exception>
#include <string>
#include <string_view>

#include "bindings/python_compat.h"

namespace dyc::py {

const char* kept(std::string s) {
  static std::deque<std::string> all;
  all.push_back(std::move(s));
  return all.back().c_str();
}

namespace {

constexpr std::string_view kEnd = "\n--\n\n";

// Position of the parenthesis that closes the one at `open`; npos if there is none.
size_t closing(std::string_view s, size_t open) {
  int depth = 0;
  char quote = 0;
  for (size_t i = open; i < s.size(); ++i) {
    const char c = s[i];
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if ((c == ')' || c == ']' || c == '}') && --depth == 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

struct SignatureParts {
  std::string_view arguments, text;
  bool found = false;
};

// "name(arguments): text", "name(arguments)\n--\n\ntext", "name(arguments) -> R\n\ntext", or text alone.
SignatureParts parts_of(std::string_view name, std::string_view doc) {
  if (doc.substr(0, name.size()) != name || doc.substr(name.size(), 1) != "(") return {{}, doc};
  const size_t end = closing(doc, name.size());
  if (end == std::string_view::npos) return {{}, doc};
  SignatureParts p{doc.substr(name.size() + 1, end - name.size() - 1), doc.substr(end + 1), true};
  if (p.text.substr(0, 4) == " -> ") p.text.remove_prefix(std::min(p.text.find('\n'), p.text.size()));
  if (p.text.substr(0, kEnd.size()) == kEnd) p.text.remove_prefix(kEnd.size());
  const size_t start = p.text.find_first_not_of(": \n");
  p.text.remove_prefix(start == std::string_view::npos ? p.text.size() : start);
  return p;
}

std::string joined(std::string_view name, std::string_view self, std::string_view arguments,
                   std::string_view text) {
  std::string s(name);
  s += "(";
  if (arguments.substr(0, self.size()) != self || self.empty()) {
    s += self;
    if (!self.empty() && !arguments.empty()) s += ", ";
  }
  s.append(arguments).append(")").append(kEnd);
  const size_t start = s.size();
  s += text;
  const auto small = [&](size_t i) { return i < s.size() && s[i] >= 'a' && s[i] <= 'z'; };
  if (small(start) && small(start + 1)) s[start] = static_cast<char>(s[start] - 'a' + 'A');
  return s;
}

// "self: T, a: X = d" -> "self, a=d"
std::string without_types(std::string_view arguments) {
  std::string out;
  size_t begin = 0;
  while (begin < arguments.size()) {
    size_t end = begin;
    while (end < arguments.size() && arguments[end] != ',') {
      const bool opens = std::strchr("([{", arguments[end]);
      const size_t close = opens ? closing(arguments, end) : std::string_view::npos;
      end = close == std::string_view::npos ? end + 1 : close + 1;
    }
    std::string_view one = arguments.substr(begin, end - begin);
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    const size_t colon = one.find(':'), equals = one.find(" = ");
    if (!out.empty()) out += ", ";
    out += one.substr(0, std::min(colon, equals));
    if (equals != std::string_view::npos) out.append("=").append(one.substr(equals + 3));
    begin = end + 1;
  }
  return out;
}

void sign_pybind_function(PyObject* function) {
  if (!PyCFunction_Check(function)) return;
  PyMethodDef* m = reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  if (!m->ml_doc || std::strstr(m->ml_doc, "\n--\n\n")) return;
  const SignatureParts p = parts_of(m->ml_name, m->ml_doc);
  if (!p.found || p.text.substr(0, 10) == "Overloaded") return;
  const std::string text = joined(m->ml_name, "", without_types(p.arguments), p.text);
  char* copy = strdup(text.c_str());  // pybind11 frees it with free()
  if (!copy) return;
  std::free(const_cast<char*>(m->ml_doc));
  m->ml_doc = copy;
}

// The arguments of a class are those of its __init__.
void sign_pybind_type(PyTypeObject* type, const char* init_doc) {
  const SignatureParts p = parts_of("__init__", init_doc);
  std::string arguments = without_types(p.arguments);
  if (!p.found || arguments.substr(0, 4) != "self") return;
  arguments.erase(0, std::min<size_t>(arguments.size(), arguments.size() > 4 ? 6 : 4));
  const char* dot = std::strrchr(type->tp_name, '.');
  const char* name = dot ? dot + 1 : type->tp_name;
  const std::string text = joined(name, "", arguments, parts_of(name, type->tp_doc ? type->tp_doc : "").text);
  replace_type_doc(type, text);
}

}  // namespace

void sign_methods(PyMethodDef* methods) {
  for (PyMethodDef* m = methods; m->ml_name; ++m) {
    const SignatureParts p = parts_of(m->ml_name, m->ml_doc ? m->ml_doc : "");
    if (p.found || m->ml_flags & METH_NOARGS)
      m->ml_doc = kept(joined(m->ml_name, "$self", p.arguments, p.text));
  }
}

void add_api_functions(PyObject* module, std::span<const ApiFunction> functions) {
  auto& methods = *new std::vector<PyMethodDef>;  // the functions refer to them for ever
  for (const ApiFunction& f : functions) {
    const char* name = kept(f.signature.substr(0, f.signature.find('(')));
    methods.push_back(fast_method(name, f.function, kept(f.signature + kEnd.data() + documentation(name))));
  }
  methods.push_back({nullptr, nullptr, 0, nullptr});
  if (PyModule_AddFunctions(module, methods.data()) < 0) throw PythonError();
}

void add_type(PyObject* module, PyTypeObject& type) {
  const char* name = std::strrchr(type.tp_name, '.') + 1;
  const SignatureParts p = parts_of(name, type.tp_doc ? type.tp_doc : "");
  if (p.found) type.tp_doc = kept(joined(name, "", p.arguments, p.text));
  if (type.tp_methods) sign_methods(type.tp_methods);
  if (PyType_Ready(&type) < 0) throw PythonError();
  Py_INCREF(&type);
  if (PyModule_AddObject(module, name, reinterpret_cast<PyObject*>(&type)) < 0) throw PythonError();
}

namespace {

newfunc make_instance;

PyObject* make_instance_or_error(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  try {
    return make_instance(type, args, kwargs);
  } catch (const std::exception&) {
    return PyErr_Format(PyExc_TypeError, "%s(): expected a class of DyNet, got one of its private base",
                        type->tp_name);
  }
}

// Classes that were made before have copies of this slot of their base.
void guard_instances(pybind11::handle type) {
  auto& slot = reinterpret_cast<PyTypeObject*>(type.ptr())->tp_new;
  if (slot != make_instance) return;
  slot = make_instance_or_error;
  for (const auto each : type.attr("__subclasses__")()) guard_instances(each);
}

}  // namespace

void guard_pybind_base() {
  const pybind11::handle base = pybind11::detail::get_internals().instance_base;
  const newfunc now = reinterpret_cast<PyTypeObject*>(base.ptr())->tp_new;
  if (now == make_instance_or_error) return;
  make_instance = now;
  guard_instances(base);
}

void sign_pybind_classes(PyObject* module) {
  PyTypeObject* meta = pybind11::detail::get_internals().default_metaclass;
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(PyModule_GetDict(module), &at, &name, &value);) {
    if (!PyType_IsSubtype(Py_TYPE(value), meta)) continue;  // builders have a metaclass of their own
    auto* type = reinterpret_cast<PyTypeObject*>(value);
    PyObject *key, *member;
    for (Py_ssize_t i = 0; PyDict_Next(type->tp_dict, &i, &key, &member);) {
      PyObject* function = PyInstanceMethod_Check(member) ? PyInstanceMethod_GET_FUNCTION(member) : member;
      if (Py_TYPE(member) == &PyClassMethod_Type) {
        const auto wrapped = pybind11::handle(member).attr("__func__").cast<pybind11::object>();
        sign_pybind_function(wrapped.ptr());
        continue;
      }
      if (PyCFunction_Check(function) && PyUnicode_CompareWithASCIIString(key, "__init__") == 0)
        sign_pybind_type(type, reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_doc);
      sign_pybind_function(function);
    }
    PyType_Modified(type);
  }
}

}  // namespace dyc::py
