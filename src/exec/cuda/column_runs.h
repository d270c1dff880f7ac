// Where the columns of matrices are in an arena: runs of evenly spaced ones.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "exec/cuda/arena_range.h"

namespace dyc {

// Columns [column, column + count) of N matrices: the offset of the first one in each, and from one to the
// next.
template <size_t N>
struct ColumnRun {
  int64_t column, count;
  std::array<int64_t, N> at, step;
  int64_t end() const { return column + count; }
  int64_t offset(size_t matrix, int64_t c) const { return at[matrix] + c * step[matrix]; }
};

// Appends a run: to the last one where it goes on as evenly.
template <size_t N>
void append(std::vector<ColumnRun<N>>& runs, const ColumnRun<N>& next) {
  if (!runs.empty() && runs.back().end() == next.column) {
    ColumnRun<N>& last = runs.back();
    std::array<int64_t, N> step;
    bool even = true;
    for (size_t k = 0; k < N; ++k) {
      step[k] = last.count > 1 ? last.step[k] : next.at[k] - last.at[k];
      even = even && next.at[k] == last.at[k] + last.count * step[k];
      even = even && (next.count == 1 || next.step[k] == step[k]);
    }
    if (even) {
      last.step = step;
      last.count += next.count;
      return;
    }
  }
  runs.push_back(next);
}

// A column that was found: `rest` more follow it, each `step` further on in memory.
struct FoundColumn {
  int64_t column, rest, step;
  // How many there are from it on that are so far apart.
  int64_t count(int64_t apart) const { return step == apart ? rest + 1 : 1; }
};

// Which of `count` columns, `step` apart, begins at the offset?
inline std::optional<FoundColumn> column_at(int64_t offset, int64_t first, int64_t step, int64_t count) {
  const int64_t d = offset - first;
  if (d == 0 && count > 0) return FoundColumn{0, step > 0 ? count - 1 : 0, step};
  if (step <= 0 || d < 0 || d % step != 0 || d / step >= count) return {};
  return FoundColumn{d / step, count - 1 - d / step, step};
}

// The columns of one matrix, which are found by their offsets: at once where they are evenly spaced, else by
// bisection.
class ColumnRuns {
 public:
  using Run = ColumnRun<1>;
  ColumnRuns() = default;
  // Runs of all columns in their order.
  ColumnRuns(std::vector<Run> runs, int64_t rows) : runs_(std::move(runs)) {
    for (const Run& run : runs_)
      for (const int64_t at : {run.at[0], run.offset(0, run.count - 1)}) range_.include({at, at + rows});
    is_even_ = runs_.size() == 1 && (runs_[0].count == 1 || runs_[0].step[0] > 0);
    if (is_even_) return;
    for (const Run& run : runs_)
      for (int64_t c = 0; c < run.count; ++c) ascending_.emplace_back(run.offset(0, c), run.column + c);
    std::sort(ascending_.begin(), ascending_.end());
  }

  const std::vector<Run>& runs() const { return runs_; }
  const ArenaRange& range() const { return range_; }
  int64_t count() const { return runs_.empty() ? 0 : runs_.back().end(); }

  // The first column that begins there.
  template <class Less = std::less<>>
  std::optional<FoundColumn> find(int64_t offset, const Less& less = {}) const {
    if (offset < range_.begin || offset >= range_.end) return {};
    if (is_even_) return column_at(offset, runs_[0].at[0], runs_[0].step[0], runs_[0].count);
    const auto before = [&](const std::pair<int64_t, int64_t>& one, int64_t o) { return less(one.first, o); };
    const auto found = std::lower_bound(ascending_.begin(), ascending_.end(), offset, before);
    if (found == ascending_.end() || found->first != offset) return {};
    const auto run = std::partition_point(runs_.begin(), runs_.end(),
                                          [&](const Run& r) { return r.end() <= found->second; });
    return FoundColumn{found->second, run->end() - 1 - found->second, run->step[0]};
  }

  // Are the columns at the same offsets?
  bool operator==(const ColumnRuns& other) const {
    if (count() != other.count()) return false;
    auto a = runs_.begin(), b = other.runs_.begin();
    for (int64_t column = 0; column < count();) {
      const int64_t end = std::min(a->end(), b->end());
      for (const int64_t c : {column, end - 1})  // evenly spaced in between
        if (a->offset(0, c - a->column) != b->offset(0, c - b->column)) return false;
      column = end;
      a += a->end() == end;
      b += b->end() == end;
    }
    return true;
  }

 private:
  std::vector<Run> runs_;
  ArenaRange range_;
  bool is_even_ = false;                                // one run, upwards
  std::vector<std::pair<int64_t, int64_t>> ascending_;  // else: offsets and their columns
};

}  // namespace dyc
