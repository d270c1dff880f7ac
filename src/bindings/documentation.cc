// Documentation of classes and methods. Their signatures stay where they are declared.
#include "bindings/documentation.h"

#include <pybind11/pybind11.h>

#include <cstring>
#include <string>
#include <unordered_map>

#include "bindings/signatures.h"

namespace dyc::py {

namespace {

#define DOC(name, text) {name, text},
const DocText entries[] = {
#include "bindings/docs/builders.inc"
#include "bindings/docs/expression.inc"
#include "bindings/docs/initialisers.inc"
#include "bindings/docs/lookups.inc"
#include "bindings/docs/model.inc"
#include "bindings/docs/parameters.inc"
#include "bindings/docs/states.inc"
#include "bindings/docs/trainers.inc"
};
#undef DOC

using Texts = std::unordered_map<std::string, const char*>;

constexpr const char* kEnd = "\n--\n\n";

// "name(arguments)" at the start of a documentation, or nothing. pybind11's carries types and a result.
std::string signature(const std::string& name, const std::string& doc, bool typed) {
  if (const size_t end = doc.find(kEnd); end != std::string::npos) return doc.substr(0, end) + kEnd;
  if (doc.compare(0, name.size() + 1, name + "(") != 0) return "";
  if (typed) return doc.substr(0, doc.find('\n')) + "\n\n";
  int depth = 0;
  for (size_t i = name.size(); i < doc.size(); ++i) {
    if (doc[i] == '(') ++depth;
    if (doc[i] == ')' && --depth == 0) return doc.substr(0, i + 1) + kEnd;
  }
  return "";
}

const char* short_name(const PyTypeObject* type) {
  const char* dot = std::strrchr(type->tp_name, '.');
  return dot ? dot + 1 : type->tp_name;
}

// Text of an attribute of a class: its own, or that of a class it is derived from.
const char* find(const Texts& texts, PyTypeObject* type, const std::string& attribute) {
  for (; type; type = type->tp_base) {
    const auto at = texts.find(std::string(short_name(type)) + "." + attribute);
    if (at != texts.end()) return at->second;
  }
  return nullptr;
}

void document_function(PyMethodDef* m, const char* text, bool by_pybind) {
  const std::string old = m->ml_doc ? m->ml_doc : "";
  std::string head = signature(m->ml_name, old, by_pybind);
  if (head.empty() && m->ml_flags & METH_NOARGS) head = std::string(m->ml_name) + "()" + kEnd;
  if (!by_pybind) {
    m->ml_doc = kept(head + text);
  } else if (char* copy = strdup((head + text).c_str())) {  // pybind11 frees it with free()
    std::free(const_cast<char*>(m->ml_doc));
    m->ml_doc = copy;
  }
}

void document_attribute(PyObject* attribute, const char* text) {
  if (Py_TYPE(attribute) == &PyMethodDescr_Type) {
    document_function(reinterpret_cast<PyMethodDescrObject*>(attribute)->d_method, text, false);
  } else if (Py_TYPE(attribute) == &PyGetSetDescr_Type) {
    reinterpret_cast<PyGetSetDescrObject*>(attribute)->d_getset->doc = text;
  } else if (PyInstanceMethod_Check(attribute)) {
    PyObject* function = PyInstanceMethod_GET_FUNCTION(attribute);
    if (PyCFunction_Check(function))
      document_function(reinterpret_cast<PyCFunctionObject*>(function)->m_ml, text, true);
  } else if (Py_TYPE(attribute) == &PyClassMethod_Type) {
    const pybind11::object function = pybind11::handle(attribute).attr("__func__");
    if (PyCFunction_Check(function.ptr()))
      document_function(reinterpret_cast<PyCFunctionObject*>(function.ptr())->m_ml, text, true);
  } else if (Py_TYPE(attribute) == &PyProperty_Type) {
    pybind11::handle(attribute).attr("__doc__") = text;
  }
}

void document_type(PyTypeObject* type, const char* text) {
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {  // pybind11's
    pybind11::handle(reinterpret_cast<PyObject*>(type)).attr("__doc__") = text;
    return;
  }
  type->tp_doc = kept(signature(short_name(type), type->tp_doc ? type->tp_doc : "", false) + text);
}

}  // namespace

void add_section(std::string& text, const std::string& section) {
  if (text.find('\n' + section.substr(0, section.find(':') + 1)) != text.npos) return;
  const size_t source = text.find("\nSource:");
  text.insert(source != text.npos ? source + 1 : text.find("Example:\n"), section);
}

std::string with_source(const char* name, std::string text) {
  add_section(text, "Source: DyNet 2.1 `" + std::string(name) + "`.\n");
  return text;
}

void attach_documentation(PyObject* module) {
  Texts texts;
  for (const DocText& e : entries) texts.emplace(e.name, kept(with_source(e.name, e.text)));
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(PyModule_GetDict(module), &at, &name, &value);) {
    if (!PyType_Check(value)) continue;
    auto* type = reinterpret_cast<PyTypeObject*>(value);
    const auto own = texts.find(short_name(type));
    if (own != texts.end()) document_type(type, own->second);
    PyObject *key, *attribute;
    for (Py_ssize_t i = 0; PyDict_Next(type->tp_dict, &i, &key, &attribute);) {
      const char* spelled = PyUnicode_AsUTF8(key);
      if (!spelled) throw PythonError();
      if (const char* text = find(texts, type, spelled)) document_attribute(attribute, text);
    }
    PyType_Modified(type);
  }
}

}  // namespace dyc::py
