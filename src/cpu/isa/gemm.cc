// The GEMM kernels of one instruction set.
#include "cpu/isa/column_sum.h"
#include "cpu/isa/gemm_nn.h"
#include "cpu/isa/gemm_nt.h"
#include "cpu/isa/gemm_tn.h"

namespace dyc::DYC_ISA {

// The rows of W in [0, ld) are few: y_j = start_j + (W^T)^T x_j by dot products.
static void nn_few_rows(Range cols, int64_t k, const float* w, int64_t m, ConstCols x, ConstCols start,
                        Cols y) {
  with_constant<kFewRows>(m, [&](auto rows) {  // copies of so few floats are not worth a call
    constexpr size_t kBytes = decltype(rows)::value * sizeof(float);
    for (int64_t j = cols.begin; j < cols.end; j++) {
      if (!start.base) __builtin_memset(col(y, j), 0, kBytes);
      else __builtin_memmove(col(y, j), col(start, j), kBytes);
    }
  });
  static thread_local Scratch scratch;
  const Product product{k, transposed(w, m, k, scratch), k, x};
  gemm_tn_sum({0, m}, cols, &product, 1, y);
}

static void nn(Range rows, Range cols, int64_t k, const float* w, int64_t ld, ConstCols x, ConstCols start,
               Cols y) {
  if (ld <= kFewRows && k > 0 && rows.begin == 0 && rows.end == ld) nn_few_rows(cols, k, w, ld, x, start, y);
  else gemm_nn(rows, cols, k, w, ld, x, start, y);
}

// Of one product whose sums are short: dx_j = dx_j + W^T dy_j by columns of W^T.
static void tn_sum(Range ks, Range cols, const Product* products, int n, Cols dx) {
  const Product& p = products[0];
  if (n != 1 || p.m > kFewRows || p.ld != p.m || ks.begin >= ks.end)
    return gemm_tn_sum(ks, cols, products, n, dx);
  static thread_local Scratch scratch;
  const int64_t k = ks.end - ks.begin;
  const float* w = transposed(p.w + ks.begin * p.m, p.m, k, scratch);
  Cols to = dx;
  to.base += ks.begin;
  gemm_nn({0, k}, cols, p.m, w, k, p.dy, {to.base, to.stride, to.index}, to);
}

static void tn(Range ks, Range cols, int64_t m, const float* w, int64_t ld, ConstCols dy, Cols dx) {
  const Product product{m, w, ld, dy};
  tn_sum(ks, cols, &product, 1, dx);
}

// Rows of dW that fill no vector, and enough columns to pay for moving dW twice.
DYC_INLINE bool nt_across(Range rows, Range ks, int64_t n, int64_t ld) {
  if (rows.begin != 0 || rows.end != ld || ks.end - ks.begin < ld) return false;
  return ld == 1 || (ld <= kFewRows && ld < kLanes && n > kNtStreamCols && n >= kNtAcrossCols * ld);
}

// dW^T += sum_j x_j dy_j^T where that fills vectors: the same chains of additions.
static void nt(Range rows, Range ks, int64_t n, ConstCols dy, ConstCols x, float* dw, int64_t ld,
               bool unset) {
  if (!nt_across(rows, ks, n, ld)) return gemm_nt(rows, ks, n, dy, x, dw, ld, unset);
  if (ld == 1) return gemm_nt(ks, rows, n, x, dy, dw, ks.end, unset);
  const int64_t m = ld, k = ks.end - ks.begin;
  float* const from = dw + ks.begin * m;
  static thread_local Scratch scratch;
  float* const across = scratch.get(m * k);
  if (!unset) transpose(from, m, k, across);
  gemm_nt(ks, rows, n, x, dy, across - ks.begin, k, unset);
  transpose_back(across, m, k, from);
}

}  // namespace dyc::DYC_ISA

#define DYC_JOIN2(a, b) a##b
#define DYC_JOIN(a, b) DYC_JOIN2(a, b)

namespace dyc {

const GemmKernels& DYC_JOIN(gemm_kernels_, DYC_ISA)() {
  using namespace DYC_ISA;
  static constexpr GemmKernels kernels{
      nn,
      tn,
      tn_sum,
      nt,
      column_sum,
      [](float* sum, float* low, const float* part, int64_t n) { add_parts(sum, low, part, n); },
      [](float* sum, const float* low, int64_t n) { join_parts(sum, low, n); },
      kLanes,
      kTnChunk,
      kTnPiece,
      kNtBlock,
      kNtLong};
  return kernels;
}

}  // namespace dyc
