// Runs the threads of a grid on the host, each on a stack of its own as soon as it waits for another.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cuda/driver/backend.h"
#include "cuda/emulation/emulation.h"

namespace dyc::cuda {

// The order in which threads and blocks go: a missing barrier shows in one of them. Random: they take turns
// wherever they meet and, where kernels are compiled with DYC_RACES, before some of their accesses.
struct Order {
  enum Kind { forward, backward, random } kind = forward;
  uint32_t seed = 1;
};

// Runs all threads. Throws RuntimeError where they wait for each other in vain and, with DYC_RACES, where
// nothing orders two accesses to a word (races.h).
void run_grid(emulation::Run run, const Grid& grid, void** args, Order order);

}  // namespace dyc::cuda
