// A trainer's state, and the text it is written as, to go on training another day:
//
//   #Trainer# 1 AdamTrainer
//   learning_rate 0.001
//   ... one number per line
//   #State# {4,3} 12 2 1 0 /W        dims, elements, arrays, are they there, means, name
//   ... a line of numbers for each array, then one for the mean
//   #End#
//
// The values of the parameters are not in it: they are saved with their collection.
#pragma once
#include <string>

#include "model/trainers.h"

namespace dyc {

struct ParameterState {
  std::string name, dims;
  size_t size;                             // elements
  int wanted_arrays;                       // of the rule
  std::vector<std::vector<float>> arrays;  // none: all zero
  MovingAverage::Mean mean;
};

struct TrainerState {
  enum class Average { none, cumulative, exponential };
  std::string kind;  // Trainer::name()
  float learning_rate = 0.f, clip_threshold = 0.f;
  bool sparse_updates = true;
  uint64_t updates = 0, status_updates = 0, status_clips = 0, cycle = 0;
  Average average = Average::none;
  uint32_t average_every = 1;
  float average_beta = 0.f;
  std::vector<ParameterState> parameters, lookups;  // in the order of the collection
};

// RuntimeError, which begins with `call`, while the parameters have the values of a moving average.
void refuse_averaged(const Trainer& trainer, const char* call);
// The same. Without `contents`: arrays and means are left out, and averages do not matter.
TrainerState trainer_state(Trainer& trainer, const char* call, bool contents = true);
// The caller has checked that kind, names, sizes and numbers of arrays are the trainer's own.
void set_trainer_state(Trainer& trainer, TrainerState state);

// Written under another name first, so that a crash leaves the old file. RuntimeError: cannot be written.
void save_trainer(Trainer& trainer, const std::string& path);

// RuntimeError: cannot be read, is not such a file, or is of another trainer or other parameters; it names
// line, expected and found, and the trainer is as before.
void populate_trainer(Trainer& trainer, const std::string& path);

}  // namespace dyc
