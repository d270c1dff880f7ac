// C++ exceptions to Python exceptions, Python arguments to C++ values.
#include <algorithm>

#include "bindings/float_arrays.h"
#include "bindings/owned.h"

namespace dyc::py {

void deprecated(const std::string& name, const std::string& advice) {
  pybind11::module_::import("dynet_compat.api.legacy").attr("deprecated")(name, advice);
}

const char* type_name(PyObject* object) {
  const char* name = Py_TYPE(object)->tp_name;
  if (std::strncmp(name, "_dynet.", 7) != 0) return name;
  return name[7] == '_' && is_expression(object) ? "dynet.Expression" : name + 1;
}

PyObject* described(PyObject* self) {
  return guarded([&] {
    return pybind11::module_::import("dynet_compat.inspection.reprs")
        .attr("described")(pybind11::handle(self))
        .release()
        .ptr();
  });
}

void refuse_keyword(const char* op, const char* given, const char* const* names, size_t n) {
  std::string known;
  for (size_t i = 0; i < n; ++i) known += text(i ? ", " : "", names[i]);
  throw TypeError(text(op, "(): got an unknown argument '", given, "'; wanted ", known));
}

namespace {

// "; made at script.py:12" for the innermost line outside this package; empty if there is none.
std::string script_line() {
  const std::string own = "dynet_compat.";
  try {
    pybind11::object frame = pybind11::module_::import("sys").attr("_getframe")(0);
    for (; !frame.is_none(); frame = frame.attr("f_back")) {
      const std::string module =
          pybind11::str(frame.attr("f_globals").attr("get")("__name__", "").cast<pybind11::object>());
      if (module == "dynet_compat" || module.compare(0, own.size(), own) == 0) continue;
      return text("; made at ", pybind11::str(frame.attr("f_code").attr("co_filename")).cast<std::string>(),
                  ":", pybind11::str(frame.attr("f_lineno").cast<pybind11::object>()).cast<std::string>());
    }
  } catch (pybind11::error_already_set&) {  // no frame: called from C
  }
  return "";
}

}  // namespace

bool has_plain_items(PyObject* sequence) {
  PyObject* const* items = PySequence_Fast_ITEMS(sequence);
  return std::all_of(items, items + PySequence_Fast_GET_SIZE(sequence), [](PyObject* item) {
    return PyFloat_CheckExact(item) || PyLong_CheckExact(item) || is_expression(item);
  });
}

void set_error() {
  try {
    throw;
  } catch (const PythonError&) {
  } catch (const InvalidValue& e) {
    const std::string message = text(e.what(), script_line());
    PySys_FormatStderr("%s\n", message.c_str());  // as DyNet does
    PyErr_SetString(PyExc_RuntimeError, message.c_str());
  } catch (pybind11::error_already_set& e) {
    e.restore();
  } catch (const ValueError& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const IndexError& e) {
    PyErr_SetString(PyExc_IndexError, e.what());
  } catch (const TypeError& e) {
    PyErr_SetString(PyExc_TypeError, e.what());
  } catch (const MemoryError& e) {
    PyErr_SetString(PyExc_MemoryError, e.what());
  } catch (const std::bad_alloc&) {
    PyErr_SetString(PyExc_MemoryError, "out of memory");
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

namespace {

[[noreturn]] void type_error(const char* op, const char* name, const char* wanted, PyObject* got) {
  PyErr_Format(PyExc_TypeError, "%s(): expected %s for %s, got %s", op, wanted, name, type_name(got));
  throw PythonError();
}

// A fast sequence over any iterable but strings; strings are never meant.
PyObject* sequence_of(PyObject* object, const char* op, const char* name, const char* wanted) {
  if (PyUnicode_Check(object)) type_error(op, name, wanted, object);
  PyObject* fast = PySequence_Fast(object, "");
  if (fast && PyList_Check(fast) &&
      !has_plain_items(fast)) {  // converting may run code that changes the list
    PyObject* items = PyList_AsTuple(fast);
    Py_DECREF(fast);
    fast = items;
  }
  if (fast) return fast;
  if (PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    type_error(op, name, wanted, object);
  }
  throw PythonError();
}

// int(object); floats are truncated. A new reference.
PyObject* whole_number(PyObject* object, const char* op, const char* name) {
  const bool one = is_array(object) && pybind11::reinterpret_borrow<pybind11::array>(object).size() == 1;
  const Owned element = Owned::steal(one ? PyObject_CallMethod(object, "item", nullptr) : nullptr);
  if (element) object = element.get();
  PyObject* number = nullptr;
  if (PyIndex_Check(object)) number = PyNumber_Index(object);
  if (!number && !PyUnicode_Check(object) && PyNumber_Check(object) && !is_expression(object)) {
    PyErr_Clear();
    number = PyNumber_Long(object);
  }
  if (number) return number;
  PyObject* error = PyErr_Occurred();
  if (!error || PyErr_GivenExceptionMatches(error, PyExc_TypeError)) {
    PyErr_Clear();
    type_error(op, name, "an int", object);
  }
  PyErr_Format(error, "%s(): expected an int for %s, got %R", op, name, object);  // NaN, infinity
  throw PythonError();
}

// The only one of an array of a device that is no number for Python.
[[gnu::cold, gnu::noinline]] float element_of_foreign(PyObject* object, const char* op, const char* name) {
  if (is_foreign(object)) {
    const FloatArray array = float_array(object, op, name);
    if (array.size() == 1) return *array.data();
  }
  type_error(op, name, "a number", object);
}

}  // namespace

uint32_t as_uint(PyObject* object, const char* op, const char* name) {
  const Owned number = Owned::steal(PyLong_CheckExact(object) ? nullptr : whole_number(object, op, name));
  if (number) object = number.get();
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (value == -1 && !overflow && PyErr_Occurred()) throw PythonError();
  if (overflow || value < 0 || value > 0xffffffffll) {
    PyErr_Format(PyExc_OverflowError, "%s(): expected 0 <= %s < 2**32, got %R", op, name, object);
    throw PythonError();
  }
  return static_cast<uint32_t>(value);
}

int64_t as_int(PyObject* object, const char* op, const char* name) {
  const Owned number = Owned::steal(PyLong_CheckExact(object) ? nullptr : whole_number(object, op, name));
  const long long value = PyLong_AsLongLong(number ? number.get() : object);
  if (value == -1 && PyErr_Occurred()) throw PythonError();  // 2**63 and more: OverflowError
  return value;
}

float as_float(PyObject* object, const char* op, const char* name) {
  if (PyFloat_CheckExact(object)) return static_cast<float>(PyFloat_AS_DOUBLE(object));
  if (is_expression(object) || PyUnicode_Check(object)) type_error(op, name, "a number", object);
  if (is_array(object)) {  // one element, whatever its number of axes
    const FloatArray array = float_array(object, op, name);
    if (array.size() == 1) return *array.data();
    type_error(op, name, "a number", object);
  }
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
    PyErr_Clear();
    return element_of_foreign(object, op, name);
  }
  return static_cast<float>(value);
}

std::vector<uint32_t> as_uints(PyObject* object, const char* op, const char* name) {
  std::vector<uint32_t> out;
  if (is_array(object) && uints_of_array(object, op, name, &out)) return out;
  const Owned fast = Owned::steal(sequence_of(object, op, name, "a list of ints"));
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(fast.get());
  out.resize(static_cast<size_t>(n));
  for (Py_ssize_t i = 0; i < n; ++i) out[i] = as_uint(PySequence_Fast_GET_ITEM(fast.get(), i), op, name);
  return out;
}

std::vector<float> as_floats(PyObject* object, const char* op, const char* name) {
  const bool list = PyList_CheckExact(object) || PyTuple_CheckExact(object);
  if (!list && is_array(object)) {
    const FloatArray array = float_array(object, op, name);
    if (array.ndim() == 0 || array.size() != array.shape(0))
      type_error(op, name, "a list of numbers or a 1-D array", object);
    return std::vector<float>(array.data(), array.data() + array.size());
  }
  const Owned fast = Owned::steal(sequence_of(object, op, name, "a list of numbers"));
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(fast.get());
  std::vector<float> out(static_cast<size_t>(n));
  for (Py_ssize_t i = 0; i < n; ++i) out[i] = as_float(PySequence_Fast_GET_ITEM(fast.get(), i), op, name);
  return out;
}

Dim as_dim(PyObject* object, const char* op) {
  Dim d;
  if (PyTuple_Check(object) || PyList_Check(object)) {
    const Py_ssize_t n = PySequence_Size(object);
    if (n > kMaxDims) throw ValueError(text(op, "(): expected at most ", kMaxDims, " dimensions, got ", n));
    for (Py_ssize_t i = 0; i < n; ++i) {
      const Owned item = Owned::steal(PySequence_GetItem(object, i));
      if (!item) throw PythonError();  // the list has become shorter
      d.d[d.nd++] = as_uint(item.get(), op, "dim");
    }
  } else if (is_array(object) && pybind11::reinterpret_borrow<pybind11::array>(object).ndim() == 1) {
    const std::vector<uint32_t> sizes = as_uints(object, op, "dim");
    if (sizes.size() > kMaxDims)
      throw ValueError(text(op, "(): expected at most ", kMaxDims, " dimensions, got ", sizes.size()));
    for (uint32_t size : sizes) d.d[d.nd++] = size;
  } else {
    d.d[d.nd++] = as_uint(object, op, "dim");
  }
  double size = 1;
  for (uint32_t i = 0; i < d.nd; ++i) size *= d.d[i];
  if (size >= 2147483648.0) throw ValueError(text(op, "(): expected fewer than 2**31 elements, got ", d));
  return d;
}

std::vector<NodeId> as_nodes(PyObject* sequence, const char* op) {
  engine();  // may wait for it, while other threads may change the sequence
  if (is_expression(sequence)) type_error(op, "its argument", "a list of Expressions", sequence);
  const Owned fast = Owned::steal(sequence_of(sequence, op, "its argument", "a list of Expressions"));
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(fast.get());
  std::vector<NodeId> out(static_cast<size_t>(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(fast.get(), i);
    if (to_node(item, op, &out[i])) continue;
    if (!is_expression(item) && !is_array(item))
      PyErr_Format(PyExc_TypeError,
                   "%s(): expected Expressions, got %s at position %zd of %zd (counted from 0)", op,
                   type_name(item), i, n);
    throw PythonError();
  }
  return out;
}

PyObject* array_of(const float* data, const Dim& dim) {
  auto& numpy = pybind11::detail::npy_api::get();
  Py_intptr_t shape[kMaxDims + 1];
  int nd = 0;
  for (uint32_t i = 0; i < dim.nd; ++i) shape[nd++] = dim.d[i];
  if (dim.bd > 1) shape[nd++] = dim.bd;
  PyObject* type = numpy.PyArray_DescrFromType_(pybind11::detail::npy_api::NPY_DOUBLE_);
  PyObject* out = numpy.PyArray_NewFromDescr_(numpy.PyArray_Type_, type, nd, shape, nullptr, nullptr,
                                              pybind11::array::f_style, nullptr);
  if (!out) throw PythonError();
  auto* to = reinterpret_cast<double*>(pybind11::detail::array_proxy(out)->data);
  if (data) std::copy_n(data, dim.size(), to);
  else std::fill_n(to, dim.size(), 0.0);
  return out;
}

PyObject* dim_tuple(const Dim& dim) {
  PyObject* sizes = PyTuple_New(dim.nd);
  if (!sizes) return nullptr;
  for (uint32_t i = 0; i < dim.nd; ++i) PyTuple_SET_ITEM(sizes, i, PyLong_FromUnsignedLong(dim.d[i]));
  return sizes;
}

}  // namespace dyc::py
