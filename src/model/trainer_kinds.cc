// The trainers: which numbers each has, and what it gives to its rule (ops/update_rules.h) for an update.
#include "model/trainer_kinds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace dyc {

namespace {

using Model = std::shared_ptr<Collection>;

// Rules whose step has the learning rate in the gradient: one multiplication per element instead of two.
void scale_gradient(UpdateFactors& factors, float learning_rate) {
  factors.rate = learning_rate * factors.clip;
  factors.clip = 1.f;
}

// x -= lr g
struct SimpleSgd : Trainer {
  SimpleSgd(Model m, const float* v) : Trainer(std::move(m), UpdateRule::kSgd, v[0]) {}
  const char* name() const override { return "SimpleSGDTrainer"; }
  void set_factors(UpdateFactors& factors, float decay, double) const override {
    factors.step = learning_rate_ * factors.clip / decay;
    factors.clip = 1.f;
  }
};

// SGD whose learning rate goes up and down between two values: after the update with number k = 0,1,..
// lr = min + (max - min) max(0, 1 - |k/S - 2 floor(1 + k/(2S)) + 1|) gamma^k.
// Smith, Cyclical learning rates for training neural networks, 2017.
class CyclicalSgd : public SimpleSgd {
 public:
  CyclicalSgd(Model m, const float* v)
      : SimpleSgd(std::move(m), v), min_(v[0]), max_(v[1]), step_size_(v[2]), gamma_(v[3]) {
    if (!(step_size_ > 0.f))
      throw ValueError(text("CyclicalSGDTrainer(): got step_size ", step_size_, "; wanted > 0"));
  }
  const char* name() const override { return "CyclicalSGDTrainer"; }

 protected:
  void after_update() override {
    const double k = static_cast<double>(cycle_updates_++);
    const double cycle = std::floor(1.0 + k / (2.0 * step_size_));
    const double distance = std::abs(k / step_size_ - 2.0 * cycle + 1.0);
    learning_rate_ = static_cast<float>(min_ + (static_cast<double>(max_) - min_) *
                                                   std::max(0.0, 1.0 - distance) * std::pow(gamma_, k));
  }
  uint64_t cycle() const override { return cycle_updates_; }
  void set_cycle(uint64_t value) override { cycle_updates_ = value; }

 private:
  const float min_, max_, step_size_, gamma_;
  uint64_t cycle_updates_ = 0;
};

// v = mom v - lr g; x += v
struct MomentumSgd : Trainer {
  MomentumSgd(Model m, const float* v) : Trainer(std::move(m), UpdateRule::kMomentum, v[0]), momentum(v[1]) {}
  const char* name() const override { return "MomentumSGDTrainer"; }
  void set_factors(UpdateFactors& factors, float decay, double) const override {
    scale_gradient(factors, learning_rate_);
    factors.decay1 = momentum;
    factors.step = 1.f / decay;
  }
  const float momentum;
};

// v += g^2; x -= lr g / sqrt(v + eps). Duchi et al., 2011.
struct Adagrad : Trainer {
  Adagrad(Model m, const float* v) : Trainer(std::move(m), UpdateRule::kAdagrad, v[0]), epsilon(v[1]) {}
  const char* name() const override { return "AdagradTrainer"; }
  void set_factors(UpdateFactors& factors, float decay, double) const override {
    factors.step = learning_rate_ / decay;
    factors.epsilon = epsilon;
  }
  const float epsilon;
};

// a = rho a + (1-rho) g^2; d = -g sqrt(b+eps)/sqrt(a+eps); b = rho b + (1-rho) d^2; x += d. Zeiler, 2012.
// The learning rate reads 1 and is not used.
struct Adadelta : Trainer {
  Adadelta(Model m, const float* v)
      : Trainer(std::move(m), UpdateRule::kAdadelta, 1.f), epsilon(v[0]), rho(v[1]) {}
  const char* name() const override { return "AdadeltaTrainer"; }
  void set_factors(UpdateFactors& factors, float decay, double) const override {
    factors.step = 1.f / decay;
    factors.decay1 = rho;
    factors.epsilon = epsilon;
  }
  const float epsilon, rho;
};

// v = rho v + (1-rho) g^2; x -= lr g / sqrt(v + eps). Tieleman and Hinton, 2012.
struct RmsProp : Trainer {
  RmsProp(Model m, const float* v)
      : Trainer(std::move(m), UpdateRule::kRmsProp, v[0]), epsilon(v[1]), rho(v[2]) {}
  const char* name() const override { return "RMSPropTrainer"; }
  void set_factors(UpdateFactors& factors, float decay, double) const override {
    factors.step = learning_rate_ / decay;
    factors.decay1 = rho;
    factors.epsilon = epsilon;
  }
  const float epsilon, rho;
};

// m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; x -= alpha sqrt(1-b2^t)/(1-b1^t) m / (sqrt(v) + eps).
// Kingma and Ba, 2015; eps stands outside the bias correction, as in DyNet.
class Adam : public Trainer {
 public:
  Adam(Model m, const float* v, UpdateRule rule = UpdateRule::kAdam)
      : Trainer(std::move(m), rule, v[0]), beta_1_(v[1]), beta_2_(v[2]), epsilon_(v[3]) {}
  const char* name() const override { return "AdamTrainer"; }

 protected:
  void set_factors(UpdateFactors& factors, float decay, double t) const override {
    if (t == power_t_ + 1.0) {  // two calls of pow() cost as much as the update of a small parameter
      power_1_ *= beta_1_;
      power_2_ *= beta_2_;
    } else if (t != power_t_) {
      power_1_ = std::pow(beta_1_, t);
      power_2_ = std::pow(beta_2_, t);
    }
    power_t_ = t;
    const double correction = std::sqrt(1.0 - power_2_) / (1.0 - power_1_);
    factors.step = static_cast<float>(learning_rate_ * correction / decay);
    factors.decay1 = beta_1_;
    factors.decay2 = beta_2_;
    factors.epsilon = epsilon_;
  }

 private:
  const float beta_1_, beta_2_, epsilon_;
  mutable double power_1_ = 1.0, power_2_ = 1.0, power_t_ = 0.0;  // beta^t
};

// Adam, and x -= alpha weight_decay x: the decay is no part of the gradient, so it is neither clipped nor in
// m and v. Of a lookup it changes the rows that the update changes. Loshchilov and Hutter, Decoupled weight
// decay regularization, 2019.
class AdamW : public Adam {
 public:
  AdamW(Model m, const float* v) : Adam(std::move(m), v, UpdateRule::kAdamW), weight_decay_(v[4]) {
    if (!(weight_decay_ >= 0.f && std::isfinite(weight_decay_)))
      throw ValueError(
          text("AdamWTrainer(): got weight_decay ", weight_decay_, "; wanted a finite number >= 0"));
    decays_ = weight_decay_ > 0.f;
  }
  const char* name() const override { return "AdamWTrainer"; }

 protected:
  void set_factors(UpdateFactors& factors, float decay, double t) const override {
    Adam::set_factors(factors, decay, t);
    factors.rate = learning_rate_ * weight_decay_;
  }

 private:
  const float weight_decay_;
};

// Adam with the largest v so far in place of v. Reddi et al., 2018.
struct Amsgrad : Adam {
  Amsgrad(Model m, const float* v) : Adam(std::move(m), v, UpdateRule::kAmsgrad) {}
  const char* name() const override { return "AmsgradTrainer"; }
};

// v = mom v - lr g; x = x exp(v) / sum(x exp(v)): the values of a Parameters, or of each row of a lookup, are
// positive and add up to 1. Kivinen and Warmuth, Exponentiated gradient versus gradient descent, 1997.
class ExponentiatedGradient : public Trainer {
 public:
  ExponentiatedGradient(Model m, const float* v)
      : Trainer(std::move(m), UpdateRule::kExponentiated, v[0]), momentum_(v[1]) {
    finishes_ = true;
  }
  const char* name() const override { return "EGTrainer"; }

 protected:
  void set_factors(UpdateFactors& factors, float, double) const override {
    scale_gradient(factors, learning_rate_);
    factors.decay1 = momentum_;
  }
  void check_values() const override;
  void finish(float* values, size_t n, float decay) const override;

 private:
  const float momentum_;
};

void ExponentiatedGradient::check_values() const {
  for (const StoragePtr& p : collection()->storages()) {
    const float* x = p->values();
    const auto bad = std::find_if(x, x + p->size(), [](float v) { return !(v > 0.f && std::isfinite(v)); });
    if (!p->updated || bad == x + p->size()) continue;
    throw ValueError(text("EGTrainer.update(): parameter ", p->name, " has the value ", *bad,
                          "; wanted positive ones, such as init=1/n. Nothing was updated."));
  }
}

void ExponentiatedGradient::finish(float* values, size_t n, float decay) const {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += values[i];
  const double factor = 1.0 / (sum * decay);
  // No value may become 0, from where there is no way back.
  for (size_t i = 0; i < n; ++i)
    values[i] = std::max(static_cast<float>(values[i] * factor), std::numeric_limits<float>::min());
}

template <class T>
std::unique_ptr<Trainer> make(Model m, const float* numbers) {
  return std::make_unique<T>(std::move(m), numbers);
}

const TrainerNumber kRate = {"learning_rate", "0.1", "e0"}, kSmallRate = {"learning_rate", "0.001", "e0"};
const TrainerNumber kMomentum = {"mom", "0.9"}, kAlpha = {"alpha", "0.001"}, kBeta1 = {"beta_1", "0.9"};
const TrainerNumber kBeta2 = {"beta_2", "0.999"}, kEps = {"eps", "1e-8"};

}  // namespace

const std::array<TrainerKind, kTrainerKinds> trainer_kinds = {{
    {"SimpleSGDTrainer", {kRate}, make<SimpleSgd>},
    {"CyclicalSGDTrainer",
     {{"learning_rate_min", "0.01", "e0_min"},
      {"learning_rate_max", "0.1", "e0_max"},
      {"step_size", "2000"},
      {"gamma", "1.0"}},
     make<CyclicalSgd>},
    {"MomentumSGDTrainer", {{"learning_rate", "0.01", "e0"}, kMomentum}, make<MomentumSgd>},
    {"AdagradTrainer", {kRate, {"eps", "1e-20"}}, make<Adagrad>},
    {"AdadeltaTrainer", {{"eps", "1e-6"}, {"rho", "0.95"}}, make<Adadelta>},
    {"RMSPropTrainer", {kSmallRate, kEps, {"rho", "0.9"}}, make<RmsProp>},
    {"AdamTrainer", {{"alpha", "0.001", "e0"}, kBeta1, kBeta2, kEps}, make<Adam>},
    {"AdamWTrainer", {kAlpha, kBeta1, kBeta2, kEps, {"weight_decay", "0.01"}}, make<AdamW>},
    {"AmsgradTrainer", {kAlpha, kBeta1, kBeta2, kEps}, make<Amsgrad>},
    {"EGTrainer", {kRate, kMomentum}, make<ExponentiatedGradient>},
}};

}  // namespace dyc
