// The median of times, of which single ones may be far too long.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace dyc::py {

// Of one value or more, whose order changes.
inline double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace dyc::py
