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
  std::vector<ChosenWay> ways;
  for (const auto& [choice, ops, extents, size, way] : lines)
    ways.push_back({choice, ops, extents, size, way});
  return install_choices(ways, threads);
}

pb::list measured() {
  pb::list rows;
  for (const MeasuredWay& m : measured_choices()) {
    pb::dict d;
    d["choice"] = m.work.choice;
    d["ops"] = m.work.ops;
    d["extents"] = m.work.extents;
    d["size"] = m.work.size;
    d["way"] = m.work.way;
    d["runs"] = m.runs;
    d["rounds"] = m.rounds;
    d["seconds"] = m.seconds;
    d["ratio"] = m.ratio;
    d["low"] = m.low;
    rows.append(d);
  }
  return rows;
}

pb::dict all_ways() {
  pb::dict d;
  for (int c = 0; c < kChoices; ++c) {
    pb::list names;
    for (const Way w : ways_of(static_cast<Choice>(c))) names.append(name_of(w));
    d[name_of(static_cast<Choice>(c))] = names;
  }
  return d;
}

}  // namespace

void add_autotune(pb::module_& m) {
  using namespace pb::literals;
  m.def("_install_tuning", &install, "lines"_a, "threads"_a,
        "Takes these ways (choice, ops, extents, size, way) from now on, with so many threads; returns how "
        "many lines were not understood.");
  m.def("_measure_variants", &measure_choices, "on"_a, "Times all ways of all work by turns.");
  m.def("_measurements", &measured, "What _measure_variants() has found: ways compared with the rule.");
  m.def("_ways_taken", &choices_taken, "How often a way was taken that is not the rule.");
  m.def("_variants", &all_ways, "The ways of each choice, the rule first.");
}

}  // namespace dyc::py
