// np.argmax(x.npvalue()) as one call, which the rewriter of hints puts in its place
// (hints/rewrite/argmax.py). Where these are NumPy's argmax and this package's npvalue, only the index of the
// largest value is computed.
#include "bindings/float_arrays.h"
#include "bindings/compute.h"
#include "bindings/python_compat.h"

namespace dyc::py {

namespace {

// The functions that the call must find for that. Owned for ever.
struct Genuine {
  PyObject* argmax;      // NumPy's
  PyObject* index;       // type of what it returns
  PyObject* methods[3];  // of Expression, as this module made them
  PyObject* names[3];    // theirs
};

constexpr const char* kReads[] = {"npvalue", "value", "vec_value"};
enum { kNpvalue, kValue, kVecValue };

Genuine genuine;

void find_numpy() {
  const pybind11::object index = pybind11::dtype("p").attr("type");
  const pybind11::object argmax = pybind11::detail::import_numpy_core_submodule("fromnumeric").attr("argmax");
  genuine.index = index.inc_ref().ptr();
  genuine.argmax = argmax.inc_ref().ptr();
}

// Which of kReads `method` is for the object; -1: none of them, or not ours.
int read_of(PyObject* object, PyObject* method) {
  PyTypeObject* type = Py_TYPE(object);
  const bool ours = type == &ExpressionType || type->tp_base == &ExpressionType;
  if (!ours || type->tp_flags & Py_TPFLAGS_HEAPTYPE || type->tp_basicsize != sizeof(PyExpression)) return -1;
  for (int i = 0; i < 3; ++i) {
    if (method != genuine.names[i]) continue;
    PyObject* found = PyObject_GetAttr(reinterpret_cast<PyObject*>(type), method);
    if (!found) PyErr_Clear();
    Py_XDECREF(found);
    return found == genuine.methods[i] ? i : -1;
  }
  return -1;
}

// Its node, if its value is a vector.
bool is_vector(PyObject* object, NodeId* id) {
  const auto* e = reinterpret_cast<PyExpression*>(object);
  if (!this_thread || !is_current(e, this_thread->graph)) return false;
  *id = e->id;
  const Dim& d = this_thread->graph.dim(e->id);
  return d.nd == 1 && d.bd == 1 && d.d[0] > 0;
}

// _read_argmax(function, x, method): function(x.method()). _read_argmax(x, method): x.method().argmax().
PyObject* read_argmax(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (n != 2 && n != 3) {
    PyErr_SetString(PyExc_TypeError, "_read_argmax(): expected 2 or 3 arguments");
    return nullptr;
  }
  PyObject *const function = n == 3 ? args[0] : nullptr, *const x = args[n - 2], *const method = args[n - 1];
  return guarded([&]() -> PyObject* {
    NodeId id;
    const bool plain = (function && function != genuine.argmax) || is_traced();
    const int read = plain ? -1 : read_of(x, method);
    if ((function ? read >= 0 : read == kNpvalue) && is_vector(x, &id)) {
      const auto index = pybind11::reinterpret_steal<pybind11::object>(
          PyLong_FromUnsignedLong(compute_argmax(id, kReads[read])));
      return index ? PyObject_CallOneArg(genuine.index, index.ptr()) : nullptr;
    }
    const auto values = pybind11::reinterpret_steal<pybind11::object>(PyObject_CallMethodNoArgs(x, method));
    if (!values) return nullptr;
    if (function) return PyObject_CallOneArg(function, values.ptr());
    static PyObject* const argmax = PyUnicode_InternFromString("argmax");
    return PyObject_CallMethodNoArgs(values.ptr(), argmax);
  });
}

PyMethodDef read_functions[] = {
    {"_read_argmax", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(read_argmax)), METH_FASTCALL,
     nullptr},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_argmax(PyObject* module) {
  find_numpy();
  for (int i = 0; i < 3; ++i) {
    genuine.names[i] = PyUnicode_InternFromString(kReads[i]);
    genuine.methods[i] = PyObject_GetAttr(reinterpret_cast<PyObject*>(&ExpressionType), genuine.names[i]);
    if (!genuine.methods[i]) throw PythonError();
  }
  if (PyModule_AddFunctions(module, read_functions) < 0) throw PythonError();
}

}  // namespace dyc::py
