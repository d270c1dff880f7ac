#pragma once
#include <algorithm>
#include <cstdint>

namespace dyc {

// Part of an arena, as offsets in floats.
struct ArenaRange {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin == end; }
  bool meets(const ArenaRange& o) const { return begin < o.end && o.begin < end; }
  void include(const ArenaRange& o) {
    if (o.empty()) return;
    *this = empty() ? o : ArenaRange{std::min(begin, o.begin), std::max(end, o.end)};
  }
};

}  // namespace dyc
