// db += sum_j dy_j. One chain of additions per element, in order of j.
#pragma once
#include "cpu/isa/gemm_common.h"

namespace dyc::DYC_ISA {

// Some columns at a time: db passes through the registers once for all of them.
inline constexpr int kSumCols = 8;

template <int C>
DYC_TILE sum_block(int64_t rows, const float* const* dys, float* db) {
  const float* dy[C];
  DYC_UNROLL for (int c = 0; c < C; c++) dy[c] = dys[c];
  each_vector(rows, [&](int64_t r, auto get, auto put) __attribute__((always_inline)) {
    V acc = get(db + r);
    DYC_UNROLL for (int c = 0; c < C; c++) acc = acc + get(dy[c] + r);
    put(db + r, acc);
  });
}

static void column_sum(Range rows, int64_t n, ConstCols dy, float* db) {
  const float* dys[kSumCols];
  for (int64_t j = 0; j < n; j += kSumCols) {
    const int64_t count = min_of(kSumCols, n - j);
    for (int64_t c = 0; c < count; c++) dys[c] = col(dy, j + c) + rows.begin;
    with_constant<kSumCols>(
        count, [&](auto c) { sum_block<decltype(c)::value>(rows.end - rows.begin, dys, db + rows.begin); });
  }
}

}  // namespace dyc::DYC_ISA
