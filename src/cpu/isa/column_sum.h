// db += sum_j dy_j, in blocks of columns.
#pragma once
#include "cpu/isa/gemm_common.h"

namespace dyc::DYC_ISA {

// to (+)= the sum of C columns
template <int C>
DYC_TILE sum_block(int64_t rows, const float* const* dys, float* to, bool add) {
  const float* dy[C];
  DYC_UNROLL for (int c = 0; c < C; c++) dy[c] = dys[c];
  each_vector(rows, [&](int64_t r, auto get, auto, auto put) __attribute__((always_inline)) {
    V acc = get(dy[0] + r);
    DYC_UNROLL for (int c = 1; c < C; c++) acc = acc + get(dy[c] + r);
    put(to + r, add ? get(to + r) + acc : acc);
  });
}

static void column_sum(Range rows, int64_t n, ConstCols dy, float* db) {
  constexpr int64_t kBlock = kSumBlock;
  const int64_t height = rows.end - rows.begin;
  const float* dys[kBlock];
  const auto block = [&](int64_t j, float* to, bool add) {
    const int64_t count = min_of(kBlock, n - j);
    for (int64_t c = 0; c < count; c++) dys[c] = col(dy, j + c) + rows.begin;
    with_constant<kBlock>(count, [&](auto c) { sum_block<decltype(c)::value>(height, dys, to, add); });
  };
  db += rows.begin;
  if (n <= 0 || height <= 0) return;
  if (n <= kBlock) return block(0, db, true);
  static thread_local Scratch scratch;
  float *part = scratch.get(2 * height), *low = part + height;
  clear(low, height);
  for (int64_t j = 0; j < n; j += kBlock) {
    block(j, part, false);
    add_parts(db, low, part, height);
  }
  join_parts(db, low, height);
}

}  // namespace dyc::DYC_ISA
