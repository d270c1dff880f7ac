// Loops over contiguous elements for the kernels of reductions, softmax and losses. Everything is a template
// on the instruction set I (I::V, I::lanes) and always inline. A chunk is one vector of elements: all lanes,
// or the first few at the end of a run. Calls of vexp, hsum ... have a dependent argument, so that sources
// without cpu/simd.h can still read these headers.
//
// On a device I may be a thread group: threads that run the kernel of one node together. It has V = float,
// one lane, and
//   worker(), workers()      number of this thread, and of all threads of the group
//   sum(a), max(a), min(a)   over all threads; every thread gets the same result, always added in one order
//   least(i)                 the same for an index
//   sync()                   barrier: afterwards each thread can read what the others have stored
// Ops with Meta::thread_group work both ways. All threads execute all of the kernel. each() and the other
// loops distribute the elements: element i always belongs to the same thread, so that loops over the same
// elements need no barrier between them. A store outside of these loops stores the same value in every
// thread; an accumulation outside of them goes into if_leader() or add_as_leader().
//
// Ops with Meta::warps_share need no barrier between warps, and take sums only of what one warp computes
// (each_run). Several warps can compute such a node: a group that has, in place of sums and the like,
//   part(), parts()          number of this warp, and of all warps of the group; sync() is this warp's
//   first_worker()           number of the first thread of this warp
//   Warp                     the group of this warp alone
#pragma once
#include "ops/kernel_args.h"
#include "ops/long_sum.h"

#define DYC_LAMBDA __attribute__((always_inline))

namespace dyc {

template <class I>
inline constexpr bool is_thread_group = requires { I::workers(); };

template <class I>
DYC_INLINE void sync() {
  if constexpr (is_thread_group<I>) I::sync();
}
// f() in one thread, between two barriers.
template <class I, class F>
DYC_INLINE void if_leader(F f) {
  sync<I>();
  if constexpr (is_thread_group<I>) {
    if (I::worker() == 0) f();
  } else {
    f();
  }
  sync<I>();
}
template <class I>
DYC_INLINE void add_as_leader(float* to, float a) {
  if_leader<I>([&]() DYC_LAMBDA { *to += a; });
}
// Over the group, of one value per thread.
template <class I>
DYC_INLINE float sum_of_group(float a) {
  if constexpr (is_thread_group<I>) return I::sum(a);
  else return a;
}
// Of the lanes of a vector, and of all threads.
template <class I>
DYC_INLINE float total_of(typename I::V a) {
  if constexpr (is_thread_group<I>) return I::sum(a);
  else return hsum(a);
}
template <class I>
DYC_INLINE float largest_of(typename I::V a) {
  if constexpr (is_thread_group<I>) return I::max(a);
  else return hmax(a);
}
template <class I>
DYC_INLINE float smallest_of(typename I::V a) {
  if constexpr (is_thread_group<I>) return I::min(a);
  else return hmin(a);
}
template <class I>
DYC_INLINE float first_lane(typename I::V a) {
  if constexpr (I::lanes == 1) return a;
  else return a[0];
}

// f(i) for n elements that are computed one by one.
template <class I, class F>
DYC_INLINE void each_one(size_t n, F f) {
  if constexpr (requires { I::begin(n); }) {  // a group that computes a slice of them
    for (size_t i = I::begin(n); i < I::end(n); i += I::workers()) f(i);
  } else if constexpr (is_thread_group<I>) {
    const size_t step = I::workers();
    for (size_t i = I::worker(); i < n; i += step) f(i);
  } else {
    for (size_t i = 0; i < n; ++i) f(i);
  }
}

// The same, for n of the elements of a longer run: there are `before` that come before them. Many short
// pieces are spread over the whole group.
template <class I, class F>
DYC_INLINE void each_one_after(size_t before, size_t n, F f) {
  if constexpr (is_thread_group<I>) {
    const uint32_t step = I::workers(), own = I::worker(), skipped = static_cast<uint32_t>(before) % step;
    for (size_t i = own >= skipped ? own - skipped : own + step - skipped; i < n; i += step) f(i);
  } else {
    for (size_t i = 0; i < n; ++i) f(i);
  }
}

// f(k, group) for n parts of a node that take sums: each is computed by one warp, which `group` is, however
// many share the node.
template <class I, class F>
DYC_INLINE void each_run(size_t n, F f) {
  if constexpr (requires { I::parts(); }) {
    const size_t step = I::parts();
    for (size_t k = I::part(); k < n; k += step) f(k, typename I::Warp{});
  } else {
    for (size_t k = 0; k < n; ++k) f(k, I{});
  }
}

// False where this warp, of those that share a node, has none of n elements.
template <class I>
DYC_INLINE bool has_elements(size_t n) {
  if constexpr (requires { I::parts(); }) return I::first_worker() < n;
  else return true;
}

// The group that takes sums: each of the warps that share a node takes them for itself.
template <class I>
struct SummingGroup {
  using G = I;
};
template <class I>
  requires requires { typename I::Warp; }
struct SummingGroup<I> {
  using G = typename I::Warp;
};

template <class I>
struct FullChunk {
  using V = typename I::V;
  template <class P>
  DYC_INLINE V get(const P* p) const {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  DYC_INLINE void put(float* p, V v) const { __builtin_memcpy(p, &v, sizeof v); }
  DYC_INLINE void add(float* p, V v) const { put(p, get(p) + v); }
  // v where the chunk has elements, other elsewhere.
  DYC_INLINE V keep(V v, V) const { return v; }
};

template <class I>
struct TailChunk {
  using V = typename I::V;
  int n;
  template <class P>
  DYC_INLINE V get(const P* p) const {
    return load_n(p, n);
  }
  DYC_INLINE void put(float* p, V v) const { store_n(p, v, n); }
  DYC_INLINE void add(float* p, V v) const { put(p, get(p) + v); }
  DYC_INLINE V keep(V v, V other) const {
    V lane;
    for (int i = 0; i < I::lanes; ++i) lane[i] = static_cast<float>(i);
    return select(lane < static_cast<float>(n), v, other);
  }
};

template <class I>
DYC_INLINE typename I::V fill(float s) {
  return s - typename I::V{};  // s - 0: one broadcast, and -0 stays
}

// f(position, chunk) for each chunk of a run of n elements.
template <class I, class F>
DYC_INLINE void each(size_t n, F f) {
  if constexpr (I::lanes == 1) {
    each_one<I>(n, [&](size_t i) DYC_LAMBDA { f(i, FullChunk<I>{}); });
  } else {
    size_t i = 0;
    for (; i + I::lanes <= n; i += I::lanes) f(i, FullChunk<I>{});
    if (i < n) f(i, TailChunk<I>{static_cast<int>(n - i)});
  }
}

template <class T>
DYC_INLINE T exp_of(T x) {
  return vexp(x);
}
template <class T>
DYC_INLINE T log_of(T x) {
  return vlog(x);
}
template <class T>
DYC_INLINE T log1p_of(T x) {
  return vlog1p(x);
}
template <class T>
DYC_INLINE T sqrt_of(T x) {
  return vsqrt(x);
}

// Sum of g(position, chunk) over a run: one sum per lane, added up in a fixed order.
template <class I, class G>
DYC_INLINE float sum_run(size_t n, G g) {
  LongSum<typename I::V> s;
  if constexpr (is_thread_group<I>) {  // four at a time: their loads need not wait for each other
    const FullChunk<I> c;
    const size_t step = I::workers();
    size_t i = I::worker();
    for (; i + 3 * step < n; i += 4 * step) {
      const float four[4] = {g(i, c), g(i + step, c), g(i + 2 * step, c), g(i + 3 * step, c)};
      for (const float one : four) s.add(one);
    }
    for (; i < n; i += step) s.add(g(i, c));
    return total_of<I>(s.total());
  }
  each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { s.add(c.keep(g(i, c), typename I::V{})); });
  return total_of<I>(s.total());
}

template <class I>
DYC_INLINE float max_run(const float* x, size_t n) {
  const auto low = fill<I>(-__builtin_inff());
  auto s = low;
  each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { s = vmax(s, c.keep(c.get(x + i), low)); });
  return largest_of<I>(s);
}

// x - top, and 0 for the distance between two +inf: exp(below(x, top)) is then 1 for +inf and 0 for the rest.
template <class V, class Top>
DYC_INLINE V below(V x, Top top) {
  return select(x == __builtin_inff(), V{}, x - top);
}

// log(sum(exp(x))) = shift + log_sum. The shift is the maximum, or 0 where that is -inf, so that a run of
// -inf gives -inf instead of NaN.
struct LogZ {
  float shift, log_sum;
};
template <class I>
DYC_INLINE float shift_of(const float* x, size_t n) {
  const float top = max_run<I>(x, n);
  return top == -__builtin_inff() ? 0.f : top;
}
template <class I>
DYC_INLINE LogZ log_z(const float* x, size_t n) {
  const float shift = shift_of<I>(x, n);
  const float s =
      sum_run<I>(n, [&](size_t i, auto c) DYC_LAMBDA { return exp_of(below(c.get(x + i), shift)); });
  return {shift, log_of(s)};
}

// A tensor seen from one axis; outer includes the batch.
struct AxisRuns {
  size_t inner = 1, len, outer;
  DYC_INLINE AxisRuns(const Dim& x, uint32_t axis) : len(x[axis]), outer(x.bd) {
    for (uint32_t i = 0; i < x.nd; ++i)
      if (i != axis) (i < axis ? inner : outer) *= x.d[i];
  }
};

// The shape of x without dimension `axis`; {1} if none is left.
inline Dim without_axis(const Dim& x, uint32_t axis) {
  Dim r;
  for (uint32_t i = 0; i < x.nd; ++i)
    if (i != axis) r.d[r.nd++] = x.d[i];
  if (r.nd == 0) r.d[r.nd++] = 1;
  r.bd = x.bd;
  return r;
}

// ---- sums over any set of dimensions

struct ReducePlan {
  struct Axes {
    size_t len[kMaxDims + 1], step[kMaxDims + 1];
    uint32_t n = 0;
    DYC_INLINE void push(size_t l, size_t s) { len[n] = l, step[n++] = s; }
    DYC_INLINE void merge(size_t l, size_t s) {
      if (n && len[n - 1] * step[n - 1] == s) len[n - 1] *= l;
      else push(l, s);
    }
  };
  Axes kept, reduced;
  bool inner_kept = false;  // memory runs along a kept axis: results are chunks, else they are single
  size_t count = 1;         // elements that make one element of the result

  // Bit i of mask: dimension i is reduced; `batch`: so is the batch. Kept batch items never share a chunk:
  // the value of an item must not depend on its place in the batch.
  DYC_INLINE ReducePlan(const Dim& x, uint32_t mask, bool batch) {
    size_t step = 1;
    for (uint32_t i = 0; i < x.nd; step *= x.d[i++]) {
      if (x.d[i] == 1) continue;
      if (mask >> i & 1) {
        reduced.merge(x.d[i], step);
        count *= x.d[i];
      } else {
        kept.merge(x.d[i], step);
      }
    }
    inner_kept = kept.n && kept.step[0] == 1;
    if (batch && x.bd > 1) {
      reduced.merge(x.bd, step);
      count *= x.bd;
    } else if (x.bd > 1) {
      kept.push(x.bd, step);
    }
    if (reduced.n == 0) reduced.push(1, 1);
  }
};

// f(offset) for all positions of axes first, first + 1 ...; the earliest runs fastest.
template <class F>
DYC_INLINE void each_position(const ReducePlan::Axes& a, uint32_t first, F f) {
  size_t at[kMaxDims + 1] = {}, offset = 0;
  for (;;) {
    f(offset);
    uint32_t k = first;
    for (; k < a.n; ++k) {
      offset += a.step[k];
      if (++at[k] < a.len[k]) break;
      offset -= a.step[k] * a.len[k];
      at[k] = 0;
    }
    if (k >= a.n) return;
  }
}

// The inputs of one chunk of results, starting at `at`. Along a kept axis lane i belongs to result i.
template <class I, class C>
struct KeptLanes {
  using V = typename I::V;
  const ReducePlan& p;
  size_t at;
  C c;
  // f(position in x, chunk)
  template <class F>
  DYC_INLINE void visit(F f) const {
    each_position(p.reduced, 1, [&](size_t o) DYC_LAMBDA {
      size_t pos = at + o;
      for (size_t k = 0; k < p.reduced.len[0]; ++k, pos += p.reduced.step[0]) f(pos, c);
    });
  }
  DYC_INLINE V total(V s) const { return s; }
  DYC_INLINE V get(const float* y) const { return c.get(y); }
  DYC_INLINE void put(float* y, V v) const { c.put(y, v); }
};

// The inputs of one result, contiguous along the first reduced axis; every lane of get and total is the same.
template <class I>
struct SingleLane {
  using V = typename I::V;
  const ReducePlan& p;
  size_t at;
  template <class F>
  DYC_INLINE void visit(F f) const {
    each_position(p.reduced, 1, [&](size_t o) DYC_LAMBDA {
      const size_t start = at + o;
      if (p.reduced.step[0] == 1) {
        each<I>(p.reduced.len[0], [&](size_t i, auto c) DYC_LAMBDA { f(start + i, c); });
      } else if constexpr (I::lanes == 1) {
        each_one<I>(p.reduced.len[0],
                    [&](size_t k) DYC_LAMBDA { f(start + k * p.reduced.step[0], FullChunk<I>{}); });
      } else {
        for (size_t k = 0; k < p.reduced.len[0]; ++k) f(start + k * p.reduced.step[0], TailChunk<I>{1});
      }
    });
  }
  DYC_INLINE V total(V s) const { return fill<I>(total_of<I>(s)); }
  DYC_INLINE V get(const float* y) const { return fill<I>(*y); }
  DYC_INLINE void put(float* y, V v) const { *y = first_lane<I>(v); }
};

// f(lanes, position in y) for all results.
template <class I, class F>
DYC_INLINE void each_result(const ReducePlan& p, F f) {
  size_t y = 0;
  each_position(p.kept, p.inner_kept ? 1 : 0, [&](size_t o) DYC_LAMBDA {
    if (p.inner_kept) {
      each<I>(p.kept.len[0],
              [&](size_t i, auto c) DYC_LAMBDA { f(KeptLanes<I, decltype(c)>{p, o + i, c}, y + i); });
      y += p.kept.len[0];
    } else {
      f(SingleLane<I>{p, o}, y++);
    }
  });
}

// Sum of g(value of x) over the inputs of one chunk of results.
template <class I, class L, class G>
DYC_INLINE typename I::V sum_lanes(const L& lanes, const float* x, G g) {
  LongSum<typename I::V> s;
  lanes.visit([&](size_t i, auto c) DYC_LAMBDA { s.add(c.keep(g(c.get(x + i)), typename I::V{})); });
  return lanes.total(s.total());
}

}  // namespace dyc
