// Nanoseconds that the code around calls of the core takes in Python. How long the parts of it take was
// measured on one machine and Python, and how they compare to a region whose statements run is assumed to be
// the same on others, where that one part is measured (hints/call_cost.py).
#pragma once
#include <cstdint>

#include "bindings/tuning.h"

namespace dyc::py {

// False: regions, walks and their replays stay on, however long they take, so that tests do not depend on
// times.
inline bool hints_are_timed = true;

inline double call_cost_scale = 1;  // this machine to that one; guarded by the interpreter lock

// One of tuning::kAround..., on this machine.
inline int64_t around(int64_t measured) {
  return static_cast<int64_t>(call_cost_scale * static_cast<double>(measured));
}

}  // namespace dyc::py
