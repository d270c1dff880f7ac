// The text a trainer's state is written as, to go on training another day:
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

// Written under another name first, so that a crash leaves the old file. RuntimeError: cannot be written.
void save_trainer(Trainer& trainer, const std::string& path);

// RuntimeError: cannot be read, is not such a file, or is of another trainer or other parameters; it names
// line, expected and found, and the trainer is as before.
void populate_trainer(Trainer& trainer, const std::string& path);

}  // namespace dyc
