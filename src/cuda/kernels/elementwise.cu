// Element-wise ops, forward and backward, over a whole launch. NVRTC instantiates the
// kernels it is asked for by name: unary_forward<OpById<8>>, where 8 is the op's number in ops/table.h.
//
// Every sum runs in one thread and in the order of nodes, so gradients do not differ from run to run.
#include "cuda/device/prelude.h"

#include "cuda/abi/launch_args.h"
#include "cuda/device/op_by_id.h"
#include "cuda/device/row_slices.h"
#include "cuda/device/worker.h"
#include "ops/long_sum.h"

namespace dyc::cuda {

// f(node, element) for the elements of a gradient: spread over all threads or, where nodes may repeat an
// argument, all nodes of one element in one thread.
template <class G>
DYC_INLINE void each_gradient(const LaunchArgs& r, const Worker& w, const NodeSizes& e, bool repeats, G f) {
  if (!repeats) {
    const Elements mine(r, e.total, e.size, w);
    for (int64_t k = mine.begin; k < mine.end; k += mine.step) {
      const Element at = element(e, mine[k]);
      f(at.node, at.at);
    }
    return;
  }
  for (int64_t i = w.thread; i < e.largest; i += w.threads)
    for (uint32_t node = 0; node < e.count; ++node)
      if (i < size_of(e, node)) f(node, i);
}

template <class Op>
__device__ void run_unary_forward(const LaunchArgs& r, const Worker& w) {
  static_assert(Op::meta.kind == OpKind::unary);
  const Attrs<Op> attrs(r.shape->attrs);
  const DeviceOperand<const float> x = r.x[0];
  const NodeSizes results = r.results;
  const Elements mine(r, results.total, results.size, w);
  for (int64_t k = mine.begin; k < mine.end; k += mine.step) {
    const int64_t i = mine[k];
    const Element e = element(results, i);
    r.y[i] = Op::f(argument(x, results, e.node)[e.at], attrs);
  }
}

// dx += dy * df. x is read only with Meta::reads_x, y only with Meta::reads_y.
template <class Op>
__device__ void run_unary_backward(const LaunchArgs& r, const Worker& w) {
  static_assert(Op::meta.kind == OpKind::unary);
  const Attrs<Op> attrs(r.shape->attrs);
  const DeviceOperand<const float> x = r.x[0];
  const DeviceOperand<float> dx = r.dx[0];
  const NodeSizes results = r.results;
  each_gradient(r, w, results, dx.repeats, [&](uint32_t node, int64_t at) {
    const int64_t i = out_of(r, node) + at;
    float xv = 0.f, yv = 0.f;
    if constexpr (Op::meta.reads_x) xv = argument(x, results, node)[at];
    if constexpr (Op::meta.reads_y) yv = r.y[i];
    float* const g = argument(dx, results, node) + at;
    *g = vfma(r.dy[i], Op::df(xv, yv, attrs), *g);
  });
}

template <class Op>
__global__ void unary_forward(const LaunchArgs* args) {
  run_unary_forward<Op>(*args, Worker());
}
template <class Op>
__global__ void unary_backward(const LaunchArgs* args) {
  run_unary_backward<Op>(*args, Worker());
}

// Offsets of x, y and z.
struct Offsets {
  int64_t x = 0, y = 0, z = 0;
};

// Moves `to` along the axes that `on` accepts (extent, step of x, step of y), by the i-th of their points.
template <class On>
DYC_INLINE void walk(const Axes& axes, int64_t i, Offsets& to, On on) {
  auto points = static_cast<uint32_t>(i);
  int64_t step = 1;  // of z
  for (uint32_t k = 0; k < axes.n; ++k) {
    if (on(axes.x[k], axes.y[k])) {
      const uint32_t rest = quotient(points, axes.by_extent[k]), at = points - rest * axes.extent[k];
      points = rest;
      to.x += int64_t{at} * axes.x[k];
      to.y += int64_t{at} * axes.y[k];
      to.z += at * step;
    }
    step *= axes.extent[k];
  }
}

template <class Op>
__device__ void run_binary_forward(const LaunchArgs& r, const Worker& w) {
  static_assert(Op::meta.kind == OpKind::binary);
  const Attrs<Op> attrs(r.shape->attrs);
  const DeviceOperand<const float> x = r.x[0], y = r.x[1];
  const NodeSizes results = r.results;
  const Elements mine(r, results.total, results.size, w);
  for (int64_t k = mine.begin; k < mine.end; k += mine.step) {
    const int64_t i = mine[k];
    const Element e = element(results, i);
    const Axes& a = r.axes[r.each_own ? e.node : 0];
    Offsets at{e.at, e.at, e.at};
    if (a.n) {
      at = {};
      walk(a, e.at, at, [](uint32_t, uint32_t) { return true; });
    }
    r.y[i] = Op::f(argument(x, results, e.node)[at.x], argument(y, results, e.node)[at.y], attrs);
  }
}

// dz times the slope of argument Arg at one element.
template <class Op, int Arg>
DYC_INLINE float slope_product(const float* x, const float* y, const float* z, const float* dz,
                               const Offsets& at, const float* attrs) {
  float xv = 0.f, yv = 0.f, zv = 0.f;
  if constexpr (Op::meta.reads_x) xv = x[at.x], yv = y[at.y];
  if constexpr (Op::meta.reads_y) zv = z[at.z];
  if constexpr (Arg == 0) return dz[at.z] * Op::dx(xv, yv, zv, attrs);
  else return dz[at.z] * Op::dy(xv, yv, zv, attrs);
}

// g += sum of dz * slope over what repeats argument Arg. r.own: the elements of that argument.
template <class Op, int Arg>
__device__ void run_binary_backward(const LaunchArgs& r, const Worker& w) {
  static_assert(Op::meta.kind == OpKind::binary);
  const Attrs<Op> attrs(r.shape->attrs);
  const DeviceOperand<const float> x = r.x[0], y = r.x[1];
  const DeviceOperand<float> g = r.dx[Arg];
  const NodeSizes results = r.results, own = r.own;
  each_gradient(r, w, own, g.repeats, [&](uint32_t node, int64_t e) {
    const Axes& a = r.axes[r.each_own ? node : 0];
    const float *xm = nullptr, *ym = nullptr, *zm = nullptr;
    if constexpr (Op::meta.reads_x) xm = argument(x, results, node), ym = argument(y, results, node);
    if constexpr (Op::meta.reads_y) zm = r.y + out_of(r, node);
    const float* const dzm = r.dy + out_of(r, node);
    Offsets first{e, e, e};
    int64_t repeats = 1;
    const auto owned = [](uint32_t xs, uint32_t ys) { return (Arg == 0 ? xs : ys) != 0; };
    const auto repeated = [](uint32_t xs, uint32_t ys) { return (Arg == 0 ? xs : ys) == 0; };
    if (a.n) {
      first = {};
      walk(a, e, first, owned);
      for (uint32_t k = 0; k < a.n; ++k) repeats *= repeated(a.x[k], a.y[k]) ? a.extent[k] : 1;
    }
    LongSum<float> sum;
    for (int64_t i = 0; i < repeats; ++i) {
      Offsets at = first;
      walk(a, i, at, repeated);
      sum.add(slope_product<Op, Arg>(xm, ym, zm, dzm, at, attrs));
    }
    argument(g, own, node)[e] += sum.total();
  });
}

template <class Op>
__global__ void binary_forward(const LaunchArgs* args) {
  run_binary_forward<Op>(*args, Worker());
}
template <class Op, int Arg>
__global__ void binary_backward(const LaunchArgs* args) {
  run_binary_backward<Op, Arg>(*args, Worker());
}

}  // namespace dyc::cuda
