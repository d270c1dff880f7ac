// Kernels of the losses that are computed in blocks of rows, from the text of their ops.
#pragma once
#include "cpu/column_losses.h"
#include "cpu/simd.h"
#include "ops/exp_sum.h"

namespace dyc::DYC_ISA {

template <class Op, class I> struct ColumnLoss {
  using Reader = typename Op::template Reader<I>;
  using Summary = typename Op::Summary;
  static_assert(sizeof(Summary) == sizeof(ColumnSummary) && alignof(Reader) <= 64);

  // The op's first attribute is then the margin.
  static constexpr bool own_first = requires { Reader::begin(0.f, 0.f); };

  static void begin(void* readers, int64_t n, const uint32_t* attrs, const float* own) {
    for (int64_t j = 0; j < n; ++j) {
      if constexpr (own_first) {
        float margin;
        __builtin_memcpy(&margin, attrs, sizeof margin);
        static_cast<Reader*>(readers)[j] = Reader::begin(margin, own[j]);
      } else {
        static_cast<Reader*>(readers)[j] = {};
      }
    }
  }
  static void read(void* readers, int64_t n, const float* x, int64_t ld, Range rows, const uint32_t* ids) {
    const size_t height = static_cast<size_t>(rows.end - rows.begin);
    for (int64_t j = 0; j < n; ++j, x += ld) {
      Reader reader = static_cast<Reader*>(readers)[j];
      each_block<I>(height, [&](size_t at, size_t count) DYC_LAMBDA {
        reader.read(x + at, count, size_t{ids[j]} - static_cast<size_t>(rows.begin) - at);
      });
      static_cast<Reader*>(readers)[j] = reader;
    }
  }
  static void finish(const void* readers, int64_t n, ColumnSummary* summaries, float* y) {
    for (int64_t j = 0; j < n; ++j) {
      const Summary s = static_cast<const Reader*>(readers)[j].result();
      __builtin_memcpy(summaries + j, &s, sizeof s);
      y[j] = Op::template loss<I>(s);
    }
  }
  static void gradient(const ColumnSummary* summaries, int64_t n, const float* x, int64_t ld, float* dx,
                       int64_t dx_ld, Range rows, const uint32_t* ids, const float* dy) {
    const size_t height = static_cast<size_t>(rows.end - rows.begin);
    for (int64_t j = 0; j < n; ++j, x += ld, dx += dx_ld) {
      Summary s;
      __builtin_memcpy(&s, summaries + j, sizeof s);
      Op::template gradient<I>(s, x, dx, height, size_t{ids[j]} - static_cast<size_t>(rows.begin), dy[j]);
    }
  }
};

template <class Op, class I> constexpr ColumnLossKernels column_loss_kernels() {
  using Kernels = ColumnLoss<Op, I>;
  return {tuning::kExpBlock * I::lanes,
          sizeof(typename Kernels::Reader),
          Kernels::own_first,
          Kernels::begin,
          Kernels::read,
          Kernels::finish,
          Kernels::gradient};
}

}  // namespace dyc::DYC_ISA
