// A reference to a Python object that is owned: released when it goes out of scope.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <utility>

namespace dyc::py {

class Owned {
 public:
  Owned() = default;
  explicit Owned(PyObject* borrowed) : object_(borrowed) { Py_XINCREF(borrowed); }
  static Owned steal(PyObject* reference) {
    Owned o;
    o.object_ = reference;
    return o;
  }
  Owned(const Owned& other) : Owned(other.object_) {}
  Owned(Owned&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Owned& operator=(Owned other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// The text as names are kept that are compared by address.
inline Owned interned(PyObject* name) {
  Py_INCREF(name);
  PyUnicode_InternInPlace(&name);
  return Owned::steal(name);
}

}  // namespace dyc::py
