// The state of trainers as dicts: what state_dict() and load_state_dict() of
// dynet_compat/files/state_dicts.py are made of.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "base/error.h"
#include "bindings/collection_caster.h"
#include "bindings/model.h"
#include "model/trainer_file.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

pb::array as_array(const std::vector<float>& values) {
  return pb::array_t<float>(static_cast<pb::ssize_t>(values.size()), values.data());
}

pb::list to_dicts(const std::vector<ParameterState>& states) {
  pb::list all;
  for (const ParameterState& s : states) {
    pb::dict d;
    pb::list arrays;
    for (const auto& array : s.arrays) arrays.append(as_array(array));
    d["arrays"] = arrays;
    d["wanted_arrays"] = s.wanted_arrays;
    d["mean"] = s.mean.count ? pb::object(as_array(s.mean.values)) : pb::none();
    d["mean_count"] = s.mean.count;
    all.append(d);
  }
  return all;
}

// What state_dict() is made of (dynet_compat/files/state_dicts.py); flat arrays, in the order of the
// collection. `contents`: with arrays and means.
pb::dict state_of(const pb::object& self, bool contents) {
  const TrainerState s = trainer_state(trainer_of(self.ptr()), "Trainer.state_dict()", contents);
  pb::dict d;
  d["trainer"] = s.kind;
  d["learning_rate"] = s.learning_rate;
  d["clip_threshold"] = s.clip_threshold;
  d["sparse_updates"] = s.sparse_updates;
  d["updates"] = s.updates;
  d["status_updates"] = s.status_updates;
  d["status_clips"] = s.status_clips;
  d["cycle"] = s.cycle;
  d["average"] = static_cast<int>(s.average);
  d["average_every"] = s.average_every;
  d["average_beta"] = s.average_beta;
  d["parameters"] = to_dicts(s.parameters);
  d["lookups"] = to_dicts(s.lookups);
  return d;
}

void from_dicts(const pb::object& dicts, std::vector<ParameterState>& states) {
  const auto list = dicts.cast<std::vector<pb::dict>>();
  if (list.size() != states.size())
    throw ValueError("_set_trainer_state(): expected a state for each parameter");
  for (size_t i = 0; i < states.size(); ++i) {
    ParameterState& s = states[i];
    s.arrays = list[i]["arrays"].cast<std::vector<std::vector<float>>>();
    s.mean.count = list[i]["mean_count"].cast<uint64_t>();
    if (s.mean.count) s.mean.values = list[i]["mean"].cast<std::vector<float>>();
    bool fits = s.arrays.empty() || s.arrays.size() == static_cast<size_t>(s.wanted_arrays);
    for (const auto& array : s.arrays) fits = fits && array.size() == s.size;
    if (!fits || (s.mean.count && s.mean.values.size() != s.size))
      throw ValueError(text("_set_trainer_state(): expected arrays of ", s.size, " elements for ", s.name));
  }
}

void set_state(const pb::object& self, const pb::dict& d) {
  Trainer& trainer = trainer_of(self.ptr());
  refuse_averaged(trainer, "Trainer.load_state_dict()");
  TrainerState s = trainer_state(trainer, "Trainer.load_state_dict()", false);
  s.learning_rate = d["learning_rate"].cast<float>();
  s.clip_threshold = d["clip_threshold"].cast<float>();
  s.sparse_updates = d["sparse_updates"].cast<bool>();
  s.updates = d["updates"].cast<uint64_t>();
  s.status_updates = d["status_updates"].cast<uint64_t>();
  s.status_clips = d["status_clips"].cast<uint64_t>();
  s.cycle = d["cycle"].cast<uint64_t>();
  const int average = d["average"].cast<int>();
  if (average < 0 || average > 2) throw ValueError(text("_set_trainer_state(): got average ", average));
  s.average = static_cast<TrainerState::Average>(average);
  s.average_every = d["average_every"].cast<uint32_t>();
  s.average_beta = d["average_beta"].cast<float>();
  from_dicts(d["parameters"], s.parameters);
  from_dicts(d["lookups"], s.lookups);
  set_trainer_state(trainer, std::move(s));
}

}  // namespace

void add_trainer_state(PyObject* module) {
  auto m = pb::reinterpret_borrow<pb::module_>(module);
  m.def("_trainer_state", &state_of, pb::arg("trainer"), pb::arg("contents"));
  m.def(
      "_trainer_collection", [](const pb::object& trainer) { return trainer_of(trainer.ptr()).collection(); },
      pb::arg("trainer"));
  m.def("_set_trainer_state", &set_state, pb::arg("trainer"), pb::arg("state"));
}

}  // namespace dyc::py
