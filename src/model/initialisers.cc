#include "model/initialisers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "base/random.h"

namespace dyc {

namespace {

std::string dims_text(const std::vector<uint32_t>& dims) {
  std::ostringstream out;
  for (size_t i = 0; i < dims.size(); ++i) out << (i ? "," : "") << dims[i];
  return "{" + out.str() + "}";
}

size_t square_size(const char* initialiser, const InitTarget& target) {
  if (target.dims.size() != 2 || target.dims[0] != target.dims[1])
    throw RuntimeError(text(initialiser, ": parameter ", target.name, " has dimensions ",
                            dims_text(target.dims), "; wanted a square matrix"));
  return target.dims[0];
}

void check_count(const std::string& source, size_t got, const InitTarget& target) {
  if (got != target.size())
    throw ValueError(text(source, ": got ", got, " values for parameter ", target.name, " of dimensions ",
                          dims_text(target.dims), "; wanted ", target.size()));
}

}  // namespace

size_t InitTarget::size() const {
  size_t n = 1;
  for (uint32_t d : dims) n *= d;
  return n;
}

void GlorotInitialiser::fill(float* out, const InitTarget& target) const {
  const std::vector<uint32_t>& d = target.dims;
  const size_t k = d.size() - (is_lookup_ ? 1 : 0);
  if (k == 0)
    throw ValueError(text("GlorotInitializer(is_lookup=True): parameter ", target.name, " of dimensions ",
                          dims_text(d), " has no dimension but the last; wanted at least two"));
  // In double with one rounding at the end: this is what the wheel's values show, bit for bit.
  double numerator = 3.0 * static_cast<double>(k), denominator = 0.0;
  if (k == 4) {
    const double window = static_cast<double>(d[0]) * d[1];
    numerator = 6.0;
    denominator = window * d[2] + window * d[3];
  } else {
    for (size_t i = 0; i < k; ++i) denominator += d[i];
  }
  const float s = static_cast<float>(gain_ * std::sqrt(numerator) / std::sqrt(denominator));
  random_engine().uniform(out, target.size(), -s, s);
}

UniformInitialiser::UniformInitialiser(float scale) : scale_(scale) {
  if (scale == 0.f || !std::isfinite(scale))
    throw ValueError(
        text("UniformInitializer(): got scale ", scale, "; wanted a finite number other than 0"));
}

void UniformInitialiser::fill(float* out, const InitTarget& target) const {
  random_engine().uniform(out, target.size(), -scale_, scale_);
}

NormalInitialiser::NormalInitialiser(float mean, float variance)
    : mean_(mean), deviation_(std::sqrt(variance)) {
  if (!(variance >= 0.f) || !std::isfinite(mean))
    throw ValueError(text("NormalInitializer(): got mean ", mean, ", var ", variance,
                          "; wanted a finite mean and var >= 0"));
}

std::shared_ptr<NormalInitialiser> NormalInitialiser::with_deviation(float mean, float deviation) {
  auto made = std::make_shared<NormalInitialiser>(mean, 1.f);
  if (!(deviation >= 0.f))
    throw ValueError(text("init='normal': got std ", deviation, "; wanted a number >= 0"));
  made->deviation_ = deviation;
  return made;
}

std::shared_ptr<NormalInitialiser> NormalInitialiser::he(uint32_t last_dim) {
  if (last_dim == 0) throw ValueError("init='he': got a last dimension of 0; wanted at least 1");
  return std::make_shared<NormalInitialiser>(0.f, 1.f / (2.f * static_cast<float>(last_dim)));
}

void NormalInitialiser::fill(float* out, const InitTarget& target) const {
  random_engine().normal(out, target.size(), mean_, deviation_);
}

void ConstInitialiser::fill(float* out, const InitTarget& target) const {
  std::fill(out, out + target.size(), value_);
}

void IdentityInitialiser::fill(float* out, const InitTarget& target) const {
  const size_t n = square_size("IdentityInitializer", target);
  std::fill(out, out + n * n, 0.f);
  for (size_t i = 0; i < n; ++i) out[i * n + i] = 1.f;
}

void SaxeInitialiser::fill(float* out, const InitTarget& target) const {
  const size_t n = square_size("SaxeInitializer", target);
  random_engine().uniform(out, n * n, -1.f, 1.f);
  std::vector<double> a(out, out + n * n);
  left_singular_vectors(a, n);
  for (size_t i = 0; i < n * n; ++i) out[i] = scale_ * static_cast<float>(a[i]);
}

void FromFileInitialiser::fill(float* out, const InitTarget& target) const {
  std::ifstream in(path_);
  if (!in)
    throw RuntimeError(text("FromFileInitializer(): cannot read '", path_, "' for parameter ", target.name));
  std::vector<float> values;
  std::string word;
  while (in >> word) {
    char* end = nullptr;
    values.push_back(std::strtof(word.c_str(), &end));
    if (*end != '\0')
      throw ValueError(text("FromFileInitializer('", path_, "'): value ", values.size() - 1, " is '", word,
                            "'; wanted a number"));
  }
  check_count(text("FromFileInitializer('", path_, "')"), values.size(), target);
  std::copy(values.begin(), values.end(), out);
}

void ArrayInitialiser::fill(float* out, const InitTarget& target) const {
  if (target.is_lookup && !for_lookups_)
    throw ValueError(text("NumpyInitializer: ", target.name,
                          " is a lookup parameter; wanted an add_parameters(), "
                          "or use lookup_parameters_from_numpy()"));
  check_count("NumpyInitializer", values_.size(), target);
  std::copy(values_.begin(), values_.end(), out);
}

namespace {

struct Rotation {
  double c, s;
};

// x = c x + s y, y = c y - s x: n pairs, `step` apart.
void rotate(double* x, double* y, size_t n, size_t step, Rotation r) {
  for (size_t i = 0; i < n; ++i, x += step, y += step) {
    const double a = *x, b = *y;
    *x = r.c * a + r.s * b;
    *y = r.c * b - r.s * a;
  }
}

// Makes [a b; c d] symmetric when it rotates the rows.
Rotation symmetrising(double a, double b, double c, double d) {
  const double difference = c - b, ratio = (a + d) / difference;
  if (difference == 0.0 || !std::isfinite(ratio)) return {1.0, 0.0};
  const double length = std::sqrt(1.0 + ratio * ratio);
  return {ratio / length, 1.0 / length};
}

// Makes the symmetric [a b; b d] diagonal when it rotates the columns by its inverse, by 45 degrees at most.
Rotation diagonalising(double a, double b, double d) {
  const double tau = (a - d) / (2.0 * std::abs(b));
  if (b == 0.0 || !std::isfinite(tau)) return {1.0, 0.0};
  const double root = std::sqrt(tau * tau + 1.0);
  const double t = tau > 0.0 ? 1.0 / (tau + root) : 1.0 / (tau - root);
  const double c = 1.0 / std::sqrt(t * t + 1.0);
  return {c, -std::copysign(t * c, t * b)};
}

}  // namespace

// Two-sided Jacobi (Kogbetliantz, 1955): rotations of rows and columns make U' A V diagonal. The order of the
// pairs, the choice of the smaller angle and U's part in the signs at the end decide the signs of the
// columns; they are such that the signs are those of DyNet's values.
void left_singular_vectors(std::vector<double>& a, size_t n) {
  std::vector<double> u(n * n, 0.0);
  for (size_t i = 0; i < n; ++i) u[i * n + i] = 1.0;
  bool rotated = true;
  for (int sweep = 0; sweep < 60 && rotated; ++sweep) {
    rotated = false;
    for (size_t p = 1; p < n; ++p)
      for (size_t q = 0; q < p; ++q) {
        const double pp = a[p * n + p], pq = a[q * n + p], qp = a[p * n + q], qq = a[q * n + q];
        const double negligible = 4e-16 * std::max(std::abs(pp), std::abs(qq));
        if (std::abs(pq) <= negligible && std::abs(qp) <= negligible) continue;
        rotated = true;
        const Rotation s = symmetrising(pp, pq, qp, qq);
        const Rotation r = diagonalising(s.c * pp + s.s * qp, s.c * pq + s.s * qq, s.c * qq - s.s * pq);
        const Rotation left{s.c * r.c + s.s * r.s, s.s * r.c - s.c * r.s};
        rotate(&a[p], &a[q], n, n, left);
        rotate(&u[p * n], &u[q * n], n, 1, left);
        rotate(&a[p * n], &a[q * n], n, 1, {r.c, -r.s});
      }
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return std::abs(a[i * n + i]) > std::abs(a[j * n + j]); });
  std::vector<double> sorted(n * n);
  for (size_t j = 0; j < n; ++j) {
    const size_t from = order[j];
    const double sign = a[from * n + from] < 0.0 ? -1.0 : 1.0;
    for (size_t i = 0; i < n; ++i) sorted[j * n + i] = sign * u[from * n + i];
  }
  a.swap(sorted);
}

}  // namespace dyc
