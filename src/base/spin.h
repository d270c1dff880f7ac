// Waiting for another thread without sleeping, for a short time.
#pragma once
#include <chrono>

#include "base/platform.h"
#include "base/tuning.h"

namespace dyc {

// Spins until done() or the time is over; says whether done().
template <class Done>
bool spin_until(Done done, std::chrono::nanoseconds time) {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < tuning::kSpinChecks; i++) {
      if (done()) return true;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() - start < time);
  return false;
}

}  // namespace dyc
