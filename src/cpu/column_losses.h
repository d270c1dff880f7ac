// Losses of columns that are computed in blocks of rows and never stored as a whole. Their bits are those of
// the op over whole columns.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "cpu/gemm.h"

namespace dyc {

// What backward keeps of a column: the op's Summary.
struct ColumnSummary {
  float values[3];
};

// Kernels of one op. Column j of a block begins at x + j * ld; ids[j] is its index, dy[j] the gradient of its
// loss, or of the element that is picked from it.
struct ColumnLossKernels {
  int64_t block = 0;         // rows of a block; 0: the op has no such kernels
  int64_t reader_bytes = 0;  // of what is kept of a column while it is read
  bool own_first = false;    // begin() reads own[j], the element ids[j] of the column
  void (*begin)(void* readers, int64_t n, const uint32_t* attrs, const float* own) = nullptr;
  void (*read)(void* readers, int64_t n, const float* x, int64_t ld, Range rows,
               const uint32_t* ids) = nullptr;
  void (*finish)(const void* readers, int64_t n, ColumnSummary* summaries, float* y) = nullptr;
  // dx: a block of its own, or x.
  void (*gradient)(const ColumnSummary* summaries, int64_t n, const float* x, int64_t ld, float* dx,
                   int64_t dx_ld, Range rows, const uint32_t* ids, const float* dy) = nullptr;
};

}  // namespace dyc
