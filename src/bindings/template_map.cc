// A list comprehension whose element is a block: recorded item by item in one call.
#include "bindings/template.h"

#include <algorithm>

namespace dyc::py {

// The list as it grows, and the arguments of Template::call.
class Template::Elements {
 public:
  Elements(Template& t, PyObject* run, PyObject* reads)
      : template_(t), run_(run), reads_(reads), list_(Owned::steal(PyList_New(0))) {
    if (!list_) throw PythonError();
    arguments_.resize(t.n_args_);
  }
  // Reads what the block reads besides the item. Where that fails, the element fails when it runs.
  void read() {
    stale_ = false;
    values_ = Owned::steal(PyObject_CallNoArgs(reads_));
    if (!values_) {
      if (!PyErr_ExceptionMatches(PyExc_Exception)) throw PythonError();
      PyErr_Clear();
    }
    const size_t first = template_.n_args_ - n_rest();
    for (size_t i = 0; values_ && i < n_rest(); ++i)
      arguments_[first + i] = PyTuple_GET_ITEM(values_.get(), static_cast<Py_ssize_t>(i));
  }
  // Code of the script ran since they were read.
  bool stale() const { return stale_; }
  PyObject** parts() { return arguments_.data(); }
  // The element for the parts; null: it must run.
  PyObject* recorded() {
    if (!values_) return nullptr;
    PyObject* e = template_.call(arguments_.data(), arguments_.size());
    if (!e && PyErr_Occurred()) throw PythonError();
    return e;
  }
  PyObject* ran(PyObject* item) {
    stale_ = true;
    PyObject* e = PyObject_CallOneArg(run_, item);
    if (!e) throw PythonError();
    template_.done(e);
    return e;
  }
  void add(PyObject* element) {
    const Owned e = Owned::steal(element);
    if (PyList_Append(list_.get(), element) < 0) throw PythonError();
  }
  PyObject* list() { return list_.release(); }

 private:
  size_t n_rest() const { return template_.n_args_ - std::max<size_t>(1, template_.targets_); }
  Template& template_;
  PyObject *run_, *reads_;
  bool stale_ = false;
  Owned list_, values_;
  std::vector<PyObject*> arguments_;
};

PyObject* Template::map(PyObject* iterable, PyObject* run, PyObject* reads) {
  Elements out(*this, run, reads);
  const Owned iterator = Owned::steal(PyObject_GetIter(iterable));
  if (!iterator) throw PythonError();
  // Others may run code of the script between the items, which may change what the block reads.
  const bool quiet = PyList_CheckExact(iterable) || PyTuple_CheckExact(iterable) || PyRange_Check(iterable);
  for (bool first = true;; first = false) {
    const Owned item = Owned::steal(PyIter_Next(iterator.get()));
    if (!item) break;
    if (first || !quiet || out.stale()) out.read();
    PyObject* e = nullptr;
    if (targets_ == 0) {
      out.parts()[0] = item.get();
      e = out.recorded();
    } else if ((PyTuple_CheckExact(item.get()) || PyList_CheckExact(item.get())) &&
               Py_SIZE(item.get()) == static_cast<Py_ssize_t>(targets_)) {
      std::copy_n(PySequence_Fast_ITEMS(item.get()), targets_, out.parts());
      e = out.recorded();
    }
    out.add(e ? e : out.ran(item.get()));
  }
  if (PyErr_Occurred()) throw PythonError();
  return out.list();
}

PyObject* Template::map_zip(PyObject* iterables, PyObject* run, PyObject* reads, PyObject* zip) {
  const Py_ssize_t n = PyTuple_GET_SIZE(iterables);
  bool quiet = n > 0 && static_cast<size_t>(n) == targets_ && zip == reinterpret_cast<PyObject*>(&PyZip_Type);
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* each = PyTuple_GET_ITEM(iterables, i);
    quiet = quiet && (PyList_CheckExact(each) || PyTuple_CheckExact(each));
  }
  if (!quiet) {
    const Owned items = Owned::steal(PyObject_Call(zip, iterables, nullptr));
    if (!items) throw PythonError();
    return map(items.get(), run, reads);
  }
  Elements out(*this, run, reads);
  for (Py_ssize_t at = 0;; ++at) {
    bool whole = true;
    for (Py_ssize_t i = 0; whole && i < n; ++i) {
      PyObject* each = PyTuple_GET_ITEM(iterables, i);
      whole = at < Py_SIZE(each);
      if (whole) out.parts()[i] = PySequence_Fast_ITEMS(each)[at];
    }
    if (!whole) break;
    if (at == 0 || out.stale()) out.read();
    PyObject* e = out.recorded();
    if (!e) {
      const Owned item = Owned::steal(PyTuple_New(n));
      if (!item) throw PythonError();
      for (Py_ssize_t i = 0; i < n; ++i) PyTuple_SET_ITEM(item.get(), i, Owned(out.parts()[i]).release());
      e = out.ran(item.get());
    }
    out.add(e);
  }
  return out.list();
}

}  // namespace dyc::py
