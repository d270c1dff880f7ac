#include "bindings/region_spec.h"

#include "bindings/expression.h"

namespace dyc::py {

namespace {

uint32_t number_in(PyObject* spec) { return static_cast<uint32_t>(PyLong_AsLong(spec)); }

RegionSource parse_source(PyObject* spec) {
  RegionSource s;
  int kind, called, method, expression, state, parameters, mapping, truth, appended, own, late;
  PyObject *key, *codes, *defaults;
  if (!PyArg_ParseTuple(spec, "iIOInppppppppIIO!Opp", &kind, &s.base, &key, &s.key_source, &s.n, &called,
                        &method, &expression, &state, &parameters, &mapping, &truth, &appended, &s.indices,
                        &s.others, &PyList_Type, &codes, &defaults, &own, &late))
    throw PythonError();
  s.kind = static_cast<RegionSource::Kind>(kind);
  s.key = s.kind == RegionSource::attribute ? interned(key) : Owned(key);
  s.called = called;
  s.method = method;
  s.expression = expression;
  s.state = state;
  s.parameters = parameters;
  s.mapping = mapping;
  s.truth = truth;
  s.appended = appended;
  s.own = own;
  s.late = late;
  s.codes = Owned(codes);
  if (PyTuple_Check(defaults)) s.defaults = Owned(defaults);
  return s;
}

RegionOutput parse_output(PyObject* spec) {
  RegionOutput r;
  int kind;
  PyObject* payload;
  if (!PyArg_ParseTuple(spec, "iO", &kind, &payload)) throw PythonError();
  r.kind = static_cast<RegionOutput::Kind>(kind);
  if (r.kind == RegionOutput::source) r.at = number_in(payload);
  if (r.kind == RegionOutput::constant) r.object = Owned(payload);
  if (r.kind == RegionOutput::tuple || r.kind == RegionOutput::list)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(payload); ++i)
      r.parts.push_back(parse_output(PyTuple_GET_ITEM(payload, i)));
  return r;
}

RegionLoop::Target parse_target(PyObject* spec) {
  RegionLoop::Target t;
  if (PyLong_Check(spec)) t.argument = number_in(spec);
  for (Py_ssize_t i = 0; PyTuple_Check(spec) && i < PyTuple_GET_SIZE(spec); ++i)
    t.parts.push_back(parse_target(PyTuple_GET_ITEM(spec, i)));
  return t;
}

// None: it is no argument of the next iteration.
std::vector<uint32_t> parse_numbers(PyObject* spec) {
  std::vector<uint32_t> all;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(spec); ++i) {
    PyObject* each = PyTuple_GET_ITEM(spec, i);
    all.push_back(each == Py_None ? kNone : number_in(each));
  }
  return all;
}

RegionLoop parse_loop(PyObject* spec) {
  uint32_t n_added;
  PyObject *target, *left, *carried, *appended;
  if (!PyArg_ParseTuple(spec, "OIO!O!O!", &target, &n_added, &PyTuple_Type, &left, &PyTuple_Type, &carried,
                        &PyTuple_Type, &appended))
    throw PythonError();
  return {parse_target(target), n_added, parse_numbers(left), parse_numbers(carried),
          parse_numbers(appended)};
}

}  // namespace

RegionSpec::RegionSpec() : loop(RegionLoop()) {}

RegionSpec::RegionSpec(PyObject* spec, PyObject* functions) : functions(functions) {
  const char* text;
  PyObject *all, *numbers, *result, *loop_spec;
  if (!PyArg_ParseTuple(spec, "sIO!O!O!O", &text, &n_args, &PyTuple_Type, &all, &PyTuple_Type, &numbers,
                        &PyTuple_Type, &result, &loop_spec))
    throw PythonError();
  name = text;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all); ++i)
    sources.push_back(parse_source(PyTuple_GET_ITEM(all, i)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); ++i)
    ints.push_back(PyLong_AsLong(PyTuple_GET_ITEM(numbers, i)));
  output = parse_output(result);
  if (loop_spec != Py_None) loop = parse_loop(loop_spec);
  if (PyErr_Occurred()) throw PythonError();
}

}  // namespace dyc::py
