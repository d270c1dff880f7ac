#include "bindings/region_replay.h"

#include <algorithm>

#include "bindings/compute.h"
#include "bindings/tuning.h"

namespace dyc::py {

// ---------------------------------------------------------------- specialisations

void Specialisation::partition_guards(const SourceReader& sources) {
  permanent.assign(sources.parts().size(), {});
  always.clear();
  fast_path = {};
  fast_path.tried = !repeated.first.empty();  // inputs of the trace are not parallel to what is captured
  for (uint32_t i = 0; i < guards.size(); ++i) {
    if (guards[i].kind == Guard::none) continue;
    const uint32_t parts = sources.parts_of(i);
    (parts != kNone && guards[i].is_permanent() ? permanent[parts].sources : always).push_back(i);
  }
}

void Specialisation::confirm(const Specialisation& repeated, const SourceReader& sources) {
  indices.varied.resize(indices.values.size());
  for (size_t i = 0; i < indices.values.size(); ++i)
    indices.varied[i] |= indices.values[i] != repeated.indices.values[i];
  if (++indices.compared >= tuning::kRunsUntilConstant) {
    make_constant_indices();
    partition_guards(sources);
  }
  indices.confirmed = std::all_of(indices.varied.begin(), indices.varied.end(), [](uint8_t v) { return v; });
}

// Indices that never varied become constants: runs with other values are other specialisations.
void Specialisation::make_constant_indices() {
  size_t i = 0;
  for (Guard& g : guards) {
    if (g.kind != Guard::placeholder) continue;
    if (indices.varied[i]) {
      ++i;
      continue;
    }
    g.kind = Guard::index;
    g.number = indices.values[i];
    trace->make_constant(static_cast<uint32_t>(i), indices.values[i]);
    indices.values.erase(indices.values.begin() + static_cast<ptrdiff_t>(i));
    indices.varied.erase(indices.varied.begin() + static_cast<ptrdiff_t>(i));
  }
}

namespace {

// Of dicts; null: of a dict that was made already.
bool equal_keys(PyObject* a, PyObject* b) {
  if (!a || !b) return a == b;
  if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i)
    if (!is_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  return true;
}

bool same_output(const OutputSpec& a, const OutputSpec& b) {
  const bool constants = a.kind == RegionOutput::constant && b.kind == a.kind;
  if (constants && !is_constant(a.object.get(), b.object.get())) return false;
  const bool keys = a.kind == RegionOutput::dict || a.kind == RegionOutput::part;
  if (keys && b.kind == a.kind && !equal_keys(a.object.get(), b.object.get())) return false;
  return a.kind == b.kind && a.at == b.at && a.number == b.number && a.type == b.type &&
         std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(), same_output);
}

}  // namespace

std::string Specialisation::difference(const Specialisation& other) const {
  if (steps != other.steps) return "other steps of sequences";
  if (!same_output(output, other.output)) return "other results";
  return trace->difference(*other.trace);
}

// ---------------------------------------------------------------- guards

bool Replayer::check(const Specialisation& s, const std::vector<uint32_t>& sources, const Graph& graph,
                     CapturedInputs* inputs) const {
  const SourceValues& values = sources_.values;
  return std::all_of(sources.begin(), sources.end(),
                     [&](uint32_t i) { return s.guards[i].check(values.all[i], values, graph, inputs); });
}

bool Replayer::check_parts(Specialisation& s, uint32_t parts, const Graph& graph,
                           CapturedInputs* inputs) const {
  const PartsVersion& now = sources_.parts()[parts].version;
  if (now.is_known() && now == s.permanent[parts].satisfied_by) return true;
  if (!check(s, s.permanent[parts].sources, graph, inputs)) return false;
  s.permanent[parts].satisfied_by = now;
  return true;
}

bool Replayer::matches(Specialisation& s, const Graph& graph) {
  captured.clear();
  for (uint32_t i = 0; i < sources_.parts().size(); ++i)
    if (!check_parts(s, i, graph, &captured)) return false;
  return check(s, s.always, graph, &captured) && captured.merge(s.repeated) &&
         s.trace->matches(graph, captured.inputs.data(), captured.placeholders.data());
}

// ---------------------------------------------------------------- recording

void Replayer::replay(Specialisation& s) {
  Graph& g = engine().graph;
  const uint32_t before = g.size();
  s.trace->record(g, captured.inputs.data(), captured.placeholders.data());
  finish(s, before);
}

void Replayer::finish(const Specialisation& s, uint32_t before) {
  Engine& e = engine();
  nodes_ += e.graph.size() - before;
  e.timing.region_nodes += e.graph.size() - before;
  if (e.graph.size() > before) e.recorded(e.graph.size() - 1);
  steps_.clear();
  std::vector<NodeId>& nodes = captured.nodes;
  for (const BuilderStep& step : s.steps) {
    nodes.resize(step.positions.size());
    for (size_t i = 0; i < nodes.size(); ++i) nodes[i] = s.trace->nodes()[step.positions[i]];
    steps_.push_back(state_in(sources_.values.all[step.source])->b->core->add_step(e, nodes.data()));
  }
  if (s.n_shared) built_.assign(s.n_shared, nullptr);
}

// ---------------------------------------------------------------- results

PyObject* part_at(PyObject* whole, PyObject* way) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(way); ++i) {
    PyObject* key = PyTuple_GET_ITEM(way, i);
    whole = PyDict_CheckExact(whole) ? PyDict_GetItemWithError(whole, key)
                                     : PySequence_Fast_ITEMS(whole)[PyLong_AsSsize_t(key)];
  }
  return whole;
}

// An object that has several names in the script has them here too.
PyObject* Replayer::build(const OutputSpec& output, const Specialisation& s) {
  switch (output.kind) {
    case RegionOutput::source:
      return Owned(sources_.values.all[output.at]).release();
    case RegionOutput::constant:
      return Owned(output.object.get()).release();
    case RegionOutput::input:
      return Owned(captured.objects[output.at]).release();
    case RegionOutput::part:
      return Owned(part_at(sources_.values.all[output.at], output.object.get())).release();
    default:
      break;
  }
  if (output.number == kNone) return rebuild(output, s);
  if (PyObject* known = built_[output.number]) return Owned(known).release();
  return built_[output.number] = rebuild(output, s);
}

PyObject* Replayer::rebuild(const OutputSpec& output, const Specialisation& s) {
  if (output.kind == RegionOutput::recorded) return make_expression(s.trace->nodes()[output.at], output.type);
  if (output.kind == RegionOutput::state) {
    const Owned prev = Owned::steal(build(output.parts[0], s));
    return next_state(state_in(prev.get()), steps_[output.at]);
  }
  const auto n = static_cast<Py_ssize_t>(output.parts.size());
  if (output.kind == RegionOutput::dict) {
    Owned all = Owned::steal(PyDict_New());
    if (!all) throw PythonError();
    for (Py_ssize_t i = 0; i < n; ++i) {
      const Owned part = Owned::steal(build(output.parts[static_cast<size_t>(i)], s));
      if (PyDict_SetItem(all.get(), PyTuple_GET_ITEM(output.object.get(), i), part.get()) < 0)
        throw PythonError();
    }
    return all.release();
  }
  const bool tuple = output.kind == RegionOutput::tuple;
  Owned all = Owned::steal(tuple ? PyTuple_New(n) : PyList_New(n));
  if (!all) throw PythonError();
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* part = build(output.parts[static_cast<size_t>(i)], s);
    if (tuple) PyTuple_SET_ITEM(all.get(), i, part);
    else PyList_SET_ITEM(all.get(), i, part);
  }
  return all.release();
}

}  // namespace dyc::py
