// The trainers' rules and the norm of gradients for one instruction set.
#include "cpu/isa/tuning.h"
#include "cpu/simd_math.h"

#include "cpu/update_kernels.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace dyc::DYC_ISA {

namespace {

// ------------------------------------------------------------------------- n / a and n / sqrt(a)
// With AVX-512 an estimate of the inverse and one Newton step take the place of a division, or of a square
// root and a division: about an ulp from the exact quotient. For a >= +0, infinite or NaN they give what the
// division gives, except that 1 / a is infinite below 2^-128.

#if defined(__AVX512F__)
DYC_INLINE __m512 raw(V a) { return reinterpret_cast<__m512>(a); }

// The factors of a Newton step. Where a is 0 or infinite the estimate is exact, and 0 * infinity would make
// the step NaN. A comparison would run on the units that multiply; a minimum does not.
DYC_INLINE V finite(V a) { return vmin(splat<V>(0x1.fffffep127f), a); }
DYC_INLINE V inverse(V a) {
  const V r = reinterpret_cast<V>(_mm512_maskz_rcp14_ps(0xffff, raw(a))), s = finite(r);
  return vfma(s, vfma(-finite(a), s, splat<V>(1.f)), r);
}
DYC_INLINE V inverse_root(V a) {
  const V r = reinterpret_cast<V>(_mm512_maskz_rsqrt14_ps(0xffff, raw(a))), s = finite(r);
  return vfma(s, vfma(finite(a) * s, s * -0.5f, splat<V>(0.5f)), r);
}
DYC_INLINE V divide_by_sqrt(V n, V a) { return n * inverse_root(a); }
DYC_INLINE V subtract_quotient(V x, V n, V a) { return vfma(-n, inverse(a), x); }
DYC_INLINE V subtract_root_quotient(V x, V n, V a) { return vfma(-n, inverse_root(a), x); }
#else
DYC_INLINE V divide_by_sqrt(V n, V a) { return n / vsqrt(a); }
DYC_INLINE V subtract_quotient(V x, V n, V a) { return x - n / a; }
DYC_INLINE V subtract_root_quotient(V x, V n, V a) { return x - divide_by_sqrt(n, a); }
#endif

}  // namespace

}  // namespace dyc::DYC_ISA

namespace dyc {
using namespace DYC_ISA;
}

#include "ops/update_rules.h"

namespace dyc::DYC_ISA {

namespace {

struct Whole {
  DYC_INLINE V read(const float* p) const { return load<V>(p); }
  DYC_INLINE void write(float* p, V a) const { store(p, a); }
};
struct First {
  int n;
  DYC_INLINE V read(const float* p) const { return load_n(p, n); }
  DYC_INLINE void write(float* p, V a) const { store_n(p, a, n); }
};

enum class Gradient { none, unscaled, scaled };

// While it lives, numbers below the least normal one count as 0. Moments that decay become such numbers,
// which take Intel's processors ten times as long, and stay: 0.9 times the least of them is itself.
class DenormalsAreZero {
 public:
#if defined(__SSE2__)
  DenormalsAreZero() { _mm_setcsr(before_ | 0x8040); }  // results, operands
  ~DenormalsAreZero() { _mm_setcsr(before_); }

 private:
  const unsigned before_ = _mm_getcsr();
#else
  DenormalsAreZero() {}
#endif
};

template <class Rule, Gradient kGradient, class Part>
DYC_INLINE void update_vector(const UpdateSlice& t, const UpdateFactors& f, size_t i, Part part) {
  V s[rules::kMostStates];
  for (int k = 0; k < Rule::kStates; ++k) s[k] = part.read(t.state[k] + i);
  V g{};
  if constexpr (kGradient != Gradient::none) g = part.read(t.grad + i);
  if constexpr (kGradient == Gradient::scaled) g = g * f.clip;
  const V x = Rule::apply(part.read(t.old + i), g, s, f);
  for (int k = 0; k < Rule::kStates; ++k) part.write(t.state[k] + i, s[k]);
  part.write(t.out + i, x);
}

template <class Rule, Gradient kGradient>
void update(const UpdateSlice& slice, const UpdateFactors& factors) {
  // Copies, which the loop cannot write; field by field, as wide loads of what was just stored would stall.
  UpdateSlice t;
  t.old = slice.old;
  t.out = slice.out;
  t.grad = slice.grad;
  for (int k = 0; k < Rule::kStates; ++k) t.state[k] = slice.state[k];
  t.n = slice.n;
  const UpdateFactors f = factors;
  const DenormalsAreZero denormals_are_zero;
  size_t i = 0;
  for (; i + kLanes <= t.n; i += kLanes) update_vector<Rule, kGradient>(t, f, i, Whole{});
  if (i < t.n) update_vector<Rule, kGradient>(t, f, i, First{static_cast<int>(t.n - i)});
}

// Most gradients are not clipped, and these loops are bound by the multiplications.
template <class Rule>
void update_by_gradient(const UpdateSlice& slice, const UpdateFactors& factors) {
  if (factors.clip == 1.f) update<Rule, Gradient::unscaled>(slice, factors);
  else update<Rule, Gradient::scaled>(slice, factors);
}

template <class Rule>
constexpr UpdateKernels make_kernels() {
  return {Rule::kStates, update_by_gradient<Rule>,
          Rule::kIdleMatters ? update<Rule, Gradient::none> : nullptr};
}

DYC_INLINE V add_squares(V sum, const float* x) {
  const V a = load<V>(x);
  return vfma(a, a, sum);
}

DYC_INLINE float squares_in_float(const float* x, size_t n) {
  size_t i = 0;
  V a{};
  if (n >= 4 * kLanes) {
    V b{}, c{}, d{};  // four sums, because an addition takes four cycles
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
      a = add_squares(a, x + i);
      b = add_squares(b, x + i + kLanes);
      c = add_squares(c, x + i + 2 * kLanes);
      d = add_squares(d, x + i + 3 * kLanes);
    }
    a = (a + b) + (c + d);
  }
  for (; i + kLanes <= n; i += kLanes) a = add_squares(a, x + i);
  if (i < n) {
    const V rest = load_n(x + i, static_cast<int>(n - i));
    a = vfma(rest, rest, a);
  }
  return hsum(a);
}

// Squares of floats are exact in double and never leave its range. Eight sums, because an addition takes four
// cycles: late in training many gradients come here.
double squares_in_double(const float* x, size_t n) {
  constexpr size_t kSums = 8;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (size_t k = 0; k < kSums; ++k) sums[k] += static_cast<double>(x[i + k]) * x[i + k];
  for (; i < n; ++i) sums[0] += static_cast<double>(x[i]) * x[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Of numbers whose squares add up to 0 in float.
DYC_INLINE bool are_zero(const float* x, size_t n) {
  size_t i = 0;
  V largest{};
  for (; i + kLanes <= n; i += kLanes) largest = vmax(largest, vabs(load<V>(x + i)));
  if (i < n) largest = vmax(largest, vabs(load_n(x + i, static_cast<int>(n - i))));
  return hsum(largest) == 0.f;
}

double sum_of_squares(const float* x, size_t n) {
  double total = 0.;
  for (size_t i = 0; i < n; i += kSquaresBlock) {
    const size_t length = n - i < kSquaresBlock ? n - i : kSquaresBlock;
    const float sum = squares_in_float(x + i, length);
    if (sum == 0.f && are_zero(x + i, length))
      continue;  // parameters that a graph has used in vain, or not at all
    // Outside this range squares may have been lost to overflow or underflow.
    total += sum > 1e-28f && sum < 1e37f ? static_cast<double>(sum) : squares_in_double(x + i, length);
  }
  return total;
}

}  // namespace

}  // namespace dyc::DYC_ISA

#define DYC_JOIN2(a, b) a##b
#define DYC_JOIN(a, b) DYC_JOIN2(a, b)

namespace dyc {

const UpdateTable& DYC_JOIN(update_table_, DYC_ISA)() {
  using namespace DYC_ISA;
  // In the order of UpdateRule.
  static constexpr UpdateTable table{
      {make_kernels<rules::Sgd>(), make_kernels<rules::Momentum>(), make_kernels<rules::Adagrad>(),
       make_kernels<rules::Adadelta>(), make_kernels<rules::RmsProp>(), make_kernels<rules::Adam>(),
       make_kernels<rules::Amsgrad>(), make_kernels<rules::Exponentiated>(), make_kernels<rules::AdamW>()},
      DYC_ISA::sum_of_squares};
  return table;
}

}  // namespace dyc
