#include "bindings/python_compat.h"

#if PY_VERSION_HEX >= 0x030C0000
#include <unordered_map>

namespace dyc::py {

namespace {

constexpr size_t kMostDicts = 4096;

// Of the dicts that were asked for and have not changed since.
std::unordered_map<PyObject*, uint64_t>& stamps() {
  static auto* map = new std::unordered_map<PyObject*, uint64_t>;  // dicts may change while the process ends
  return *map;
}

int changed(PyDict_WatchEvent, PyObject* dict, PyObject*, PyObject*) {
  stamps().erase(dict);
  return 0;
}

}  // namespace

uint64_t dict_stamp(PyObject* dict) {
  static const int watcher = PyDict_AddWatcher(changed);
  static uint64_t last = 0;
  if (watcher < 0) {  // others have taken them all
    PyErr_Clear();
    return 0;
  }
  const auto known = stamps().find(dict);
  if (known != stamps().end()) return known->second;
  if (stamps().size() >= kMostDicts || PyDict_Watch(watcher, dict) < 0) {
    PyErr_Clear();
    return 0;
  }
  return stamps()[dict] = ++last;
}

}  // namespace dyc::py
#endif
