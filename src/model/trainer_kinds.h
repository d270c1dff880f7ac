// The trainers by name.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "model/trainers.h"

namespace dyc {

// An argument of a constructor: its name, its default as Python writes it, and its name before DyNet 2.1.
struct TrainerNumber {
  const char *name, *standard, *legacy = nullptr;
};

struct TrainerKind {
  const char* name;
  std::vector<TrainerNumber> numbers;  // kMostNumbers at most
  std::unique_ptr<Trainer> (*make)(std::shared_ptr<Collection> m, const float* numbers);

  static constexpr size_t kMostNumbers = 5;
};

constexpr size_t kTrainerKinds = 10;
extern const std::array<TrainerKind, kTrainerKinds> trainer_kinds;

}  // namespace dyc
