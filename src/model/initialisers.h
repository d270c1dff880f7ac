// Initial values of parameters: DyNet's distributions, drawn from the process-wide engine.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace dyc {

// What an initialiser fills: the stored tensor. For lookups the last dimension is the number of rows.
struct InitTarget {
  std::string name;            // of the parameter, for messages
  std::vector<uint32_t> dims;  // shape of a row, then N for lookups
  bool is_lookup = false;
  size_t size() const;
};

class Initialiser {
 public:
  virtual ~Initialiser() = default;
  // Writes all target.size() values. Throws before anything is drawn if the target does not fit.
  virtual void fill(float* out, const InitTarget& target) const = 0;
  virtual std::string str() const = 0;  // as Python makes it
};

using InitialiserPtr = std::shared_ptr<const Initialiser>;

// U(-s, s), s = gain * sqrt(3 k / sum of the k dimensions); is_lookup leaves N out of these.
// k == 4 (convolution filters {h,w,in,out}): s = gain * sqrt(6 / (h w in + h w out)).
// Glorot and Bengio, Understanding the difficulty of training deep feedforward networks, 2010.
class GlorotInitialiser : public Initialiser {
 public:
  explicit GlorotInitialiser(bool is_lookup = false, float gain = 1.f) : is_lookup_(is_lookup), gain_(gain) {}
  void fill(float* out, const InitTarget& target) const override;
  std::string str() const override {
    return text("GlorotInitializer(is_lookup=", is_lookup_ ? "True" : "False", ", gain=", gain_, ")");
  }

 private:
  bool is_lookup_;
  float gain_;
};

// U(-scale, scale); scale 0: ValueError.
class UniformInitialiser : public Initialiser {
 public:
  explicit UniformInitialiser(float scale);
  void fill(float* out, const InitTarget& target) const override;
  std::string str() const override { return text("UniformInitializer(", scale_, ")"); }

 private:
  float scale_;
};

// N(mean, variance).
class NormalInitialiser : public Initialiser {
 public:
  explicit NormalInitialiser(float mean = 0.f, float variance = 1.f);
  // DyNet's string form 'normal' gives the standard deviation.
  static std::shared_ptr<NormalInitialiser> with_deviation(float mean, float deviation);
  // DyNet's string form 'he': variance 1 / (2 last), last = last dimension of the dim argument.
  static std::shared_ptr<NormalInitialiser> he(uint32_t last_dim);
  void fill(float* out, const InitTarget& target) const override;
  std::string str() const override {
    return text("NormalInitializer(mean=", mean_, ", var=", deviation_ * deviation_, ")");
  }

 private:
  float mean_, deviation_;
};

class ConstInitialiser : public Initialiser {
 public:
  explicit ConstInitialiser(float value) : value_(value) {}
  void fill(float* out, const InitTarget& target) const override;
  std::string str() const override { return text("ConstInitializer(", value_, ")"); }

 private:
  float value_;
};

// Square matrices only (RuntimeError).
class IdentityInitialiser : public Initialiser {
 public:
  void fill(float* out, const InitTarget& target) const override;
  std::string str() const override { return "IdentityInitializer()"; }
};

// scale * U of the singular value decomposition U S V' of a U(-1,1) square matrix (else RuntimeError).
// Saxe et al., Exact solutions to the nonlinear dynamics of learning in deep linear networks, 2013.
class SaxeInitialiser : public Initialiser {
 public:
  explicit SaxeInitialiser(float scale = 1.f) : scale_(scale) {}
  void fill(float* out, const InitTarget& target) const override;
  std::string str() const override { return text("SaxeInitializer(scale=", scale_, ")"); }

 private:
  float scale_;
};

// Whitespace-separated numbers in memory order, exactly as many as there are values.
class FromFileInitialiser : public Initialiser {
 public:
  explicit FromFileInitialiser(std::string path) : path_(std::move(path)) {}
  void fill(float* out, const InitTarget& target) const override;
  std::string str() const override { return text("FromFileInitializer('", path_, "')"); }

 private:
  std::string path_;
};

// Given values in memory (column-major) order. `for_lookups`: false for NumpyInitializer, which DyNet
// does not allow for lookups; true for lookup_parameters_from_numpy.
class ArrayInitialiser : public Initialiser {
 public:
  explicit ArrayInitialiser(std::vector<float> values, bool for_lookups = false)
      : values_(std::move(values)), for_lookups_(for_lookups) {}
  void fill(float* out, const InitTarget& target) const override;
  std::string str() const override { return text("NumpyInitializer(", values_.size(), " values)"); }

 private:
  std::vector<float> values_;
  bool for_lookups_;
};

// Left singular vectors of the square column-major matrix a {n,n}, in place, ordered by falling
// singular value, with the signs that DyNet's have.
void left_singular_vectors(std::vector<double>& a, size_t n);

}  // namespace dyc
