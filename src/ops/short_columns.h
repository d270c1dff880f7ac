// Columns of few rows, one in each lane of vectors: one column at a time would leave most lanes idle. The
// result of a column depends neither on its lane nor on the other columns.
#pragma once
#include "ops/element_loops.h"
#include "ops/tuning.h"

namespace dyc {

template <class I>
DYC_INLINE bool is_short_column(size_t n) {
  return !is_thread_group<I> && I::lanes > 1 && n <= tuning::kShortColumn;
}

// Up to I::lanes columns of n rows, one after the other in memory.
template <class I>
struct ShortColumns {
  using V = typename I::V;
  const float* x;
  size_t n;
  int count;
  V row[tuning::kShortColumn];  // 0 in lanes without a column

  DYC_INLINE ShortColumns(const float* columns, size_t rows, int of) : x(columns), n(rows), count(of) {
    for (size_t i = 0; i < n; ++i) row[i] = V{};
    for (int j = 0; j < count; ++j)
      for (size_t i = 0; i < n; ++i) row[i][j] = x[static_cast<size_t>(j) * n + i];
  }
  DYC_INLINE V greatest(float least) const {
    V top = fill<I>(least);
    for (size_t i = 0; i < n; ++i) top = vmax(top, row[i]);
    return top;
  }
  // f(element) in each place, in as few vectors as there are columns or rows; f works lane by lane. `a` goes
  // with the column.
  template <class F>
  DYC_INLINE void apply(V a, F f) {
    if (count > 1) {
      for (size_t i = 0; i < n; ++i) row[i] = f(row[i], a);
      return;
    }
    const V same = fill<I>(first_lane<I>(a));
    float y[tuning::kShortColumn];
    each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { c.put(y + i, f(c.get(x + i), same)); });
    for (size_t i = 0; i < n; ++i) row[i] = fill<I>(y[i]);
  }
  // Of g(row); four sums, so that rounding errors stay small.
  template <class G>
  DYC_INLINE V sum(G g) const {
    V part[4] = {};
    for (size_t i = 0; i < n; ++i) part[i % 4] += g(i);
    return (part[0] + part[2]) + (part[1] + part[3]);
  }
  template <class G>  // y = g(row, i)
  DYC_INLINE void put(float* y, G g) const {
    for (size_t i = 0; i < n; ++i) {
      const V v = g(i);
      for (int j = 0; j < count; ++j) y[static_cast<size_t>(j) * n + i] = v[j];
    }
  }
  template <class G>  // y += g(row, i)
  DYC_INLINE void add(float* y, G g) const {
    for (size_t i = 0; i < n; ++i) {
      const V v = g(i);
      for (int j = 0; j < count; ++j) y[static_cast<size_t>(j) * n + i] += v[j];
    }
  }
};

// f(first column, how many) for the columns that go through vectors together.
template <class I, class F>
DYC_INLINE void each_lanes(size_t columns, F f) {
  for (size_t j = 0; j < columns; j += I::lanes)
    f(j, columns - j < I::lanes ? static_cast<int>(columns - j) : I::lanes);
}

}  // namespace dyc
