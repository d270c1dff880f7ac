// Element-wise ops y = f(x): the shape and batch size of y are those of x.
// T is float or a vector of floats; vexp, select, splat ... are supplied by the device (cpu/simd.h, cuda)
// and must be declared, visible from namespace dyc, before this header is read (cpu/isa/map.h does that).
#pragma once
#include "ops/op.h"

namespace dyc {

// What the ops of one Expression argument have in common.
struct OfX {
  static constexpr Param params[] = {{"x"}};
  static Dim shape(const ShapeArgs& s) { return same_as_x(s); }
};

// Sign of x; 0 at 0 and for NaN.
template <class T> DYC_INLINE T sign_of(T x) {
  return select(x > 0.f, splat<T>(1.f), select(x < 0.f, splat<T>(-1.f), splat<T>(0.f)));
}

// ---- powers, exponentials, logarithms

struct Exp : OfX {
  static constexpr Meta meta = Meta::unary("exp", "exp(x)", Reads::y);
  template <class T> static T f(T x, const float*) { return vexp(x); }
  template <class T> static T df(T, T y, const float*) { return y; }
};

struct Log : OfX {
  static constexpr Meta meta = Meta::unary("log", "log(x)", Reads::x);
  template <class T> static T f(T x, const float*) { return vlog(x); }
  template <class T> static T df(T x, T, const float*) { return 1.f / x; }
};

struct Sqrt : OfX {
  static constexpr Meta meta = Meta::unary("sqrt", "sqrt(x)", Reads::y);
  template <class T> static T f(T x, const float*) { return vsqrt(x); }
  template <class T> static T df(T, T y, const float*) { return 0.5f / y; }
};

struct Square : OfX {
  static constexpr Meta meta = Meta::unary("square", "x ** 2", Reads::x);
  template <class T> static T f(T x, const float*) { return x * x; }
  template <class T> static T df(T x, T, const float*) { return x + x; }
};

struct Cube : OfX {
  static constexpr Meta meta = Meta::unary("cube", "x ** 3", Reads::x);
  template <class T> static T f(T x, const float*) { return x * x * x; }
  template <class T> static T df(T x, T, const float*) { return 3.f * x * x; }
};

// x^e with one exponent for all elements; the exponents scripts use most do without logarithms.
template <class T> DYC_INLINE T power_of(T x, float e) {
  if (e == 2.f) return x * x;
  if (e == 1.f) return x;
  if (e == 3.f) return x * x * x;
  if (e == -1.f) return 1.f / x;
  if (e == 0.f) return splat<T>(1.f);
  return vpow(x, splat<T>(e));
}

// a: the exponent.
struct PowConst {
  static constexpr Meta meta = Meta::unary("pow_const", "x ** e", Reads::x).hide();
  static constexpr Param params[] = {{"x"}, {"e", Param::real}};
  static Dim shape(const ShapeArgs& s) {  // like x ** y, without trailing ones
    Dim r = s[0];
    r.drop_trailing_ones();
    return r;
  }
  template <class T> static T f(T x, const float* a) { return power_of(x, a[0]); }
  template <class T> static T df(T x, T, const float* a) { return a[0] * power_of(x, a[0] - 1.f); }
};

struct Abs : OfX {
  static constexpr Meta meta = Meta::unary("abs", "|x|", Reads::x);
  template <class T> static T f(T x, const float*) { return vabs(x); }
  template <class T> static T df(T x, T, const float*) { return sign_of(x); }
};

// ---- trigonometric and hyperbolic functions

struct Sin : OfX {
  static constexpr Meta meta = Meta::unary("sin", "sin(x)", Reads::x);
  template <class T> static T f(T x, const float*) { return vsin(x); }
  template <class T> static T df(T x, T, const float*) { return vcos(x); }
};

struct Cos : OfX {
  static constexpr Meta meta = Meta::unary("cos", "cos(x)", Reads::x);
  template <class T> static T f(T x, const float*) { return vcos(x); }
  template <class T> static T df(T x, T, const float*) { return -vsin(x); }
};

struct Tan : OfX {
  static constexpr Meta meta = Meta::unary("tan", "tan(x)", Reads::y);
  template <class T> static T f(T x, const float*) { return vtan(x); }
  template <class T> static T df(T, T y, const float*) { return 1.f + y * y; }
};

struct Asin : OfX {
  static constexpr Meta meta = Meta::unary("asin", "asin(x)", Reads::x);
  template <class T> static T f(T x, const float*) { return vasin(x); }
  template <class T> static T df(T x, T, const float*) { return 1.f / vsqrt((1.f - x) * (1.f + x)); }
};

struct Acos : OfX {
  static constexpr Meta meta = Meta::unary("acos", "acos(x)", Reads::x);
  template <class T> static T f(T x, const float*) { return vacos(x); }
  template <class T> static T df(T x, T, const float*) { return -1.f / vsqrt((1.f - x) * (1.f + x)); }
};

struct Atan : OfX {
  static constexpr Meta meta = Meta::unary("atan", "atan(x)", Reads::x);
  template <class T> static T f(T x, const float*) { return vatan(x); }
  template <class T> static T df(T x, T, const float*) { return 1.f / (1.f + x * x); }
};

struct Sinh : OfX {
  static constexpr Meta meta = Meta::unary("sinh", "sinh(x)", Reads::x);
  template <class T> static T f(T x, const float*) { return vsinh(x); }
  template <class T> static T df(T x, T, const float*) { return vcosh(x); }
};

struct Cosh : OfX {
  static constexpr Meta meta = Meta::unary("cosh", "cosh(x)", Reads::x);
  template <class T> static T f(T x, const float*) { return vcosh(x); }
  template <class T> static T df(T x, T, const float*) { return vsinh(x); }
};

struct Tanh : OfX {
  static constexpr Meta meta = Meta::unary("tanh", "tanh(x)", Reads::y);
  template <class T> static T f(T x, const float*) { return vtanh(x); }
  template <class T> static T df(T, T y, const float*) { return 1.f - y * y; }
};

struct Asinh : OfX {
  static constexpr Meta meta = Meta::unary("asinh", "asinh(x)", Reads::x);
  template <class T> static T f(T x, const float*) { return vasinh(x); }
  template <class T> static T df(T x, T, const float*) { return 1.f / vsqrt(x * x + 1.f); }
};

struct Acosh : OfX {
  static constexpr Meta meta = Meta::unary("acosh", "acosh(x)", Reads::x);
  template <class T> static T f(T x, const float*) { return vacosh(x); }
  // Two roots: NaN below -1 as below 1, where acosh is not defined either.
  template <class T> static T df(T x, T, const float*) { return 1.f / (vsqrt(x - 1.f) * vsqrt(x + 1.f)); }
};

struct Atanh : OfX {
  static constexpr Meta meta = Meta::unary("atanh", "atanh(x)", Reads::x);
  template <class T> static T f(T x, const float*) { return vatanh(x); }
  template <class T> static T df(T x, T, const float*) { return 1.f / ((1.f - x) * (1.f + x)); }
};

// ---- activations

struct Logistic : OfX {
  static constexpr Meta meta = Meta::unary("logistic", "1 / (1 + exp(-x))", Reads::y);
  template <class T> static T f(T x, const float*) { return vlogistic(x); }
  template <class T> static T df(T, T y, const float*) { return y * (1.f - y); }
};

struct LogSigmoid : OfX {
  static constexpr Meta meta = Meta::unary("log_sigmoid", "-log(1 + exp(-x))", Reads::y);
  template <class T> static T f(T x, const float*) { return vlog_sigmoid(x); }
  template <class T> static T df(T, T y, const float*) { return -vexpm1(y); }
};

struct Rectify : OfX {
  static constexpr Meta meta = Meta::unary("rectify", "max(x, 0)", Reads::y);
  // NaN stays NaN.
  template <class T> static T f(T x, const float*) { return select(x <= 0.f, splat<T>(0.f), x); }
  template <class T> static T df(T, T y, const float*) {
    return select(y != 0.f, splat<T>(1.f), splat<T>(0.f));
  }
};

// a: alpha.
struct Elu {
  static constexpr Meta meta = Meta::unary("elu", "x if x > 0 else alpha * (exp(x) - 1)", Reads::x);
  static constexpr Param params[] = {{"x"}, {"alpha", Param::real, 1.0}};
  static Dim shape(const ShapeArgs& s) { return same_as_x(s); }
  template <class T> static T f(T x, const float* a) { return select(x > 0.f, x, a[0] * vexpm1(x)); }
  template <class T> static T df(T x, T, const float* a) {
    return select(x > 0.f, splat<T>(1.f), a[0] * vexp(x));
  }
};

struct Selu : OfX {
  static constexpr Meta meta = Meta::unary("selu", "scaled elu(x)", Reads::x);
  static constexpr float kScale = 1.0507009873554805f;
  static constexpr float kScaledAlpha = 1.0507009873554805 * 1.6732632423543772;
  template <class T> static T f(T x, const float*) {
    return select(x > 0.f, kScale * x, kScaledAlpha * vexpm1(x));
  }
  template <class T> static T df(T x, T, const float*) {
    return select(x > 0.f, splat<T>(kScale), kScaledAlpha * vexp(x));
  }
};

// a: beta.
struct Silu {
  static constexpr Meta meta = Meta::unary("silu", "x * logistic(beta * x)", Reads::x);
  static constexpr Param params[] = {{"x"}, {"beta", Param::real, 1.0}};
  static Dim shape(const ShapeArgs& s) { return same_as_x(s); }
  template <class T> static T f(T x, const float* a) { return x * vlogistic(a[0] * x); }
  template <class T> static T df(T x, T, const float* a) {
    const T z = a[0] * x;
    const T s = vlogistic(z);
    return s + z * s * (1.f - s);
  }
};

struct Softsign : OfX {
  static constexpr Meta meta = Meta::unary("softsign", "x / (1 + |x|)", Reads::x);
  static Dim shape(const ShapeArgs& s) {
    if (!s[0].column_like()) shape_error(s, "a vector");
    return s[0];
  }
  template <class T> static T f(T x, const float*) {
    const T a = vabs(x), limit = vcopysign(splat<T>(1.f), x);
    return select(a == splat<T>(__builtin_inff()), limit, x / (1.f + a));
  }
  template <class T> static T df(T x, T, const float*) {
    const T d = 1.f + vabs(x);
    return 1.f / (d * d);
  }
};

// ---- special functions

struct Erf : OfX {
  static constexpr Meta meta = Meta::unary("erf", "erf(x)", Reads::x);
  template <class T> static T f(T x, const float*) { return verf(x); }
  template <class T> static T df(T x, T, const float*) { return 1.1283791670955126f * vexp(-(x * x)); }
};

struct Gelu : OfX {
  static constexpr Meta meta = Meta::unary("gelu", "x (1 + erf(x / sqrt(2))) / 2", Reads::x);
  // The normal distribution function of x.
  template <class T> static T normal_cdf(T x) { return 0.5f + 0.5f * verf(x * 0.70710678118654752f); }
  // Factors whose other factor is 0 may not be infinite.
  template <class T> static T f(T x, const float*) { return vmax(splat<T>(-40.f), x) * normal_cdf(x); }
  template <class T> static T df(T x, T, const float*) {
    const T near = vmin(splat<T>(40.f), vmax(splat<T>(-40.f), x));
    return normal_cdf(x) + near * (0.3989422804014327f * vexp(-0.5f * (near * near)));
  }
};

struct Lgamma : OfX {
  static constexpr Meta meta = Meta::unary("lgamma", "log|gamma(x)|", Reads::x);
  template <class T> static T f(T x, const float*) { return vlgamma(x); }
  template <class T> static T df(T x, T, const float*) { return vdigamma(x); }
};

// ---- rounding. a: gradient mode, 0 zero_gradient, 1 straight_through_gradient

struct Rounding {
  static constexpr Param params[] = {{"x"}, {"gradient_mode", Param::uint}};
  static Dim shape(const ShapeArgs& s) { return same_as_x(s); }
  template <class T> static T df(T, T, const float* a) {
    uint32_t mode;
    __builtin_memcpy(&mode, a, sizeof mode);
    return splat<T>(mode ? 1.f : 0.f);
  }
};

struct Round : Rounding {
  static constexpr Meta meta = Meta::unary("round", "round(x)", Reads::none);
  template <class T> static T f(T x, const float*) { return vround(x); }  // halves away from zero
};

struct Ceil : Rounding {
  static constexpr Meta meta = Meta::unary("ceil", "ceil(x)", Reads::none);
  template <class T> static T f(T x, const float*) { return vceil(x); }
};

struct Floor : Rounding {
  static constexpr Meta meta = Meta::unary("floor", "floor(x)", Reads::none);
  template <class T> static T f(T x, const float*) { return vfloor(x); }
};

// ---- x and a number (operators)

struct Negate : OfX {
  static constexpr Meta meta = Meta::unary("negate", "-x", Reads::none).hide();
  template <class T> static T f(T x, const float*) { return -x; }
  template <class T> static T df(T, T, const float*) { return splat<T>(-1.f); }
};

// a: the number.
struct OfXAndNumber {
  static constexpr Param params[] = {{"x"}, {"c", Param::real}};
  static Dim shape(const ShapeArgs& s) { return same_as_x(s); }
};

struct Scale : OfXAndNumber {
  static constexpr Meta meta = Meta::unary("scale", "x * c", Reads::none).hide();
  template <class T> static T f(T x, const float* a) { return x * a[0]; }
  template <class T> static T df(T, T, const float* a) { return splat<T>(a[0]); }
};

struct AddConst : OfXAndNumber {
  static constexpr Meta meta = Meta::unary("add_const", "x + c", Reads::none).hide();
  template <class T> static T f(T x, const float* a) { return x + a[0]; }
  template <class T> static T df(T, T, const float*) { return splat<T>(1.f); }
};

struct ConstMinus : OfXAndNumber {
  static constexpr Meta meta = Meta::unary("const_minus", "c - x", Reads::none).hide();
  template <class T> static T f(T x, const float* a) { return a[0] - x; }
  template <class T> static T df(T, T, const float*) { return splat<T>(-1.f); }
};

struct ConstDiv : OfXAndNumber {
  static constexpr Meta meta = Meta::unary("const_div", "c / x", Reads::x_and_y).hide();
  template <class T> static T f(T x, const float* a) { return a[0] / x; }
  template <class T> static T df(T x, T y, const float*) { return -(y / x); }
};

// ---- identities that change the gradient

struct NoBackprop : OfX {
  static constexpr Meta meta{.name = "nobackprop",
                             .formula = "x",
                             .kind = OpKind::unary,
                             .batch = Batch::ragged,
                             .nondiff = true,
                             .reads_x = false,
                             .reads_y = false};
  template <class T> static T f(T x, const float*) { return x; }
  template <class T> static T df(T, T, const float*) { return splat<T>(0.f); }
};

struct FlipGradient : OfX {
  static constexpr Meta meta = Meta::unary("flip_gradient", "x, gradient * -1", Reads::none);
  template <class T> static T f(T x, const float*) { return x; }
  template <class T> static T df(T, T, const float*) { return splat<T>(-1.f); }
};

// a: lambd.
struct ScaleGradient {
  static constexpr Meta meta = Meta::unary("scale_gradient", "x, gradient * lambd", Reads::none);
  static constexpr Param params[] = {{"x"}, {"lambd", Param::real, 1.0}};
  static Dim shape(const ShapeArgs& s) { return same_as_x(s); }
  template <class T> static T f(T x, const float*) { return x; }
  template <class T> static T df(T, T, const float* a) { return splat<T>(a[0]); }
};

// The ops of this file, in the order of their numbers.
using ElementwiseOps = OpList<Exp, Log, Sqrt, Square, Cube, PowConst, Abs, Sin, Cos, Tan, Asin, Acos, Atan,
                              Sinh, Cosh, Tanh, Asinh, Acosh, Atanh, Logistic, LogSigmoid, Rectify, Elu, Selu,
                              Silu, Softsign, Erf, Lgamma, Round, Ceil, Floor, Negate, Scale, AddConst,
                              ConstMinus, ConstDiv, NoBackprop, FlipGradient, ScaleGradient, Gelu>;

}  // namespace dyc
