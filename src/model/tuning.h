// Numbers that decide how trainers share their work among threads, and what builders and files keep. Guesses,
// where no reason stands beside them. Results do not depend on them.
#pragma once
#include <cstddef>

namespace dyc::tuning {

// ---- trainers. Sums are added piece by piece in order, so results do not depend on the number of threads.
constexpr size_t kUpdatePiece = size_t{1} << 13;     // elements of a pass over all parameters, for a thread
constexpr size_t kParallelUpdate = size_t{1} << 17;  // below, waking threads (30 us) takes longer than a pass
constexpr size_t kAveragePiece = size_t{1} << 14;    // elements of a moving average, for a thread
// Floats between the starts of two states, beyond whole pages: a pass over six large buffers that all start
// at the same offset in a page would crowd into few sets of the cache.
constexpr size_t kStateShift = 208;

// ---- builders and files
constexpr size_t kCellTraces = 8;                // of a builder: steps of different kinds that it can replay
constexpr size_t kSettings = 16;                 // of a builder that it knows by their rates
constexpr size_t kTextBuffer = size_t{1} << 20;  // bytes of a text file that are read at a time

}  // namespace dyc::tuning
