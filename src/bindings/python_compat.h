// What differs between versions of Python.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>

#include "bindings/tuning.h"

namespace dyc::py {

// New documentation of a heap type, in memory that the type frees.
inline void replace_type_doc(PyTypeObject* type, const std::string& text) {
#if PY_VERSION_HEX >= 0x030D0000
  auto* copy = static_cast<char*>(PyMem_Malloc(text.size() + 1));
  if (!copy) return;
  PyMem_Free(const_cast<char*>(type->tp_doc));
#else
  auto* copy = static_cast<char*>(PyObject_Malloc(text.size() + 1));
  if (!copy) return;
  PyObject_Free(const_cast<char*>(type->tp_doc));
#endif
  std::memcpy(copy, text.c_str(), text.size() + 1);
  type->tp_doc = copy;
}

// Does a tool monitor the code? From Python 3.12 on the code object has a list of them.
constexpr bool kCodeIsMonitored = PY_VERSION_HEX >= 0x030C0000;
inline bool is_monitored([[maybe_unused]] PyObject* code) {
#if PY_VERSION_HEX >= 0x030C0000
  const _PyCoMonitoringData* data = reinterpret_cast<PyCodeObject*>(code)->_co_monitoring;
  if (!data) return false;
  const uint8_t* tools = data->active_monitors.tools;
  return std::any_of(tools, tools + sizeof data->active_monitors.tools, [](uint8_t t) { return t != 0; });
#else
  return false;
#endif
}

// Is the code that runs traced by a debugger, a profiler or the like?
inline bool is_traced() {
  PyThreadState* thread = PyThreadState_Get();
  if (thread->c_tracefunc || thread->c_profilefunc) return true;
#if PY_VERSION_HEX >= 0x030C0000
#if PY_VERSION_HEX >= 0x030D0000
  struct _PyInterpreterFrame* frame = thread->current_frame;
#else
  struct _PyInterpreterFrame* frame = thread->cframe->current_frame;
#endif
  if (!frame) return false;
  PyObject* code = PyUnstable_InterpreterFrame_GetCode(frame);
  const bool watched = is_monitored(code);
  Py_DECREF(code);
  return watched;
#else
  return false;
#endif
}

#if PY_VERSION_HEX >= 0x030B0000
// Does a handler of the code cover this instruction? The table has four numbers for each handler, of 6 bits a
// byte, the most significant first: first instruction, how many, and two of no interest here.
inline bool has_handler(PyCodeObject* code, int instruction) {
  const auto* p = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(code->co_exceptiontable));
  const uint8_t* const end = p + PyBytes_GET_SIZE(code->co_exceptiontable);
  while (p < end) {
    int number[4] = {};
    for (int& n : number)
      for (bool more = true; more && p < end; ++p) {
        n = n << 6 | (*p & 0x3f);
        more = *p & 0x40;
      }
    if (number[0] <= instruction && instruction < number[0] + number[1]) return true;
  }
  return false;
}
#endif

// Could a function that is running, or what has called the first of them, notice an error raised now? Only a
// script that `python` runs as a whole is known not to.
inline bool errors_may_be_caught() {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  bool caught = !frame;
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
#if PY_VERSION_HEX >= 0x030B0000
    caught = has_handler(code, PyFrame_GetLasti(frame) / 2);
#else
    caught = frame->f_iblock > 0;
#endif
    PyFrameObject* const outer = caught ? nullptr : PyFrame_GetBack(frame);
    if (!outer && !caught) caught = PyUnicode_CompareWithASCIIString(code->co_name, "<module>") != 0;
    Py_DECREF(code);
    Py_DECREF(frame);
    frame = outer;
  }
  return caught;
}

// Does the interpreter end?
inline bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

// The dict in which the function looks up Python's own names.
inline PyObject* function_builtins([[maybe_unused]] PyObject* function) {
#if PY_VERSION_HEX >= 0x030A0000
  return reinterpret_cast<PyFunctionObject*>(function)->func_builtins;
#else
  return PyEval_GetBuiltins();
#endif
}

// How many more nested calls of Python functions the recursion limit allows.
inline int remaining_depth() {
  PyThreadState* thread = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030C0000
  return thread->py_recursion_remaining;
#elif PY_VERSION_HEX >= 0x030B0000
  return thread->recursion_remaining;
#else
  return Py_GetRecursionLimit() - thread->recursion_depth;
#endif
}

// Changes with what the class or one of its bases has, and is never that of another class; 0: unknown, or not
// asked for since the class changed.
inline uint32_t last_type_version(PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030D0000
  if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
  return type->tp_version_tag;
}

// The same, asked for.
inline uint32_t type_version(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__class__");
  _PyType_Lookup(type, name);  // gives it one
  return last_type_version(type);
}

// Levels of recursion that a comprehension takes, besides those of its parts.
constexpr int kLevelsOfComprehension = PY_VERSION_HEX < 0x030C0000 ? 1 : 0;

// Is the attribute of the object this function of its class, bound to it? For classes that do not look
// attributes up themselves.
inline bool is_method_of_class(PyObject* object, PyObject* name, PyObject* function) {
#if PY_VERSION_HEX < 0x030D0000
  PyObject* found = nullptr;
  const bool method = _PyObject_GetMethod(object, name, &found) == 1 && found == function;
  Py_XDECREF(found);
  return method;
#else
  PyObject* bound = PyObject_GetAttr(object, name);
  bool method = bound && PyMethod_Check(bound) && PyMethod_GET_FUNCTION(bound) == function &&
                PyMethod_GET_SELF(bound) == object;
  if (bound && Py_TYPE(function) == &PyMethodDescr_Type && PyCFunction_Check(bound))
    method = reinterpret_cast<PyCFunctionObject*>(bound)->m_ml ==
                 reinterpret_cast<PyMethodDescrObject*>(function)->d_method &&
             PyCFunction_GET_SELF(bound) == object;
  Py_XDECREF(bound);
  return method;
#endif
}

// Garbage collection may run code of the script wherever an object is made (until Python 3.11).
class WithoutCollection {
 public:
#if PY_VERSION_HEX >= 0x030A0000
  WithoutCollection() : was_(PyGC_Disable()) {}
  ~WithoutCollection() {
    if (was_) PyGC_Enable();
  }
#else
  WithoutCollection() : was_(call("isenabled") && call("disable")) {}
  ~WithoutCollection() {
    if (was_) call("enable");
  }
#endif
  WithoutCollection(const WithoutCollection&) = delete;
  WithoutCollection& operator=(const WithoutCollection&) = delete;

 private:
#if PY_VERSION_HEX < 0x030A0000
  // Is the result not False?
  static bool call(const char* name) {
    static PyObject* const gc = PyImport_ImportModule("gc");
    PyObject* result = gc ? PyObject_CallMethod(gc, name, nullptr) : nullptr;
    Py_XDECREF(result);
    return result && result != Py_False;
  }
#endif
  int was_;
};

// The position of a frame in its code, as a number that is cheap to read, and the line of such a position.
#if PY_VERSION_HEX >= 0x030B0000
inline int position_in(PyFrameObject* frame) { return PyFrame_GetLasti(frame); }
inline int line_at(PyCodeObject* code, int position) { return PyCode_Addr2Line(code, position); }
#else
inline int position_in(PyFrameObject* frame) { return PyFrame_GetLineNumber(frame); }
inline int line_at(PyCodeObject*, int position) { return position; }
#endif

// A freed object becomes one of this static type, as by PyObject_Init().
inline void revive(PyObject* object, PyTypeObject* type) {
#if defined(Py_DEBUG) || defined(Py_TRACE_REFS) || defined(Py_GIL_DISABLED)
  PyObject_Init(object, type);
#else
  Py_SET_TYPE(object, type);
  Py_SET_REFCNT(object, 1);
#endif
}

// The attribute, a new reference; null where there is none, or where reading it fails.
inline PyObject* attribute_or_null(PyObject* object, PyObject* name) {
  PyObject* value = nullptr;
#if PY_VERSION_HEX >= 0x030D0000
  const int found = PyObject_GetOptionalAttr(object, name, &value);
#else
  const int found = _PyObject_LookupAttr(object, name, &value);  // makes no exception where there is none
#endif
  if (found < 0) PyErr_Clear();
  return value;
}

// The value of an int of one digit, as most are. False: it has more.
inline bool is_short(PyObject* number, Py_ssize_t* value) {
#if PY_VERSION_HEX >= 0x030C0000
  const auto* n = reinterpret_cast<const PyLongObject*>(number);
  if (!PyUnstable_Long_IsCompact(n)) return false;
  *value = PyUnstable_Long_CompactValue(n);
#else
  const Py_ssize_t size = Py_SIZE(number);
  if (size < -1 || size > 1) return false;
  *value = size * static_cast<Py_ssize_t>(reinterpret_cast<const PyLongObject*>(number)->ob_digit[0]);
#endif
  return true;
}

// The version of a dict: a number that changes with the dict, and that no other dict ever has; 0: unknown.
#if PY_VERSION_HEX < 0x030C0000
inline uint64_t dict_version(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
#else
// Of the dicts that were asked for and have not changed since.
inline std::unordered_map<PyObject*, uint64_t>& dict_versions() {
  static auto* map = new std::unordered_map<PyObject*, uint64_t>;  // dicts may change while the process ends
  return *map;
}

inline int forget_dict_version(PyDict_WatchEvent, PyObject* dict, PyObject*, PyObject*) {
  dict_versions().erase(dict);
  return 0;
}

inline uint64_t dict_version(PyObject* dict) {
  static const int watcher = PyDict_AddWatcher(forget_dict_version);
  static uint64_t last = 0;
  if (watcher < 0) {  // others have taken them all
    PyErr_Clear();
    return 0;
  }
  const auto known = dict_versions().find(dict);
  if (known != dict_versions().end()) return known->second;
  if (dict_versions().size() >= tuning::kWatchedDicts || PyDict_Watch(watcher, dict) < 0) {
    PyErr_Clear();
    return 0;
  }
  return dict_versions()[dict] = ++last;
}
#endif

}  // namespace dyc::py
