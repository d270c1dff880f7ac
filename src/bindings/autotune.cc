// The tuning table of the CPU executor (exec/cpu/autotune.h), for `compile --profile` and for hints.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/debug.h"
#include "exec/cpu/autotune.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

using Line = std::tuple<std::string, std::vector<std::string>, std::vector<int64_t>, int64_t, std::string>;

size_t install(const std::vector<Line>& lines, int threads) {
  std::vector<TuningEntry> table;
  for (const auto& [knob, ops, dims, size, variant] : lines)
    table.push_back({knob, ops, dims, size, variant});
  return install_tuning_table(table, threads);
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
        "Uses this tuning table (knob, ops, dims, size, variant) from now on, with so many threads; returns "
        "how "
        "many lines were not understood.");
  m.def("_measure_variants", &measure_variants, "on"_a, "Times all variants of all work by turns.");
  m.def("_measurements", &measured,
        "What _measure_variants() has found: variants compared with the default.");
  m.def("_variants", &all_variants, "The variants of each knob, the default first.");
}

}  // namespace dyc::py
