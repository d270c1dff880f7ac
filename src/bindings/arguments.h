// Positional and keyword arguments of hand-written methods.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "bindings/expression.h"
#include "bindings/model.h"

namespace dyc::py {

// Values in the order of the names; null where an argument was not given.
template <size_t N>
class Arguments {
 public:
  using Names = const char* const (&)[N];

  Arguments(const char* op, Names names) : op_(op), names_(names) {}

  void add_positional(PyObject* const* args, Py_ssize_t n) {
    if (n > static_cast<Py_ssize_t>(N)) {
      PyErr_Format(PyExc_TypeError, "%s(): expected at most %zu arguments, got %zd", op_, N, n);
      throw PythonError();
    }
    std::copy(args, args + n, values_.begin());
  }
  void add_keyword(PyObject* key, PyObject* value) {
    const char* given = PyUnicode_AsUTF8(key);
    if (!given) throw PythonError();
    for (size_t i = 0; i < N; ++i) {
      if (std::strcmp(names_[i], given) != 0) continue;
      if (values_[i]) {
        PyErr_Format(PyExc_TypeError, "%s(): got argument '%s' twice", op_, given);
        throw PythonError();
      }
      values_[i] = value;
      return;
    }
    refuse_keyword(op_, given, names_, N);
  }
  void require(size_t n) const {
    for (size_t i = 0; i < n; ++i) {
      if (values_[i]) continue;
      PyErr_Format(PyExc_TypeError, "%s(): argument '%s' is missing", op_, names_[i]);
      throw PythonError();
    }
  }
  PyObject* operator[](size_t i) const { return values_[i]; }
  // Given and not None.
  bool has(size_t i) const { return values_[i] && values_[i] != Py_None; }
  bool truth(size_t i, bool otherwise) const {
    if (!values_[i]) return otherwise;
    const int t = PyObject_IsTrue(values_[i]);
    if (t < 0) throw PythonError();
    return t != 0;
  }
  float number(size_t i, float otherwise) const {
    return values_[i] ? as_float(values_[i], op_, names_[i]) : otherwise;
  }
  uint32_t uint(size_t i, uint32_t otherwise) const {
    return values_[i] ? as_uint(values_[i], op_, names_[i]) : otherwise;
  }
  NodeId node(size_t i) const {
    NodeId id;
    if (!to_node(values_[i], op_, &id)) throw PythonError();
    return id;
  }
  // Sizes from argument i, batch size from argument `batch`.
  Dim dim(size_t i, size_t batch) const {
    Dim d = as_dim(values_[i], op_);
    d.bd = uint(batch, 1);
    if (d.bd == 0) throw ValueError(text(op_, "(): expected batch_size >= 1, got 0"));
    return d;
  }
  std::string string(size_t i) const {  // absent, None: empty
    if (!has(i)) return {};
    const char* s = PyUnicode_Check(values_[i]) ? PyUnicode_AsUTF8(values_[i]) : nullptr;
    if (s) return s;
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_TypeError, "%s(): expected a str for %s, got %s", op_, names_[i],
                   Py_TYPE(values_[i])->tp_name);
    throw PythonError();
  }
  const char* op() const { return op_; }

 private:
  const char* op_;
  Names names_;
  std::array<PyObject*, N> values_{};
};

// Of a METH_FASTCALL | METH_KEYWORDS function; throws PythonError.
template <size_t N>
Arguments<N> parse(const char* op, const char* const (&names)[N], size_t required, PyObject* const* args,
                   Py_ssize_t n, PyObject* kwnames) {
  Arguments<N> a(op, names);
  a.add_positional(args, n);
  const Py_ssize_t n_keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < n_keywords; ++i) a.add_keyword(PyTuple_GET_ITEM(kwnames, i), args[n + i]);
  a.require(required);
  if (std::strcmp(names[N - 1], "device") == 0 && a.has(N - 1)) check_device(a.string(N - 1));
  return a;
}

// Text as a template argument.
template <size_t N>
struct Text {
  char text[N];
  constexpr Text(const char (&t)[N]) { std::copy_n(t, N, text); }
};

// f() as a new reference: None if it returns nothing.
template <class F>
PyObject* value_or_none(F&& f) {
  if constexpr (!std::is_void_v<std::invoke_result_t<F>>) {
    return f();
  } else {
    f();
    Py_RETURN_NONE;
  }
}

// A method, or function, from what it does with its arguments: f(self, arguments) or f(arguments), which
// returns a new reference, or nothing for None. `names` are those of the arguments, of which the first
// `required` have to be given.
template <Text op, size_t required, Text... names>
struct MethodOf {
  using Values = Arguments<sizeof...(names)>;
  static constexpr const char* kNames[] = {names.text...};

  template <class F>
  static PyObject* call(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
    return guarded([&]() -> PyObject* {
      const Values values = parse(op.text, kNames, required, args, n, kwnames);
      if constexpr (std::is_invocable_v<F, const Values&>) return value_or_none([&] { return F{}(values); });
      else return value_or_none([&] { return F{}(self, values); });
    });
  }
};

using FastMethod = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
// What a function of the package was made from; null: it is no built-in function.
inline FastMethod method_of_function(PyObject* function) {
  if (!PyCFunction_Check(function)) return nullptr;
  return reinterpret_cast<FastMethod>(reinterpret_cast<void (*)()>(PyCFunction_GET_FUNCTION(function)));
}

template <Text op, size_t required, Text... names, class F>
constexpr FastMethod method(F) {
  return &MethodOf<op, required, names...>::template call<F>;
}

// A method without arguments, from f(self).
template <class F>
constexpr PyCFunction plain(F) {
  return [](PyObject* self, PyObject*) {
    return guarded([&] { return value_or_none([&] { return F{}(self); }); });
  };
}

// A method f(self, argument); the one argument goes by position or name.
template <Text op, Text name, PyObject* (*f)(PyObject*, PyObject*)>
PyObject* one_argument(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  if (n == 1 && !kwnames) [[likely]]
    return f(self, args[0]);
  return guarded(
      [&] { return f(self, parse(op.text, MethodOf<op, 1, name>::kNames, 1, args, n, kwnames)[0]); });
}

// `doc` begins with the signature, "name(a, b=1)", unless there are no arguments. The text may be missing: it
// is in bindings/docs.
inline PyMethodDef fast_method(const char* name, FastMethod f, const char* doc) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f)), METH_FASTCALL | METH_KEYWORDS,
          doc};
}
inline PyMethodDef plain_method(const char* name, PyCFunction f, const char* doc = nullptr) {
  return {name, f, METH_NOARGS, doc};
}

inline PyObject* none() { Py_RETURN_NONE; }
inline PyObject* to_python(const std::string& s) {
  return PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()));
}

}  // namespace dyc::py
