// ColumnRuns of exec/cuda/column_runs.h as C functions for ctypes.
#include "exec/cuda/column_runs.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {

// Columns at these offsets, appended as runs of so many: the last one may be shorter.
dyc::ColumnRuns columns_at(const int64_t* at, int64_t count, int64_t rows, int64_t together) {
  std::vector<dyc::ColumnRuns::Run> runs;
  for (int64_t j = 0; j < count;) {
    int64_t n = 1;  // evenly spaced ones
    while (n < together && j + n < count && at[j + n] - at[j + n - 1] == at[j + 1] - at[j]) ++n;
    append(runs, {j, n, {at[j]}, {n > 1 ? at[j + 1] - at[j] : 0}});
    j += n;
  }
  return {std::move(runs), rows};
}

}  // namespace

// The column of each offset that is looked for, -1: none, goes to `found`, and how many follow it to `rest`,
// whose offsets grow by `step`. Returns the comparisons made.
API int64_t find_columns(const int64_t* at, int64_t count, int64_t rows, int64_t together,
                         const int64_t* offsets, int64_t looked_for, int64_t* found, int64_t* rest,
                         int64_t* step) {
  int64_t comparisons = 0;
  const auto less = [&](int64_t a, int64_t b) {
    ++comparisons;
    return a < b;
  };
  const dyc::ColumnRuns columns = columns_at(at, count, rows, together);
  for (int64_t i = 0; i < looked_for; ++i) {
    const auto one = columns.find(offsets[i], less).value_or(dyc::FoundColumn{-1, 0, 0});
    found[i] = one.column, rest[i] = one.rest, step[i] = one.step;
  }
  return comparisons;
}

API int64_t same_columns(const int64_t* a, int64_t a_count, int64_t a_together, const int64_t* b,
                         int64_t b_count, int64_t b_together) {
  return columns_at(a, a_count, 1, a_together) == columns_at(b, b_count, 1, b_together);
}

API int64_t count_runs(const int64_t* at, int64_t count, int64_t together) {
  return static_cast<int64_t>(columns_at(at, count, 1, together).runs().size());
}
