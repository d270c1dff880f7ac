// Ways of the CPU executor, for `compile --profile` and for hints.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/debug.h"
#include "exec/cpu/autotune.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

using Line = std::tuple<std::string, std::vector<std::string>, std::vector<int64_t>, int64_t, std::string>;

size_t install(const std::vector<Line>& lines, int threads) {
  std::vector<TuningEntry> variants;
  for (const auto& [knob, ops, extents, size, variant] : lines)
    variants.push_back({knob, ops, extents, size, variant});
  return install_tuning_table(variants, threads);
}

pb::list measured() {
  pb::list rows;
  for (const Measurement& m : measurements()) {
    pb::dict d;
    d["choice"] = m.work.knob;
    d["ops"] = m.work.ops;
    d["extents"] = m.work.extents;
    d["size"] = m.work.size;
    d["way"] = m.work.variant;
    d["runs"] = m.runs;
    d["rounds"] = m.rounds;
    d["seconds"] = m.seconds;
    d["ratio"] = m.ratio;
    d["low"] = m.low;
    rows.append(d);
  }
  return rows;
}

pb::dict all_variants() {
  pb::dict d;
  for (int c = 0; c < kTuningKnobs; ++c) {
    pb::list names;
    for (const Variant w : variants_of(static_cast<TuningKnob>(c))) names.append(name_of(w));
    d[name_of(static_cast<TuningKnob>(c))] = names;
  }
  return d;
}

}  // namespace

void add_autotune(pb::module_& m) {
  using namespace pb::literals;
  m.def("_install_tuning", &install, "lines"_a, "threads"_a,
        "Takes these ways (choice, ops, extents, size, way) from now on, with so many threads; returns how "
        "many lines were not understood.");
  m.def("_measure_variants", &measure_variants, "on"_a, "Times all ways of all work by turns.");
  m.def("_measurements", &measured, "What _measure_variants() has found: ways compared with the rule.");
  m.def("_variants", &all_variants, "The ways of each choice, the rule first.");
}

}  // namespace dyc::py
