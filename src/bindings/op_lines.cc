#include "bindings/op_lines.h"

#include <string_view>
#include <unordered_map>

#include <pybind11/pybind11.h>

#include "bindings/compute.h"
#include "bindings/owned.h"
#include "bindings/python_compat.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

struct CountedCode {
  Owned code;                               // keeps it alive, so that no other code object gets its address
  bool own;                                 // of this package
  std::unordered_map<int, uint64_t> nodes;  // by position
};

// All of this is guarded by the interpreter lock.
std::string package_folder;
uint64_t counts = 0;  // how often counting has begun
// Never freed: as the process ends, the interpreter ends first.
std::unordered_map<PyCodeObject*, CountedCode>& counted = *new std::unordered_map<PyCodeObject*, CountedCode>;

CountedCode& entry_of(PyCodeObject* code) {
  const auto [at, fresh] = counted.try_emplace(code);
  if (fresh) {
    at->second.code = Owned(reinterpret_cast<PyObject*>(code));
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    if (!file) PyErr_Clear();
    at->second.own = file && std::string_view(file).substr(0, package_folder.size()) == package_folder;
  }
  return at->second;
}

// Adds nodes to the innermost line outside this package.
void add_nodes(uint64_t n) {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    CountedCode& entry = entry_of(code);
    Py_DECREF(code);
    PyFrameObject* back = nullptr;
    if (!entry.own) entry.nodes[position_in(frame)] += n;
    else back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
}

// Nodes since the last call that neither a region nor a builder has recorded are those of the line that runs.
void count_recorded(const Engine& e) {
  thread_local const Engine* engine = nullptr;
  thread_local uint64_t seen = 0, seen_in = 0;
  const uint64_t now =
      e.timing.recorded_nodes + e.graph.size() - e.timing.region_nodes - e.timing.builder_nodes;
  if (engine != &e || now < seen || seen_in != counts) {
    engine = &e;
    seen = now - 1;
    seen_in = counts;
  }
  if (now > seen) add_nodes(now - seen);
  seen = now;
}

void count_lines(const std::string& folder) {
  if (!folder.empty()) {
    package_folder = folder;
    counted.clear();
    ++counts;
  }
  Engine::on_recorded = folder.empty() ? nullptr : count_recorded;
  engine().update_attention();
}

// (file, line, function, nodes) of each line; keeps counting.
pb::list counted_lines() {
  pb::list all;
  for (const auto& [code, entry] : counted) {
    std::unordered_map<int, uint64_t> by_line;
    for (const auto& [position, n] : entry.nodes) by_line[line_at(code, position)] += n;
    const auto file = pb::reinterpret_borrow<pb::object>(code->co_filename);
    const auto name = pb::reinterpret_borrow<pb::object>(code->co_name);
    for (const auto& [line, n] : by_line) all.append(pb::make_tuple(file, line, name, n));
  }
  return all;
}

}  // namespace

void add_op_lines(pb::module_& m) {
  m.def("_count_op_lines", count_lines, pb::arg("folder"),
        "Count the nodes that each line records one by one, from now on and from zero; lines in this "
        "folder count as their callers. \"\": no more.");
  m.def("_op_lines", counted_lines, "(file, line, function, nodes) of each line that was counted.");
}

}  // namespace dyc::py
