// Ops of two Expressions: element-wise with broadcasting (binary), and sums over all elements (per_node).
// As in elementwise.h, T is float or a vector of floats, and vexp, select ... must be declared before.
#pragma once
#include "ops/element_loops.h"
#include "ops/elementwise.h"

namespace dyc {

struct OfXAndY {
  static constexpr Param params[] = {{"x"}, {"y"}};
};

// ---- broadcasting: leading dimensions equal or 1, the shorter argument is padded with ones

struct Broadcasting : OfXAndY {
  static Dim shape(const ShapeArgs& s) { return broadcast_shape(s); }
};

struct Add : Broadcasting {
  static constexpr Meta meta = Meta::binary("add", "x + y", Reads::none).hide();
  static constexpr ColumnRole column_role = ColumnRole::adds;
  template <class T> static T f(T x, T y, const float*) { return x + y; }
  template <class T> static T dx(T, T, T, const float*) { return splat<T>(1.f); }
  template <class T> static T dy(T, T, T, const float*) { return splat<T>(1.f); }
};

struct Sub : Broadcasting {
  static constexpr Meta meta = Meta::binary("sub", "x - y", Reads::none).hide();
  template <class T> static T f(T x, T y, const float*) { return x - y; }
  template <class T> static T dx(T, T, T, const float*) { return splat<T>(1.f); }
  template <class T> static T dy(T, T, T, const float*) { return splat<T>(-1.f); }
};

struct CMult : Broadcasting {
  static constexpr Meta meta = Meta::binary("cmult", "x .* y", Reads::x);
  template <class T> static T f(T x, T y, const float*) { return x * y; }
  template <class T> static T dx(T, T y, T, const float*) { return y; }
  template <class T> static T dy(T x, T, T, const float*) { return x; }
};

// Only y is broadcast.
struct CDiv : OfXAndY {
  static constexpr Meta meta = Meta::binary("cdiv", "x ./ y", Reads::x_and_y);
  static Dim shape(const ShapeArgs& s) {
    bool fits = s[1].bd == 1 || s[1].bd == s[0].bd;
    for (uint32_t i = 0; i < s[1].nd; ++i) fits = fits && (s[1][i] == 1 || s[1][i] == s[0][i]);
    if (!fits) shape_error(s, "dimensions and batch size of y that are those of x or 1");
    return broadcast_shape(s);
  }
  template <class T> static T f(T x, T y, const float*) { return x / y; }
  template <class T> static T dx(T, T y, T, const float*) { return 1.f / y; }
  template <class T> static T dy(T, T y, T z, const float*) { return -(z / y); }
};

// x {..}xB, y {1}: one exponent, per batch item if y is batched. The result drops trailing ones.
struct Pow : OfXAndY {
  static constexpr Meta meta = Meta::binary("pow", "x ** y", Reads::x_and_y);
  static Dim shape(const ShapeArgs& s) {
    if (s[1].batch_size() != 1) shape_error(s, "an exponent of one element");
    Dim r = s[0];
    r.drop_trailing_ones();
    r.bd = common_batch(s);
    return r;
  }
  template <class T> static T f(T x, T y, const float*) { return vpow(x, y); }
  template <class T> static T dx(T x, T y, T, const float*) { return y * vpow(x, y - 1.f); }
  template <class T> static T dy(T x, T, T z, const float*) { return z * vlog(x); }
};

// Adds y {r} or {r,1} to every column of x {r,c}.
struct ColwiseAdd : OfXAndY {
  static constexpr Meta meta = Meta::binary("colwise_add", "x + y for each column", Reads::none);
  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd != 2 || s[1].nd > 2 || s[1].cols() != 1 || s[1].rows() != s[0].rows())
      shape_error(s, "a matrix and a vector with one element per row");
    Dim r = s[0];
    r.bd = common_batch(s);
    return r;
  }
  template <class T> static T f(T x, T y, const float*) { return x + y; }
  template <class T> static T dx(T, T, T, const float*) { return splat<T>(1.f); }
  template <class T> static T dy(T, T, T, const float*) { return splat<T>(1.f); }
};

// ---- no broadcasting

// Ties give the gradient to y; a NaN on either side comes through.
struct BMax : OfXAndY {
  static constexpr Meta meta = Meta::binary("bmax", "max(x, y)", Reads::x);
  static Dim shape(const ShapeArgs& s) { return identical_shape(s); }
  template <class T> static T f(T x, T y, const float*) { return select(x > y, x, select(x == x, y, x)); }
  template <class T> static T dx(T x, T y, T, const float*) {
    return select(x > y, splat<T>(1.f), splat<T>(0.f));
  }
  template <class T> static T dy(T x, T y, T, const float*) {
    return select(x > y, splat<T>(0.f), splat<T>(1.f));
  }
};

struct BMin : OfXAndY {
  static constexpr Meta meta = Meta::binary("bmin", "min(x, y)", Reads::x);
  static Dim shape(const ShapeArgs& s) { return identical_shape(s); }
  template <class T> static T f(T x, T y, const float*) { return select(x < y, x, select(x == x, y, x)); }
  template <class T> static T dx(T x, T y, T, const float*) {
    return select(x < y, splat<T>(1.f), splat<T>(0.f));
  }
  template <class T> static T dy(T x, T y, T, const float*) {
    return select(x < y, splat<T>(0.f), splat<T>(1.f));
  }
};

// a: the margin m.
struct PairwiseRankLoss {
  static constexpr Meta meta = Meta::binary("pairwise_rank_loss", "max(0, m - x + y)", Reads::y);
  static constexpr Param params[] = {{"x"}, {"y"}, {"m", Param::real, 1.0}};
  static Dim shape(const ShapeArgs& s) {
    if (!(s[0] == s[1]) || s[0].rows() != 1 || s[0].nd > 2)
      shape_error(s, "two scalars or rows of equal shape and batch size");
    return s[0];
  }
  template <class T> static T f(T x, T y, const float* a) {
    const T z = a[0] - x + y;
    return select(z <= 0.f, splat<T>(0.f), z);
  }
  template <class T> static T dx(T, T, T z, const float*) {
    return select(z > 0.f, splat<T>(-1.f), splat<T>(0.f));
  }
  template <class T> static T dy(T, T, T z, const float*) {
    return select(z > 0.f, splat<T>(1.f), splat<T>(0.f));
  }
};

// ---- sums over all elements: x {..}xB, y {..}xB -> {1}xB. Term supplies, for V a vector of floats,
//   f(x, y, a)              one summand
//   dx(x, y, a), dy(...)    its derivatives
//   kAttr                   whether a[0] is an attribute

namespace detail {

template <class Term, class I>
DYC_INLINE float sum_of_terms(const float* x, const float* y, size_t n, const float* a) {
  return sum_run<I>(n, [&](size_t i, auto c) DYC_LAMBDA { return Term::f(c.get(x + i), c.get(y + i), a); });
}

template <class Term, int Arg, class V> DYC_INLINE V slope_of_term(V x, V y, const float* a) {
  if constexpr (Arg == 0) return Term::dx(x, y, a);
  else return Term::dy(x, y, a);
}

// g += d * slope
template <class Term, int Arg, class I>
DYC_INLINE void add_slopes(const float* x, const float* y, float d, float* g, size_t n, const float* a) {
  using V = typename I::V;
  constexpr size_t L = I::lanes;
  const V dv = splat<V>(d);
  if constexpr (is_thread_group<I>) {
    each_one<I>(
        n, [&](size_t i) DYC_LAMBDA { g[i] = vfma(dv, slope_of_term<Term, Arg, V>(x[i], y[i], a), g[i]); });
    return;
  }
  size_t i = 0;
  for (; i + L <= n; i += L)
    store(g + i, vfma(dv, slope_of_term<Term, Arg, V>(load<V>(x + i), load<V>(y + i), a), load<V>(g + i)));
  if (i < n) {
    const auto rest = static_cast<int>(n - i) % I::lanes;
    const V xv = load_n(x + i, rest), yv = load_n(y + i, rest), gv = load_n(g + i, rest);
    store_n(g + i, vfma(dv, slope_of_term<Term, Arg, V>(xv, yv, a), gv), rest);
  }
}

}  // namespace detail

template <class Term> struct SumOf : OfXAndY {
  static Dim shape(const ShapeArgs& s) {
    if (!s[0].same_sizes(s[1])) shape_error(s, "two arguments of equal shape");
    return Dim({1}, common_batch(s));
  }
  template <class I> static void forward(const KernelArgs& m) {
    const float c = Term::kAttr ? m.real(0) : 0.f;
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      m.out()[b] = detail::sum_of_terms<Term, I>(m.xb(0, b), m.xb(1, b), m.xs(0), &c);
  }
  template <class I> static void backward(const KernelArgs& m, uint32_t arg) {
    const float c = Term::kAttr ? m.real(0) : 0.f;
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float *x = m.xb(0, b), *y = m.xb(1, b);
      if (arg == 0) detail::add_slopes<Term, 0, I>(x, y, m.dy[b], m.dxb(0, b), m.xs(0), &c);
      else detail::add_slopes<Term, 1, I>(x, y, m.dy[b], m.dxb(1, b), m.xs(0), &c);
    }
  }
};

struct ProductTerm {
  static constexpr bool kAttr = false;
  template <class V> static V f(V x, V y, const float*) { return x * y; }
  template <class V> static V dx(V, V y, const float*) { return y; }
  template <class V> static V dy(V x, V, const float*) { return x; }
};

struct DotProduct : SumOf<ProductTerm> {
  static constexpr Meta meta = Meta::per_node("dot_product", "sum(x .* y)", Reads::x);
};

struct TraceOfProduct : SumOf<ProductTerm> {
  static constexpr Meta meta = Meta::per_node("trace_of_product", "trace(x * transpose(y))", Reads::x);
};

// A distance also takes a vector and a matrix of one column.
template <class Term> struct Distance : SumOf<Term> {
  static Dim shape(const ShapeArgs& s) {
    const bool columns = s[0].column_like() && s[1].column_like() && s[0].rows() == s[1].rows();
    if (!columns && !s[0].same_sizes(s[1])) shape_error(s, "two arguments of equal shape");
    return Dim({1}, common_batch(s));
  }
};

struct SquareTerm {
  static constexpr bool kAttr = false;
  template <class V> static V f(V x, V y, const float*) { return (x - y) * (x - y); }
  template <class V> static V dx(V x, V y, const float*) { return 2.f * (x - y); }
  template <class V> static V dy(V x, V y, const float*) { return 2.f * (y - x); }
};

struct SquaredDistance : Distance<SquareTerm> {
  static constexpr Meta meta = Meta::per_node("squared_distance", "sum((x - y) ** 2)", Reads::x);
};

struct AbsTerm {
  static constexpr bool kAttr = false;
  template <class V> static V f(V x, V y, const float*) { return vabs(x - y); }
  template <class V> static V dx(V x, V y, const float*) { return sign_of(x - y); }
  template <class V> static V dy(V x, V y, const float*) { return sign_of(y - x); }
};

struct L1Distance : Distance<AbsTerm> {
  static constexpr Meta meta = Meta::per_node("l1_distance", "sum(|x - y|)", Reads::x);
};

struct HuberTerm {
  static constexpr bool kAttr = true;
  template <class V> static V f(V x, V y, const float* a) {
    const V d = x - y, r = vabs(d);
    return select(r < a[0], 0.5f * d * d, a[0] * (r - 0.5f * a[0]));
  }
  template <class V> static V dx(V x, V y, const float* a) {
    const V d = x - y;
    return select(vabs(d) < a[0], d, a[0] * sign_of(d));
  }
  template <class V> static V dy(V x, V y, const float* a) { return dx(y, x, a); }
};

// a: c.
struct HuberDistance : Distance<HuberTerm> {
  static constexpr Meta meta = Meta::per_node("huber_distance", "sum(huber(x - y, c))", Reads::x);
  static constexpr Param params[] = {{"x"}, {"y"}, {"c", Param::real, 1.345}};
};

// The logarithm of 0 (and of subnormal numbers) counts as that of the smallest normal float, 1.17549435e-38.
struct BinaryLogTerm {
  static constexpr bool kAttr = false;
  template <class V> static V at_least_normal(V x) {
    return select((x >= 0.f) & (x < 0x1p-126f), splat<V>(0x1p-126f), x);
  }
  template <class V> static V log_or_least(V x) { return vlog(at_least_normal(x)); }
  template <class V> static V f(V x, V y, const float*) {
    return -(y * log_or_least(x) + (1.f - y) * log_or_least(1.f - x));
  }
  // Division by 0 is avoided as in the reference: by the smallest float, and by the spacing of floats at 1.
  template <class V> static V dx(V x, V y, const float*) {
    const V low = at_least_normal(x);
    const V high = select(x == 1.f, splat<V>(0x1p-23f), 1.f - x);
    return select(x == y, splat<V>(0.f), (1.f - y) / high - y / low);
  }
  template <class V> static V dy(V x, V, const float*) { return log_or_least(1.f - x) - log_or_least(x); }
};

struct BinaryLogLoss : SumOf<BinaryLogTerm> {
  static constexpr Meta meta =
      Meta::per_node("binary_log_loss", "-sum(y log(x) + (1 - y) log(1 - x))", Reads::x);
  static Dim shape(const ShapeArgs& s) {
    identical_shape(s);
    return scalar_per_batch(s);
  }
};

// The ops of this file, in the order of their numbers.
using ArithmeticOps = OpList<Add, Sub, CMult, CDiv, Pow, ColwiseAdd, BMax, BMin, PairwiseRankLoss, DotProduct,
                             TraceOfProduct, SquaredDistance, L1Distance, HuberDistance, BinaryLogLoss>;

}  // namespace dyc
