// What differs between versions of Python.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <string>

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

// A number that a dict has for as long as it does not change, and no other dict ever has; 0: there is none.
#if PY_VERSION_HEX < 0x030C0000
inline uint64_t dict_stamp(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
#else
uint64_t dict_stamp(PyObject* dict);  // python_compat.cc
#endif

}  // namespace dyc::py
