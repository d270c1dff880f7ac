// Matrix products over columns that are stored anywhere: the column of each operand is found through a stride
// or an index.
//
// All matrices are column-major float. Every element of a result is one sequence of additions that depends
// only on the length of the sum: never on the number of columns, the ranges a caller splits the work into, or
// the tile an element falls into. So a column computed alone has the bits it has in a batch, and threads do
// not change results. Long sums are made of blocks; what is there already is added to a whole block.
#pragma once
#include <stdint.h>

namespace dyc {

// Column j starts at base + (index ? index[j] : j * stride).
struct Cols {
  float* base;
  int64_t stride;
  const int64_t* index;
};
struct ConstCols {
  const float* base;
  int64_t stride;
  const int64_t* index;
};

struct Range {
  int64_t begin, end;
};

struct Product {
  int64_t m;  // W {m,k}
  const float* w;
  int64_t ld;
  ConstCols dy;
};

// One set of kernels per instruction set. Ranges select what is computed; pointers are those of the whole
// operands.
struct GemmKernels {
  // Forward. y_j = start_j + W x_j; a start without a base: 0.  W {m,k}, x_j {k}, start_j {m} -> y_j {m};
  // rows in [0,m), cols of x, start and y. The columns y_j are distinct; start_j may be y_j.
  void (*nn)(Range rows, Range cols, int64_t k, const float* w, int64_t ld, ConstCols x, ConstCols start,
             Cols y);

  // Gradient of the inputs. dx_j += W^T dy_j.  W {m,k}, dy_j {m} -> dx_j {k}; ks in [0,k).
  // Columns dx_j may repeat: they are added in order of j.
  void (*tn)(Range ks, Range cols, int64_t m, const float* w, int64_t ld, ConstCols dy, Cols dx);
  // The same of `n` products of one input, summed before they are added: dx_j += sum_i W_i^T dy_ij.
  void (*tn_sum)(Range ks, Range cols, const Product* products, int n, Cols dx);

  // Gradient of the weights. dW += sum_j dy_j x_j^T.  dy_j {m}, x_j {k} -> dW {m,k}; rows in [0,m), ks in
  // [0,k). `unset`: dW holds nothing yet and counts as 0, for n > 0.
  void (*nt)(Range rows, Range ks, int64_t n, ConstCols dy, ConstCols x, float* dw, int64_t ld, bool unset);

  // Gradient of a bias. db += sum_j dy_j, column after column.  dy_j {m} -> db {m}; rows in [0,m).
  void (*sum)(Range rows, int64_t n, ConstCols dy, float* db);

  // sum + low += part, element by element; sum += low: how the pieces of long sums are added up.
  void (*add_parts)(float* sum, float* low, const float* part, int64_t n);
  void (*join_parts)(float* sum, const float* low, int64_t n);

  int lanes;                     // floats in a vector: ranges of rows split best at multiples of 4 * lanes
  int64_t tn_longest, tn_piece;  // tn() sums a longer m in pieces of so many rows
  int64_t nt_block, nt_longest;  // nt() sums columns in blocks, and more columns in pieces of nt_longest
};

const GemmKernels& gemm_kernels_baseline();
const GemmKernels& gemm_kernels_avx2();    // x86 only
const GemmKernels& gemm_kernels_avx512();  // x86 only

}  // namespace dyc
