#include "bindings/region_program.h"

#include <unordered_map>

#include "bindings/region_walk.h"

namespace dyc::py {

namespace {

WalkNode parse_node(PyObject* spec, PyObject* regions) {
  WalkNode node;
  int kind;
  unsigned number;
  PyObject *object, *parts;
  if (!PyArg_ParseTuple(spec, "iIOO!", &kind, &number, &object, &PyTuple_Type, &parts)) throw PythonError();
  node.kind = static_cast<WalkNode::Kind>(kind);
  node.number = number;
  node.object = node.kind == WalkNode::attribute ? interned(object) : Owned(object);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts); ++i)
    node.parts.push_back(parse_node(PyTuple_GET_ITEM(parts, i), regions));
  if (node.kind != WalkNode::region) return node;
  PyObject* named = regions ? PyDict_GetItemWithError(regions, object) : nullptr;
  Region* region = named ? region_in(named) : nullptr;
  if (!region) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "expected the name of a _Region, got %R", object);
    throw PythonError();
  }
  node.use = std::make_shared<RegionUse>(*region);
  node.object = Owned();  // the code object keeps it alive
  return node;
}

struct ProgramOfCode {
  bool is_of(PyObject* object) const {
    return reinterpret_cast<PyWeakReference*>(code.get())->wr_object == object;
  }

  Owned code;     // a weak reference
  Owned regions;  // the code object that keeps the regions of a shared program alive
  std::shared_ptr<WalkProgram> program;
};

auto& programs() {
  static auto* const all = new std::unordered_map<PyObject*, ProgramOfCode>;
  return *all;
}

void add_program(PyObject* code, PyObject* regions, std::shared_ptr<WalkProgram> program) {
  Owned reference = Owned::steal(PyWeakref_NewRef(code, nullptr));
  if (!reference) throw PythonError();
  std::erase_if(programs(), [](const auto& p) { return p.second.is_of(Py_None); });  // those that are gone
  programs()[code] = {std::move(reference), Owned(regions), std::move(program)};
}

}  // namespace

WalkProgram::WalkProgram(PyObject* spec, PyObject* regions) {
  if (spec == Py_None) return;
  const char* text;
  PyObject *names, *cells, *statements;
  int late;
  if (!PyArg_ParseTuple(spec, "sO!IO!O!p", &text, &PyTuple_Type, &names, &n_slots, &PyTuple_Type, &cells,
                        &PyTuple_Type, &statements, &late))
    throw PythonError();
  begun = late != 0;
  name = text;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i)
    parameters.emplace_back(PyTuple_GET_ITEM(names, i));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cells); ++i)
    free.push_back(static_cast<uint32_t>(PyLong_AsUnsignedLong(PyTuple_GET_ITEM(cells, i))));
  body = parse_node(statements, regions);
  if (PyErr_Occurred()) throw PythonError();
  usable = true;
}

WalkProgram* find_program(PyObject* code) {
  const auto at = programs().find(code);
  return at != programs().end() && at->second.is_of(code) ? at->second.program.get() : nullptr;
}

void define_program(PyObject* code, PyObject* spec, PyObject* regions) {
  add_program(code, nullptr, std::make_shared<WalkProgram>(spec, regions));
}

void share_program(PyObject* code, PyObject* other) {
  if (find_program(code) || !find_program(other)) return;
  add_program(code, other, programs()[other].program);
}

}  // namespace dyc::py
