// Element-wise rows of the op table, forward and backward, over a whole launch. NVRTC instantiates the
// kernels it is asked for by name: unary_forward<Row<8>>, where 8 is the row's number in ops/table.h.
//
// Every sum runs in one thread and in the order of members, so gradients do not differ from run to run.
// Grids may have any size: each thread goes on by the number of threads.
#include "cuda/prelude.h"

#include "cuda/grid.h"
#include "cuda/operands.h"
#include "ops/table.h"

namespace dyc::cuda {

// ---- the table

template <uint32_t Id, class List>
struct RowAt;
template <uint32_t Id, class First, class... Rest>
struct RowAt<Id, OpList<First, Rest...>> : RowAt<Id - 1, OpList<Rest...>> {};
template <class First, class... Rest>
struct RowAt<0, OpList<First, Rest...>> {
  using Op = First;
};
template <uint32_t Id>
using Row = typename RowAt<Id, AllOps>::Op;

template <class Op>
constexpr int attr_count() {
  int n = 0;
  for (const Param& p : Op::params)
    n += p.kind == Param::real || p.kind == Param::uint || p.kind == Param::flag;
  return n;
}

// ---- places

struct Element {
  uint32_t member;
  int64_t at;  // within the member
};

DYC_INLINE int64_t start_of(const Extents& e, uint32_t member) {
  return e.starts ? e.starts[member] : member * e.size;
}
DYC_INLINE int64_t size_of(const Extents& e, uint32_t member) {
  return e.starts ? e.starts[member + 1] - e.starts[member] : e.size;
}

// Element i of the block that all members form.
DYC_INLINE Element element(const Extents& e, int64_t i) {
  if (!e.starts) return {static_cast<uint32_t>(i / e.size), i % e.size};
  uint32_t low = 0, high = e.count;  // starts[low] <= i < starts[high]
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (e.starts[middle] <= i) low = middle;
    else high = middle;
  }
  return {low, i - e.starts[low]};
}

// Member's argument; `results` serves contiguous arguments that are as large as the results.
template <class F>
DYC_INLINE F* argument(const Place<F>& p, const Extents& results, uint32_t member) {
  switch (p.kind) {
    case Place<F>::shared:
      return p.base;
    case Place<F>::contiguous:
      return p.base + (p.stride ? member * p.stride : start_of(results, member));
    case Place<F>::strided:
      return p.base + member * p.stride;
    default:
      return p.base + p.index[member];
  }
}

DYC_INLINE int64_t first_thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
DYC_INLINE int64_t all_threads() { return int64_t{gridDim.x} * blockDim.x; }

// f(member, element) for the elements of a gradient: spread over all threads or, where members may repeat an
// argument, all members of one element in one thread.
template <class G>
DYC_INLINE void each_gradient(const Extents& e, bool repeats, G f) {
  if (!repeats) {
    for (int64_t i = first_thread(); i < e.total; i += all_threads()) {
      const Element at = element(e, i);
      f(at.member, at.at);
    }
    return;
  }
  for (int64_t i = first_thread(); i < e.largest; i += all_threads())
    for (uint32_t member = 0; member < e.count; ++member)
      if (i < size_of(e, member)) f(member, i);
}

// ---- y = f(x)

template <class Op>
__global__ void unary_forward(Place<const float> x, float* y, Extents results, Attrs attrs) {
  static_assert(Op::meta.form == Form::unary && attr_count<Op>() <= kMaxAttrs);
  for (int64_t i = first_thread(); i < results.total; i += all_threads()) {
    const Element e = element(results, i);
    y[i] = Op::f(argument(x, results, e.member)[e.at], attrs.words);
  }
}

// dx += dy * df. x is read only with Meta::reads_x, y only with Meta::reads_y.
template <class Op>
__global__ void unary_backward(Place<const float> x, const float* y, const float* dy, Place<float> dx,
                               Extents results, Attrs attrs) {
  static_assert(Op::meta.form == Form::unary && attr_count<Op>() <= kMaxAttrs);
  each_gradient(results, dx.repeats, [&](uint32_t member, int64_t at) {
    const int64_t i = start_of(results, member) + at;
    float xv = 0.f, yv = 0.f;
    if constexpr (Op::meta.reads_x) xv = argument(x, results, member)[at];
    if constexpr (Op::meta.reads_y) yv = y[i];
    float* const g = argument(dx, results, member) + at;
    *g = vfma(dy[i], Op::df(xv, yv, attrs.words), *g);
  });
}

// ---- z = f(x, y), broadcasting

// Offsets of x, y and z.
struct Offsets {
  int64_t x = 0, y = 0, z = 0;
};

// Moves `to` along the axes that `on` accepts (extent, step of x, step of y), by the i-th of their points.
template <class On>
DYC_INLINE void walk(const Axes& axes, int64_t i, Offsets& to, On on) {
  int64_t step = 1;  // of z
  for (uint32_t k = 0; k < axes.n; ++k) {
    if (on(axes.x[k], axes.y[k])) {
      const int64_t place = i % axes.extent[k];
      i /= axes.extent[k];
      to.x += place * axes.x[k];
      to.y += place * axes.y[k];
      to.z += place * step;
    }
    step *= axes.extent[k];
  }
}

// axes: one for all members, or (each_own) one per member.
template <class Op>
__global__ void binary_forward(Place<const float> x, Place<const float> y, float* z, Extents results,
                               const Axes* axes, bool each_own, Attrs attrs) {
  static_assert(Op::meta.form == Form::binary && attr_count<Op>() <= kMaxAttrs);
  for (int64_t i = first_thread(); i < results.total; i += all_threads()) {
    const Element e = element(results, i);
    const Axes& a = axes[each_own ? e.member : 0];
    Offsets at{e.at, e.at, e.at};
    if (a.n) {
      at = {};
      walk(a, e.at, at, [](uint32_t, uint32_t) { return true; });
    }
    z[i] = Op::f(argument(x, results, e.member)[at.x], argument(y, results, e.member)[at.y], attrs.words);
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

// g += sum of dz * slope over what repeats argument Arg. own: the elements of that argument.
template <class Op, int Arg>
__global__ void binary_backward(Place<const float> x, Place<const float> y, const float* z, const float* dz,
                                Place<float> g, Extents results, Extents own, const Axes* axes, bool each_own,
                                Attrs attrs) {
  static_assert(Op::meta.form == Form::binary && attr_count<Op>() <= kMaxAttrs);
  each_gradient(own, g.repeats, [&](uint32_t member, int64_t e) {
    const Axes& a = axes[each_own ? member : 0];
    const float *xm = nullptr, *ym = nullptr, *zm = nullptr;
    if constexpr (Op::meta.reads_x) xm = argument(x, results, member), ym = argument(y, results, member);
    if constexpr (Op::meta.reads_y) zm = z + start_of(results, member);
    const float* const dzm = dz + start_of(results, member);
    Offsets first{e, e, e};
    int64_t repeats = 1;
    const auto owned = [](uint32_t xs, uint32_t ys) { return (Arg == 0 ? xs : ys) != 0; };
    const auto repeated = [](uint32_t xs, uint32_t ys) { return (Arg == 0 ? xs : ys) == 0; };
    if (a.n) {
      first = {};
      walk(a, e, first, owned);
      for (uint32_t k = 0; k < a.n; ++k) repeats *= repeated(a.x[k], a.y[k]) ? a.extent[k] : 1;
    }
    float sum = 0.f;
    for (int64_t i = 0; i < repeats; ++i) {
      Offsets at = first;
      walk(a, i, at, repeated);
      sum += slope_product<Op, Arg>(xm, ym, zm, dzm, at, attrs.words);
    }
    argument(g, results, member)[e] += sum;
  });
}

}  // namespace dyc::cuda
