#include "model/trainers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/thread_pool.h"

namespace dyc {

namespace {

// Elements per task of the thread pool, large enough to outweigh handing it over. Norms are summed task
// by task in order, so that results do not depend on the number of threads.
constexpr size_t kChunk = size_t{1} << 15;
constexpr size_t kParallel = 4 * kChunk;

double squared_norm(const float* x, size_t n) {
  if (n < kParallel) return sum_of_squares(x, n);
  std::vector<double> sums((n + kChunk - 1) / kChunk);
  parallel_for(n, kChunk, [&](size_t begin, size_t end) {
    sums[begin / kChunk] = sum_of_squares(x + begin, end - begin);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

double squared_grad_norm(const Storage& storage) {
  if (!storage.has_grad()) return 0.0;
  if (storage.dense_grad()) return squared_norm(storage.raw_grad(), storage.size());
  double sum = 0.0;
  for (uint32_t row : storage.touched_rows())
    sum += sum_of_squares(storage.raw_grad() + row * storage.row_size(), storage.row_size());
  return sum;
}

// The part of `slice` that starts at `begin` and has n elements.
inline UpdateSlice part(const UpdateSlice& slice, int states, size_t begin, size_t n) {
  UpdateSlice p = slice;
  p.old += begin;
  p.out += begin;
  if (p.grad) p.grad += begin;
  for (int i = 0; i < states; ++i) p.state[i] += begin;
  p.n = n;
  return p;
}

}  // namespace

Trainer::Trainer(std::shared_ptr<Collection> collection, UpdateRule rule, float learning_rate)
    : learning_rate_(learning_rate), collection_(std::move(collection)), kernels_(update_kernels(rule)) {
  if (!collection_) throw ValueError("Trainer(): got no ParameterCollection");
}

// ------------------------------------------------------------------------------------------ update

void Trainer::update() {
  const auto& parameters = collection_->parameters();
  const auto& lookups = collection_->lookups();
  if (kernels_.states > 0) {
    allocate_states(parameters, parameter_states_);
    allocate_states(lookups, lookup_states_);
  }
  UpdateFactors factors;
  if (clip_threshold_ > 0.f) {
    const double norm = gradient_norm();
    if (!std::isfinite(norm)) refuse_norm(norm);
    if (norm > clip_threshold_) {
      ++status_clips_;
      factors.clip = static_cast<float>(clip_threshold_ / norm);
    }
  }
  set_factors(factors, collection_->decay_factor(), static_cast<double>(updates_ + 1));
  const bool stateful = kernels_.states > 0;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i]->updated)
      update_dense(*parameters[i], stateful ? &parameter_states_[i] : nullptr, factors);
  for (size_t i = 0; i < lookups.size(); ++i)
    if (lookups[i]->updated) update_lookup(*lookups[i], stateful ? &lookup_states_[i] : nullptr, factors);
  ++updates_;
  ++status_updates_;
  collection_->decay_weights();
  after_update();
}

void Trainer::allocate_states(const std::vector<StoragePtr>& storages, std::vector<State>& states) {
  while (states.size() < storages.size()) {
    State state;
    for (int i = 0; i < kernels_.states; ++i)
      state.array[i] = FloatBuffer(storages[states.size()]->size(), true);
    states.push_back(std::move(state));
  }
}

double Trainer::gradient_norm() const {
  double sum = 0.0;
  for (const auto& p : collection_->parameters()) sum += squared_grad_norm(*p);
  for (const auto& p : collection_->lookups()) sum += squared_grad_norm(*p);
  return std::sqrt(sum);
}

void Trainer::refuse_norm(double norm) const {
  std::string where;
  for (const auto* list : {&collection_->parameters(), &collection_->lookups()})
    for (const auto& p : *list)
      if (where.empty() && !std::isfinite(squared_grad_norm(*p))) where = p->name;
  throw RuntimeError(text(name(), ".update(): the norm of the gradients is ", norm, ", first in parameter ",
                          where, "; wanted a finite number. Nothing was updated."));
}

// Frozen parameters never come here. Without a gradient most rules still move their state or x.
void Trainer::update_dense(Storage& storage, State* state, const UpdateFactors& factors) {
  const bool active = storage.has_grad();
  UpdateKernel kernel = active ? kernels_.active : kernels_.idle;
  // While all state is zero, a zero gradient changes nothing.
  if (!kernel || (!active && !state->touched)) return;
  UpdateSlice slice{};
  slice.n = storage.size();
  slice.old = storage.values();
  slice.grad = storage.raw_grad();
  slice.out = storage.begin_write(false);
  if (state) {
    state->touched = true;
    for (int i = 0; i < kernels_.states; ++i) slice.state[i] = state->array[i].data();
  }
  if (slice.n < kParallel) {
    kernel(slice, factors);
  } else {
    parallel_for(slice.n, kChunk, [&](size_t begin, size_t end) {
      kernel(part(slice, kernels_.states, begin, end - begin), factors);
    });
  }
  storage.clear_grad();
}

void Trainer::update_lookup(Storage& storage, State* state, const UpdateFactors& factors) {
  // Rules that do nothing for a zero gradient need no pass over the rows without one.
  const bool whole_table = !sparse_updates_ && kernels_.idle;
  if (whole_table && storage.has_grad()) storage.grad();  // zeros in the rows not touched
  if (whole_table || storage.dense_grad()) return update_dense(storage, state, factors);
  if (!storage.has_grad()) return;
  UpdateSlice table{};
  table.old = storage.values();
  table.grad = storage.raw_grad();
  table.out = storage.begin_write_rows(storage.touched_rows());
  if (state) {
    state->touched = true;
    for (int i = 0; i < kernels_.states; ++i) table.state[i] = state->array[i].data();
  }
  const std::vector<uint32_t>& touched = storage.touched_rows();
  const size_t width = storage.row_size();
  const auto update_rows = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      kernels_.active(part(table, kernels_.states, touched[i] * width, width), factors);
  };
  if (touched.size() * width < kParallel) update_rows(0, touched.size());
  else parallel_for(touched.size(), kChunk / width + 1, update_rows);
  storage.clear_grad();
}

void Trainer::restart() {
  for (auto* states : {&parameter_states_, &lookup_states_}) {
    for (State& state : *states) {
      if (!state.touched) continue;
      for (int i = 0; i < kernels_.states; ++i)
        std::memset(state.array[i].data(), 0, state.array[i].size() * sizeof(float));
      state.touched = false;
    }
  }
}

void Trainer::restart(float learning_rate) {
  set_learning_rate(learning_rate);
  restart();
}

std::string Trainer::take_status() {
  const std::string s =
      text("[lr=", learning_rate_, " clips=", status_clips_, " updates=", status_updates_, "] ");
  status_clips_ = status_updates_ = 0;
  return s;
}

// ------------------------------------------------------------------------------------------- rules

SimpleSgdTrainer::SimpleSgdTrainer(std::shared_ptr<Collection> m, float learning_rate)
    : Trainer(std::move(m), UpdateRule::kSgd, learning_rate) {}

void SimpleSgdTrainer::set_factors(UpdateFactors& factors, float decay, double) const {
  // One multiplication per element instead of two.
  factors.step = learning_rate_ * factors.clip / decay;
  factors.clip = 1.f;
}

CyclicalSgdTrainer::CyclicalSgdTrainer(std::shared_ptr<Collection> m, float learning_rate_min,
                                       float learning_rate_max, float step_size, float gamma)
    : SimpleSgdTrainer(std::move(m), learning_rate_min),
      min_(learning_rate_min),
      max_(learning_rate_max),
      step_size_(step_size),
      gamma_(gamma) {
  if (!(step_size > 0.f))
    throw ValueError(text("CyclicalSGDTrainer(): got step_size ", step_size, "; wanted > 0"));
}

void CyclicalSgdTrainer::after_update() {
  const double k = static_cast<double>(cycle_updates_++);
  const double cycle = std::floor(1.0 + k / (2.0 * step_size_));
  const double distance = std::abs(k / step_size_ - 2.0 * cycle + 1.0);
  learning_rate_ = static_cast<float>(min_ + (static_cast<double>(max_) - min_) *
                                                 std::max(0.0, 1.0 - distance) * std::pow(gamma_, k));
}

MomentumSgdTrainer::MomentumSgdTrainer(std::shared_ptr<Collection> m, float learning_rate, float mom)
    : Trainer(std::move(m), UpdateRule::kMomentum, learning_rate), momentum_(mom) {}

void MomentumSgdTrainer::set_factors(UpdateFactors& factors, float decay, double) const {
  factors.rate = learning_rate_ * factors.clip;
  factors.clip = 1.f;
  factors.decay1 = momentum_;
  factors.step = 1.f / decay;
}

AdagradTrainer::AdagradTrainer(std::shared_ptr<Collection> m, float learning_rate, float eps)
    : Trainer(std::move(m), UpdateRule::kAdagrad, learning_rate), epsilon_(eps) {}

void AdagradTrainer::set_factors(UpdateFactors& factors, float decay, double) const {
  factors.step = learning_rate_ / decay;
  factors.epsilon = epsilon_;
}

AdadeltaTrainer::AdadeltaTrainer(std::shared_ptr<Collection> m, float eps, float rho)
    : Trainer(std::move(m), UpdateRule::kAdadelta, 1.f), epsilon_(eps), rho_(rho) {}

void AdadeltaTrainer::set_factors(UpdateFactors& factors, float decay, double) const {
  factors.step = 1.f / decay;
  factors.decay1 = rho_;
  factors.epsilon = epsilon_;
}

RmsPropTrainer::RmsPropTrainer(std::shared_ptr<Collection> m, float learning_rate, float eps, float rho)
    : Trainer(std::move(m), UpdateRule::kRmsProp, learning_rate), epsilon_(eps), rho_(rho) {}

void RmsPropTrainer::set_factors(UpdateFactors& factors, float decay, double) const {
  factors.step = learning_rate_ / decay;
  factors.decay1 = rho_;
  factors.epsilon = epsilon_;
}

AdamTrainer::AdamTrainer(std::shared_ptr<Collection> m, UpdateRule rule, float alpha, float beta_1,
                         float beta_2, float eps)
    : Trainer(std::move(m), rule, alpha), beta_1_(beta_1), beta_2_(beta_2), epsilon_(eps) {}

AdamTrainer::AdamTrainer(std::shared_ptr<Collection> m, float alpha, float beta_1, float beta_2, float eps)
    : AdamTrainer(std::move(m), UpdateRule::kAdam, alpha, beta_1, beta_2, eps) {}

void AdamTrainer::set_factors(UpdateFactors& factors, float decay, double t) const {
  const double correction = std::sqrt(1.0 - std::pow(beta_2_, t)) / (1.0 - std::pow(beta_1_, t));
  factors.step = static_cast<float>(learning_rate_ * correction / decay);
  factors.decay1 = beta_1_;
  factors.decay2 = beta_2_;
  factors.epsilon = epsilon_;
}

AmsgradTrainer::AmsgradTrainer(std::shared_ptr<Collection> m, float alpha, float beta_1, float beta_2,
                               float eps)
    : AdamTrainer(std::move(m), UpdateRule::kAmsgrad, alpha, beta_1, beta_2, eps) {}

}  // namespace dyc
