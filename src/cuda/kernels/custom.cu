// Convolutions, forward and backward. Results and gradients of inputs: a thread for each element. Gradients
// of filters and of biases are long sums: a warp for each element, which adds up in the same order each time.
// Gradients of different nodes do not overlap.
#include "cuda/device/prelude.h"

#include "cuda/abi/launch_args.h"
#include "cuda/device/op_by_id.h"
#include "cuda/device/thread_groups.h"
#include "cuda/device/worker.h"
#include "ops/long_sum.h"

namespace dyc::cuda {

// One element of a tensor {n0,n1,n2,n3}xB.
struct Place5 {
  int64_t at[4], batch;
  DYC_INLINE Place5(int64_t i, int64_t n0, int64_t n1, int64_t n2, int64_t n3 = 1) {
    const int64_t n[4] = {n0, n1, n2, n3};
    for (int k = 0; k < 4; ++k) {
      at[k] = i % n[k];
      i /= n[k];
    }
    batch = i;
  }
};

// The batch items of the result that read item b of an argument: itself, or all of them.
struct Readers {
  uint32_t begin, end;
  DYC_INLINE Readers(const KernelArgs& m, uint32_t arg, int64_t b)
      : begin(m.xd[arg]->bd > 1 ? static_cast<uint32_t>(b) : 0),
        end(m.xd[arg]->bd > 1 ? begin + 1 : m.yd->bd) {}
};

// ---------------------------------------------------------------- conv2d
// x {H,W,C}, f {FH,FW,C,FC}, y {YH,YW,FC}

struct Conv {
  static DYC_INLINE ConvShape shape(const KernelArgs& m) { return {*m.xd[0], *m.xd[1], m.attrs}; }

  // Windows outside of x are cut.
  struct Window {
    int64_t first, begin, end;
    DYC_INLINE Window(const WindowAxis& a, int64_t o) : first(o * a.stride - a.pad) {
      begin = first < 0 ? -first : 0;
      end = first + a.f > a.x ? a.x - first : a.f;
    }
  };

  static DYC_INLINE float result(const KernelArgs& m, int64_t i) {
    const ConvShape c = shape(m);
    const Place5 y(i, c.h.y, c.w.y, c.filters);
    const auto b = static_cast<uint32_t>(y.batch);
    const Window h(c.h, y.at[0]), w(c.w, y.at[1]);
    const float* f = m.xb(1, b) + y.at[2] * c.taps();
    const float* x = m.xb(0, b) + h.first + w.first * c.h.x;
    LongSum<float> sum(m.n > 2 ? m.xb(2, b)[y.at[2]] : 0.f);
    for (int64_t channel = 0; channel < c.channels; ++channel, x += c.h.x * c.w.x, f += c.h.f * c.w.f)
      for (int64_t k = w.begin; k < w.end; ++k)
        for (int64_t j = h.begin; j < h.end; ++j) sum.add(x[j + k * c.h.x] * f[j + k * c.h.f]);
    return sum.total();
  }

  // Results o with taps that read place `at` of an axis: at = o * stride - pad + tap.
  struct Outputs {
    int64_t begin, end;
    DYC_INLINE Outputs(const WindowAxis& a, int64_t at) {
      const int64_t from = at + a.pad - a.f + 1;
      begin = from > 0 ? (from + a.stride - 1) / a.stride : 0;
      end = (at + a.pad) / a.stride + 1;
      if (end > a.y) end = a.y;
    }
  };

  static DYC_INLINE float input_gradient(const KernelArgs& m, int64_t i) {
    const ConvShape c = shape(m);
    const Place5 x(i, c.h.x, c.w.x, c.channels);
    const Outputs h(c.h, x.at[0]), w(c.w, x.at[1]);
    const Readers items(m, 0, x.batch);
    LongSum<float> sum;
    for (uint32_t b = items.begin; b < items.end; ++b) {
      const float* dy = m.dyb(b);
      const float* f = m.xb(1, b) + x.at[2] * c.h.f * c.w.f;
      for (int64_t filter = 0; filter < c.filters; ++filter, dy += c.positions(), f += c.taps())
        for (int64_t ow = w.begin; ow < w.end; ++ow) {
          const float* const column = f + (x.at[1] + c.w.pad - ow * c.w.stride) * c.h.f;
          for (int64_t oh = h.begin; oh < h.end; ++oh)
            sum.add(dy[oh + ow * c.h.y] * column[x.at[0] + c.h.pad - oh * c.h.stride]);
        }
    }
    return sum.total();
  }

  // A part of the sum: every `step`-th of the positions, from `first` on.
  static DYC_INLINE float filter_gradient(const KernelArgs& m, int64_t i, int64_t first, int64_t step) {
    const ConvShape c = shape(m);
    const Place5 f(i, c.h.f, c.w.f, c.channels, c.filters);
    const Readers items(m, 1, f.batch);
    LongSum<float> sum;
    for (uint32_t b = items.begin; b < items.end; ++b) {
      const float* const dy = m.dyb(b) + f.at[3] * c.positions();
      const float* const x = m.xb(0, b) + f.at[2] * c.h.x * c.w.x;
      for (int64_t p = first; p < c.positions(); p += step) {
        const int64_t h = p % c.h.y * c.h.stride - c.h.pad + f.at[0];
        const int64_t w = p / c.h.y * c.w.stride - c.w.pad + f.at[1];
        if (h >= 0 && h < c.h.x && w >= 0 && w < c.w.x) sum.add(dy[p] * x[h + w * c.h.x]);
      }
    }
    return sum.total();
  }

  static DYC_INLINE float bias_gradient(const KernelArgs& m, int64_t i, int64_t first, int64_t step) {
    const ConvShape c = shape(m);
    const Place5 bias(i, c.filters, 1, 1);
    const Readers items(m, 2, bias.batch);
    LongSum<float> sum;
    for (uint32_t b = items.begin; b < items.end; ++b) {
      const float* const dy = m.dyb(b) + bias.at[0] * c.positions();
      for (int64_t p = first; p < c.positions(); p += step) sum.add(dy[p]);
    }
    return sum.total();
  }
};

// ---------------------------------------------------------------- filter1d_narrow
// x {r,c}, f {r,w,F}, y {F,P}: patch j of x starts at column j, and is contiguous like a filter

struct Narrow {
  struct Shape {
    int64_t rows, columns, taps, filters, positions;
    DYC_INLINE explicit Shape(const KernelArgs& m)
        : rows(m.xd[0]->rows()),
          columns(m.xd[0]->cols()),
          taps(rows * m.xd[1]->cols()),
          filters(m.yd->rows()),
          positions(m.yd->cols()) {}
  };

  static DYC_INLINE float result(const KernelArgs& m, int64_t i) {
    const Shape s(m);
    const Place5 y(i, s.filters, s.positions, 1);
    const float* const x = m.xb(0, static_cast<uint32_t>(y.batch)) + y.at[1] * s.rows;
    const float* const f = m.xb(1, static_cast<uint32_t>(y.batch)) + y.at[0] * s.taps;
    LongSum<float> sum;
    for (int64_t t = 0; t < s.taps; ++t) sum.add(x[t] * f[t]);
    return sum.total();
  }

  static DYC_INLINE float input_gradient(const KernelArgs& m, int64_t i) {
    const Shape s(m);
    const Place5 x(i, s.rows, s.columns, 1);
    const int64_t width = s.taps / s.rows, from = x.at[1] - width + 1;
    const int64_t begin = from > 0 ? from : 0, end = x.at[1] + 1 < s.positions ? x.at[1] + 1 : s.positions;
    const Readers items(m, 0, x.batch);
    LongSum<float> sum;
    for (uint32_t b = items.begin; b < items.end; ++b)
      for (int64_t p = begin; p < end; ++p) {
        const float* const dy = m.dyb(b) + p * s.filters;
        const float* const f = m.xb(1, b) + (x.at[1] - p) * s.rows + x.at[0];
        for (int64_t k = 0; k < s.filters; ++k) sum.add(dy[k] * f[k * s.taps]);
      }
    return sum.total();
  }

  static DYC_INLINE float filter_gradient(const KernelArgs& m, int64_t i, int64_t first, int64_t step) {
    const Shape s(m);
    const Place5 f(i, s.taps, s.filters, 1);
    const Readers items(m, 1, f.batch);
    LongSum<float> sum;
    for (uint32_t b = items.begin; b < items.end; ++b) {
      const float* const dy = m.dyb(b) + f.at[1];
      const float* const x = m.xb(0, b) + f.at[0];
      for (int64_t p = first; p < s.positions; p += step) sum.add(dy[p * s.filters] * x[p * s.rows]);
    }
    return sum.total();
  }

  static DYC_INLINE float bias_gradient(const KernelArgs&, int64_t, int64_t, int64_t) { return 0.f; }
};

template <class Op>
struct KernelsOf {
  using K = Conv;
};
template <>
struct KernelsOf<Filter1dNarrow> {
  using K = Narrow;
};

template <class Op>
__device__ void run_custom_forward(const LaunchArgs& r, const Worker& w) {
  using K = typename KernelsOf<Op>::K;
  for (int64_t i = w.thread; i < r.results.total; i += w.threads) {
    const Element e = element(r.results, i);
    const float* operands[kMaxOperands];
    const KernelArgs m = kernel_args_of(r, e.node, operands);
    m.out()[e.at] = K::result(m, e.at);
  }
}

// The gradient of argument r.arg, whose elements are r.own.
template <class Op>
__device__ void run_custom_backward(const LaunchArgs& r, const Worker& w) {
  using K = typename KernelsOf<Op>::K;
  const bool by_warps = r.arg > 0;
  const int64_t first = by_warps ? w.warp() : w.thread, step = by_warps ? w.warps() : w.threads;
  for (int64_t i = first; i < r.own.total; i += step) {
    const Element e = element(r.own, i);
    const float* operands[kMaxOperands];
    const KernelArgs m = kernel_args_of(r, e.node, operands);
    float* const dx = gradient_of(r, e.node, r.arg);
    if (!dx) continue;
    if (!by_warps) {
      dx[e.at] += K::input_gradient(m, e.at);
      continue;
    }
    const float part = r.arg == 1 ? K::filter_gradient(m, e.at, w.lane(), kWarp)
                                  : K::bias_gradient(m, e.at, w.lane(), kWarp);
    const float sum = warp_sum(part);
    if (w.lane() == 0) dx[e.at] += sum;
  }
}

template <class Op>
__global__ void custom_forward(const LaunchArgs* args) {
  run_custom_forward<Op>(*args, Worker());
}
template <class Op>
__global__ void custom_backward(const LaunchArgs* args) {
  run_custom_backward<Op>(*args, Worker());
}

}  // namespace dyc::cuda
