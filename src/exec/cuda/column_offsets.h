// Where the columns of a matrix are in an arena.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "exec/cuda/arena_range.h"

namespace dyc {

// Which of `count` columns, `step` apart, begins at the offset?
inline std::optional<int64_t> column_number(int64_t offset, int64_t first, int64_t step, int64_t count) {
  const int64_t d = offset - first;
  if (step <= 0 || d < 0 || d % step != 0 || d / step >= count) return {};
  return d / step;
}

// Columns that are found by their offsets: at once where these are evenly spaced, else by bisection.
class ColumnOffsets {
 public:
  ColumnOffsets() = default;
  ColumnOffsets(std::vector<int64_t> at, int64_t rows) : at_(std::move(at)) {
    if (at_.empty()) return;
    for (const int64_t offset : at_) range_.include({offset, offset + rows});
    step_ = at_.size() > 1 ? at_[1] - at_[0] : 1;
    for (size_t j = 1; j < at_.size() && step_ > 0; ++j)
      if (at_[j] - at_[j - 1] != step_) step_ = 0;
    if (step_ > 0) return;
    for (size_t j = 0; j < at_.size(); ++j) ascending_.emplace_back(at_[j], static_cast<int64_t>(j));
    std::sort(ascending_.begin(), ascending_.end());
  }

  int64_t operator[](size_t column) const { return at_[column]; }
  const ArenaRange& range() const { return range_; }

  // The first column that begins there.
  template <class Less = std::less<>>
  std::optional<int64_t> find(int64_t offset, const Less& less = {}) const {
    if (offset < range_.begin || offset >= range_.end) return {};
    if (step_ > 0) return column_number(offset, at_[0], step_, static_cast<int64_t>(at_.size()));
    const auto before = [&](const std::pair<int64_t, int64_t>& one, int64_t o) { return less(one.first, o); };
    const auto found = std::lower_bound(ascending_.begin(), ascending_.end(), offset, before);
    if (found == ascending_.end() || found->first != offset) return {};
    return found->second;
  }

 private:
  std::vector<int64_t> at_;
  ArenaRange range_;
  int64_t step_ = 0;                                    // 0: not evenly spaced
  std::vector<std::pair<int64_t, int64_t>> ascending_;  // then: offsets and their columns
};

}  // namespace dyc
