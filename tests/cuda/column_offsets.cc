// ColumnOffsets of exec/cuda/column_offsets.h as a C function for ctypes.
#include "exec/cuda/column_offsets.h"

// The column of each offset that is looked for, -1: none, goes to `found`. Returns the comparisons made.
extern "C" __attribute__((visibility("default"))) int64_t find_columns(const int64_t* at, int64_t count,
                                                                       int64_t rows, const int64_t* offsets,
                                                                       int64_t looked_for, int64_t* found) {
  int64_t comparisons = 0;
  const auto less = [&](int64_t a, int64_t b) {
    ++comparisons;
    return a < b;
  };
  const dyc::ColumnOffsets columns({at, at + count}, rows);
  for (int64_t i = 0; i < looked_for; ++i) found[i] = columns.find(offsets[i], less).value_or(-1);
  return comparisons;
}
