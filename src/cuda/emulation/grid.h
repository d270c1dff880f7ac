// Runs the threads of a grid on the host, each on a stack of its own as soon as it waits for another.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cuda/driver/backend.h"
#include "cuda/emulation/emulation.h"

namespace dyc::cuda {

// The order in which threads and blocks go: a missing barrier shows in one of them.
enum class Order { forward, backward };

// Runs all threads. Throws RuntimeError where they wait for each other in vain.
void run_grid(emulation::Run run, const Grid& grid, void** args, Order order);

}  // namespace dyc::cuda
