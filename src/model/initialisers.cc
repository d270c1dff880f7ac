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
  for (size_t i = 0; i < dims.size(); ++i) out << (i ? "," : "{") << dims[i];
  return out.str() + "}";
}

size_t square_extent(const char* initialiser, const InitTarget& target) {
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
                          dims_text(d), " has no extent but the last; wanted at least two"));
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

std::shared_ptr<NormalInitialiser> NormalInitialiser::he(uint32_t last_extent) {
  if (last_extent == 0) throw ValueError("init='he': got a last extent of 0; wanted at least 1");
  return std::make_shared<NormalInitialiser>(0.f, 1.f / (2.f * static_cast<float>(last_extent)));
}

void NormalInitialiser::fill(float* out, const InitTarget& target) const {
  random_engine().normal(out, target.size(), mean_, deviation_);
}

void ConstInitialiser::fill(float* out, const InitTarget& target) const {
  std::fill(out, out + target.size(), value_);
}

void IdentityInitialiser::fill(float* out, const InitTarget& target) const {
  const size_t n = square_extent("IdentityInitializer", target);
  std::fill(out, out + n * n, 0.f);
  for (size_t i = 0; i < n; ++i) out[i * n + i] = 1.f;
}

void SaxeInitialiser::fill(float* out, const InitTarget& target) const {
  const size_t n = square_extent("SaxeInitializer", target);
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

// ------------------------------------------------------------------------------------------- SVD

namespace {

// Rotates columns p and q of a {n,n} so that they become orthogonal; false if they already are.
bool orthogonalise(double* p, double* q, size_t n) {
  double pp = 0, qq = 0, pq = 0;
  for (size_t i = 0; i < n; ++i) {
    pp += p[i] * p[i];
    qq += q[i] * q[i];
    pq += p[i] * q[i];
  }
  if (std::abs(pq) <= 1e-15 * std::sqrt(pp * qq)) return false;
  const double zeta = (qq - pp) / (2.0 * pq);
  const double t = std::copysign(1.0, zeta) / (std::abs(zeta) + std::sqrt(1.0 + zeta * zeta));
  const double c = 1.0 / std::sqrt(1.0 + t * t), s = c * t;
  for (size_t i = 0; i < n; ++i) {
    const double x = p[i], y = q[i];
    p[i] = c * x - s * y;
    q[i] = s * x + c * y;
  }
  return true;
}

// A column with no length left (a singular matrix) becomes any unit vector orthogonal to the others.
void complete_basis(std::vector<double>& u, size_t n, size_t column) {
  double* target = &u[column * n];
  for (size_t unit = 0; unit < n; ++unit) {
    std::fill(target, target + n, 0.0);
    target[unit] = 1.0;
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t j = 0; j < column; ++j) {
        const double dot = std::inner_product(target, target + n, &u[j * n], 0.0);
        for (size_t i = 0; i < n; ++i) target[i] -= dot * u[j * n + i];
      }
    }
    const double length = std::sqrt(std::inner_product(target, target + n, target, 0.0));
    if (length < 0.5 / std::sqrt(static_cast<double>(n))) continue;
    for (size_t i = 0; i < n; ++i) target[i] /= length;
    return;
  }
}

}  // namespace

// One-sided Jacobi: rotations from the right make the columns orthogonal, A V = U S.
void left_singular_vectors(std::vector<double>& a, size_t n) {
  bool rotated = true;
  for (int sweep = 0; sweep < 60 && rotated; ++sweep) {
    rotated = false;
    for (size_t p = 0; p + 1 < n; ++p)
      for (size_t q = p + 1; q < n; ++q) rotated |= orthogonalise(&a[p * n], &a[q * n], n);
  }
  std::vector<double> length(n);
  for (size_t j = 0; j < n; ++j)
    length[j] = std::sqrt(std::inner_product(&a[j * n], &a[j * n] + n, &a[j * n], 0.0));
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return length[x] > length[y]; });
  std::vector<double> u(n * n);
  for (size_t j = 0; j < n; ++j) {
    const size_t from = order[j];
    if (length[from] > 1e-13 * length[order[0]]) {
      for (size_t i = 0; i < n; ++i) u[j * n + i] = a[from * n + i] / length[from];
    } else {
      complete_basis(u, n, j);
    }
  }
  a.swap(u);
}

}  // namespace dyc
