// The sum of the exponentials of a run that is read in blocks. A kernel may get the blocks one after the
// other (cpu/column_losses.h): they are the same where it gets the whole run.
#pragma once
#include "ops/element_loops.h"
#include "ops/tuning.h"

namespace dyc {

// exp(x) for x <= 0, a term of a sum.
template <class T>
DYC_INLINE T exp_term(T x) {
  return vexp_term(x);
}

// Elements of a block; a thread group reads all of a run at once.
template <class I>
DYC_INLINE size_t exp_block(size_t n) {
  if constexpr (is_thread_group<I>) return n;
  else return tuning::kExpBlock * I::lanes;
}

// e, which is in proportion to exp(far), with what rounding has taken from far = x - shift. It would be in
// every term of a sum whose shift is large.
template <class V>
DYC_INLINE V with_lost(V e, V x, V shift, V far) {
  const V back = far - x, lost = (x - (far - back)) - (back + shift);
  return select(lost == lost, e + e * lost, e);
}

// The sum of n terms e(position, chunk) in each lane, in runs of kSumBlock terms.
template <class I, class E>
DYC_INLINE typename I::V sum_lanes_of(size_t n, E e) {
  using V = typename I::V;
  if constexpr (is_thread_group<I>) {
    LongSum<V> s;
    each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { s.add(e(i, c)); });
    return s.total();
  } else {
    constexpr size_t kRun = size_t{kSumBlock} * I::lanes;
    V all{};
    for (size_t at = 0; at < n; at += kRun) {
      V part{};
      each<I>(n - at < kRun ? n - at : kRun, [&](size_t i, auto c) DYC_LAMBDA { part += e(at + i, c); });
      all += part;
    }
    return all;
  }
}

// The greatest element of each lane, and the sum of the exponentials below it: high + low.
template <class I>
struct ExpSum {
  using V = typename I::V;
  V top = fill<I>(-0x1.fffffep127f), high{}, low{};

  // The next block, of n elements get(position, chunk).
  template <class G>
  DYC_INLINE void read(size_t n, G get) {
    V most = top;
    each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { most = vmax(most, c.keep(get(i, c), most)); });
    const auto e = [&](size_t i, auto c) DYC_LAMBDA {
      return exp_term(below(c.keep(get(i, c), fill<I>(-__builtin_inff())), most));
    };
    const V term = sum_lanes_of<I>(n, e), scale = exp_of(unless_empty(below(top, most)));
    high = high * scale;
    low = low * scale;
    add_exactly(high, low, term);
    top = most;
  }
  DYC_INLINE float greatest() const { return largest_of<I>(top); }
  // Of the exponentials below `shift`, which is greatest() or more.
  DYC_INLINE float sum(float shift) const {
    const V far = below(top, fill<I>(shift)), term = (high + low) * exp_of(unless_empty(far));
    return total_of<I>(with_lost(term, top, fill<I>(shift), far));
  }

 private:
  // 0 for lanes without a sum: the exponential of their distance, below the smallest float, takes 100 cycles.
  DYC_INLINE V unless_empty(V distance) const { return select(high == V{}, V{}, distance); }
};

// exp(x - shift)
template <class V>
DYC_INLINE V shifted_exp(V x, V shift) {
  const V far = below(x, shift);
  return with_lost(exp_of(far), x, shift, far);
}

// The sum of the exponentials of a run, all below one shift that is seldom another one in the next block: the
// greatest element, rounded down to a multiple of kShiftStep.
template <class I>
struct SteppedExpSum {
  using V = typename I::V;
  float shift = -0x1.fffffep127f;
  V high{}, low{};

  // The next block; put(position, chunk, term) for each of its terms.
  template <class P>
  DYC_INLINE void read(const float* x, size_t n, P put) {
    const float before = shift;
    V most = fill<I>(before);
    each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { most = vmax(most, c.keep(c.get(x + i), most)); });
    shift = vfloor(largest_of<I>(most) / tuning::kShiftStep) * tuning::kShiftStep;
    const V all = fill<I>(shift), none = fill<I>(-__builtin_inff());
    const V term = sum_lanes_of<I>(n, [&](size_t i, auto c) DYC_LAMBDA {
      const V e = shifted_exp(c.keep(c.get(x + i), none), all);
      put(i, c, e);
      return e;
    });
    // Nothing is left of a sum so far below; smaller factors would be slow.
    const V scale = exp_of(vmax(fill<I>(-87.f), below(fill<I>(before), all)));
    high = high * scale;
    low = low * scale;
    add_exactly(high, low, term);
  }
  DYC_INLINE float sum() const { return total_of<I>(high + low); }
};

// f(first, count) for the blocks of a run.
template <class I, class F>
DYC_INLINE void each_block(size_t n, F f) {
  const size_t block = exp_block<I>(n);
  for (size_t at = 0; at < n; at += block) f(at, n - at < block ? n - at : block);
}

// a in place of element v of a chunk of x that begins with element i.
template <class I>
DYC_INLINE typename I::V replaced(typename I::V x, size_t i, size_t v, float a) {
  if constexpr (I::lanes == 1) {
    return i == v ? a : x;
  } else {
    typename I::V lane;
    for (int k = 0; k < I::lanes; ++k) lane[k] = static_cast<float>(k);
    return select(lane == static_cast<float>(v - i), fill<I>(a), x);
  }
}

// What the loss -log_softmax(x)[v] and its gradient are made of.
template <class T>
struct PickedLogSumOf {
  T shift;   // greatest element
  T others;  // sum of exp(x[i] - shift) over i != v
  T own;     // x[v]
};
using PickedLogSum = PickedLogSumOf<float>;

// The same while x is read.
template <class I>
struct PickedLogSumReader {
  ExpSum<I> others;
  float own = 0;

  // The next block, x[0] to x[n - 1]; v counts from there.
  DYC_INLINE void read(const float* x, size_t n, size_t v) {
    if (v >= n) return others.read(n, [&](size_t i, auto c) DYC_LAMBDA { return c.get(x + i); });
    own = x[v];
    others.read(
        n, [&](size_t i, auto c) DYC_LAMBDA { return replaced<I>(c.get(x + i), i, v, -__builtin_inff()); });
  }
  DYC_INLINE PickedLogSum result() const {
    const float most = others.greatest(), shift = own >= most ? own : most;
    return {shift, others.sum(shift), own};
  }
};

// Runs that softmax and log_softmax read once before they write, as readers of blocks do. Below it two passes
// take less time.
template <class I>
DYC_INLINE bool is_long_run(size_t n) {
  return !is_thread_group<I> && I::lanes > 1 && n >= tuning::kLongRun;
}

// The sum of exp(x[i] - shift) over all i while x is read, and x[v].
template <class I>
struct WholeSumReader {
  ExpSum<I> all;
  float own = 0;

  DYC_INLINE void read(const float* x, size_t n, size_t v) {
    if (v < n) own = x[v];
    all.read(n, [&](size_t i, auto c) DYC_LAMBDA { return c.get(x + i); });
  }
  DYC_INLINE void read_all(const float* x, size_t n) {
    each_block<I>(n, [&](size_t at, size_t count) DYC_LAMBDA { read(x + at, count, count); });
  }
};

template <class I>
DYC_INLINE float picked_loss(const PickedLogSum& s) {
  if (s.own == s.shift) return log1p_of(s.others);  // no digit is lost where the loss is small
  return (s.shift - s.own) + log_of(s.others + exp_of(s.own - s.shift));
}
// Times exp(x[i] - shift): the probability of i.
template <class I>
DYC_INLINE float picked_scale(const PickedLogSum& s) {
  return 1.f / (s.others + exp_of(below(s.own, s.shift)));
}

}  // namespace dyc
