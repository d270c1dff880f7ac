// Numbers that decide in which order ops go through memory. Chosen by reasoning for 32 KB of first-level
// cache; no measurements are kept. kFilterPiece, kSumBlock, kExpBlock, kShortColumn, kLongRun and kShiftStep
// change results: the order of sums and what exponentials are taken below.
#pragma once
#include <cstddef>
#include <cstdint>

namespace dyc::tuning {

constexpr size_t kMoveTile = 16;     // rows and columns of a tile of a transposed copy
constexpr size_t kPanelColumns = 8;  // columns that LU eliminates at once: 512 rows of them stay in the cache
constexpr int64_t kPoolingRows = 512;  // rows of x whose maxima are kept while a window moves over them
constexpr int64_t kSmallWindow = 16;   // elements of a window of x that are compared without branches
constexpr uint32_t kSumBlock = 16;    // terms of a long sum that are added up before rounding is looked after
constexpr size_t kExpBlock = 64;      // vectors of a run whose exponentials are added up at once
constexpr size_t kShortColumn = 16;   // rows up to which losses have a column in each lane
constexpr size_t kLongRun = 512;      // elements of a softmax that is read in such blocks
constexpr float kShiftStep = 16;      // exponentials up to e^kShiftStep neither overflow nor vanish early
constexpr uint32_t kFilterPiece = 6;  // filters of one piece, where their gradient is a sum over a launch

}  // namespace dyc::tuning
