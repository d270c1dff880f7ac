// Numbers that decide when bindings do what: limits of regions, of free lists and of caches. "Guess": chosen
// by reasoning, and not measured since.
#pragma once
#include <cstddef>
#include <cstdint>

namespace dyc::py::tuning {

// ---- regions (region.h)

// Replays of a specialisation until the statements run again and are compared. Guess: 0.1 % of the gain.
inline constexpr uint64_t kRevalidateEvery = 1024;
// Calls of a region of which one is timed, for the report. Two readings of the clock (0.4 us) are 1 % of 64
// calls.
inline constexpr uint64_t kTimedCalls = 64;
// Specialisations of one region. Guess: a script with more sizes than this has no fixed sequence of ops.
inline constexpr size_t kSpecialisations = 64;
// A region that is replayed less often than kFairHits times for each miss is disabled, after kTrialMisses
// misses. Guess: tracing costs a few times what the statements cost.
inline constexpr uint64_t kFairHits = 4;
inline constexpr uint64_t kTrialMisses = 256;
// Runs that could not be learned from until a region without specialisations is disabled. Guess.
inline constexpr uint64_t kRefusals = 64;
// Runs with the same value of an index until it becomes a constant. Guess.
inline constexpr uint32_t kRunsUntilConstant = 8;
// Values in the lists that a region reads; reading more would cost more than the statements. Guess.
inline constexpr uint32_t kMostParts = 128;
// Iterations of a loop in one call; then Python looks for signals. At 1 us each, a handler waits 0.3 ms.
inline constexpr size_t kIterations = 256;
// Items of a list that are looked at to see whether releasing it runs code of the script. Guess.
inline constexpr Py_ssize_t kShortList = 16;
// Dicts that are watched for changes (Python 3.12 on). Guess: 64 bytes each.
inline constexpr size_t kWatchedDicts = 4096;

}  // namespace dyc::py::tuning
