#include "model/trainers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/tuning.h"

namespace dyc {

namespace {

using tuning::kUpdatePiece;

double squares_of_rows(const float* table, size_t width, const uint32_t* rows, size_t n) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += sum_of_squares(table + rows[i] * width, width);
  return sum;
}

double squared_grad_norm(const Storage& storage) {
  if (!storage.has_grad()) return 0.0;
  if (storage.dense_grad()) return sum_of_squares(storage.raw_grad(), storage.size());
  const auto& rows = storage.touched_rows();
  return squares_of_rows(storage.raw_grad(), storage.row_size(), rows.data(), rows.size());
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
    : learning_rate_(learning_rate),
      collection_(std::move(collection)),
      rule_(rule),
      kernels_(update_kernels(rule)) {
  if (!collection_) throw ValueError("Trainer(): got no ParameterCollection");
}

// ------------------------------------------------------------------------------------------ update

void Trainer::update(float scale) {
  if (averaged())
    throw RuntimeError(text(name(),
                            ".update(): the parameters have the values of the moving average; wanted "
                            "swap_params_to_weights() before. Nothing was updated."));
  check_values();
  allocate_states();
  if (!update_on_device(scale)) update_on_host(scale);
  ++updates_;
  ++status_updates_;
  collection_->decay_weights();
  after_update();
  if (average_) average_->add(*collection_, updates_);
}

bool Trainer::clip(UpdateFactors& factors, double norm) const {
  norm *= std::abs(factors.clip);
  if (!std::isfinite(norm)) refuse_norm(norm);
  if (clip_threshold_ <= 0.f || !(norm > clip_threshold_)) return false;
  factors.clip = static_cast<float>(factors.clip * (clip_threshold_ / norm));
  return true;
}

void Trainer::update_on_host(float scale) {
  const auto& parameters = collection_->parameters();
  const auto& lookups = collection_->lookups();
  const bool whole_tables = !sparse_updates_ && kernels_.idle;
  size_t elements = 0;
  for (const auto& p : parameters) elements += p->size();
  for (const auto& p : lookups) elements += whole_tables ? p->size() : p->grad_size();
  shared_ = elements >= tuning::kParallelUpdate;
  UpdateFactors factors;
  factors.clip = scale;
  if (clip_threshold_ > 0.f && clip(factors, gradient_norm())) ++status_clips_;
  set_factors(factors, collection_->decay_factor(), static_cast<double>(updates_ + 1));
  try {
    update_all(factors);
  } catch (...) {  // out of memory: what was begun is finished, as its new buffers are current already
    if (shared_) run_updates(factors);
    throw;
  }
  if (shared_) run_updates(factors);
}

// Relative to the present rate, so that a rate the program has set goes on from there.
void Trainer::update_epoch(float epochs) {
  const float before = 1.f + epochs_ * epoch_decay_;
  epochs_ += epochs;
  learning_rate_ *= before / (1.f + epochs_ * epoch_decay_);
}

void Trainer::update_all(const UpdateFactors& factors) {
  const auto& parameters = collection_->parameters();
  const auto& lookups = collection_->lookups();
  n_jobs_ = 0;
  allocate_states();  // another thread may have added parameters while this one waited for the device
  const size_t n_parameters = parameters.size(), n_lookups = lookups.size();
  for (size_t i = 0; i < n_parameters; ++i)
    if (parameters[i]->updated) update_dense(*parameters[i], state_of(parameter_states_, i), factors);
  for (size_t i = 0; i < n_lookups; ++i)
    if (lookups[i]->updated) update_lookup(*lookups[i], state_of(lookup_states_, i), factors);
}

void Trainer::allocate_states() {
  if (kernels_.states == 0) return;
  allocate_states(collection_->parameters(), parameter_states_);
  allocate_states(collection_->lookups(), lookup_states_);
}

void Trainer::allocate_states(const std::vector<StoragePtr>& storages, std::deque<State>& states) {
  while (states.size() < storages.size()) {
    // Large buffers all start at the same offset in a page, and a pass over six of them in step would crowd
    // into few sets of the cache: the states get offsets of their own.
    constexpr size_t kShift = 208;
    const size_t stride = (storages[states.size()]->size() + 15) / 16 * 16 + kShift;
    State state;
    state.buffer = FloatBuffer(static_cast<size_t>(kernels_.states) * stride, true);
    for (int i = 0; i < kernels_.states; ++i)
      state.array[i] = state.buffer.data() + static_cast<size_t>(i) * stride + kShift;
    states.push_back(std::move(state));
  }
}

double Trainer::gradient_norm() {
  const std::vector<StoragePtr> all = collection_->storages();
  double sum = 0.0;
  if (!shared_) {
    for (const StoragePtr& p : all) sum += squared_grad_norm(*p);
    return std::sqrt(sum);
  }
  const auto squares = [](const UpdateJob& job, size_t begin, size_t end) {
    if (!job.rows) return sum_of_squares(job.slice.grad + begin, end - begin);
    return squares_of_rows(job.slice.grad, job.width, job.rows->data() + begin, end - begin);
  };
  n_jobs_ = 0;
  for (const StoragePtr& p : all)
    if (p->has_grad()) add_job(*p, p->dense_grad() ? nullptr : &p->touched_rows());
  cut_jobs();
  sums_.resize(pieces_.size());
  parallel_for(pieces_.size(), 1, [&](size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) {
      const Piece& piece = pieces_[i];
      sums_[piece.number] = squares(jobs_[piece.job], piece.begin, piece.end);
    }
  });
  for (double s : sums_) sum += s;
  return std::sqrt(sum);
}

void Trainer::refuse_norm(double norm) const {
  std::string where;
  for (const StoragePtr& p : collection_->storages())
    if (where.empty() && !std::isfinite(squared_grad_norm(*p))) where = p->name;
  throw RuntimeError(text(name(), ".update(): Magnitude of gradient is bad: ", norm,  // begins as in DyNet
                          where.empty() ? "" : ", first in parameter ", where,
                          "; wanted a finite number. Nothing was updated. "
                          "renew_cg(immediate_compute=True, check_validity=True) stops where it arises."));
}

// -------------------------------------------------------------------------------------------- jobs

// The caller fills in what else its pass needs.
Trainer::UpdateJob& Trainer::add_job(Storage& storage, const std::vector<uint32_t>* rows) {
  if (n_jobs_ == jobs_.size()) jobs_.emplace_back();
  UpdateJob& job = jobs_[n_jobs_++];
  job.storage = &storage;
  job.slice.n = storage.size();
  job.slice.grad = storage.raw_grad();
  job.rows = rows;
  job.width = storage.row_size();
  return job;
}

// Frozen parameters never come here. Without a gradient most rules still move their state or x.
void Trainer::update_dense(Storage& storage, State* state, const UpdateFactors& factors) {
  const bool active = storage.has_grad();
  const UpdateKernel kernel = active ? kernels_.active : kernels_.idle;
  // While all state is zero, a zero gradient changes nothing but by weight decay.
  if (kernel && (active || state->touched || decays_)) update_rows(storage, state, kernel, nullptr, factors);
}

void Trainer::update_lookup(Storage& storage, State* state, const UpdateFactors& factors) {
  // Rules that do nothing for a zero gradient need no pass over the rows without one.
  const bool whole_table = !sparse_updates_ && kernels_.idle;
  if (whole_table && storage.has_grad()) storage.grad();  // zeros in the rows not touched
  if (whole_table || storage.dense_grad()) return update_dense(storage, state, factors);
  if (storage.has_grad()) update_rows(storage, state, kernels_.active, &storage.touched_rows(), factors);
}

// All elements if rows is nullptr. At once if the pass is not shared among threads.
void Trainer::update_rows(Storage& storage, State* state, UpdateKernel kernel,
                          const std::vector<uint32_t>* rows, const UpdateFactors& factors) {
  const float* old = storage.values();
  float* out = rows ? storage.begin_write_rows(*rows) : storage.begin_write(false);
  UpdateJob& job = add_job(storage, rows);
  job.kernel = kernel;
  job.slice.old = old;
  job.slice.out = out;
  if (state) {
    state->touched = true;
    for (int i = 0; i < kernels_.states; ++i) job.slice.state[i] = state->array[i];
  }
  if (shared_) return;
  --n_jobs_;
  if (rows) run_rows(job, 0, rows->size(), factors);
  else kernel(job.slice, factors);
  if (finishes_) finish_job(job);
  storage.clear_grad();
}

void Trainer::run_rows(const UpdateJob& job, size_t begin, size_t end, const UpdateFactors& factors) const {
  for (size_t i = begin; i < end; ++i)
    job.kernel(part(job.slice, kernels_.states, (*job.rows)[i] * job.width, job.width), factors);
}

// Threads take the same parts of each parameter as when its gradient was computed.
void Trainer::cut_jobs() {
  pieces_.clear();
  const auto threads = static_cast<size_t>(thread_pool().threads());
  for (uint32_t j = 0; j < n_jobs_; ++j) {
    const UpdateJob& job = jobs_[j];
    const size_t units = job.rows ? job.rows->size() : job.slice.n;
    const size_t step = job.rows ? kUpdatePiece / std::max<size_t>(job.width, 1) + 1 : kUpdatePiece;
    for (size_t begin = 0; begin < units; begin += step)
      pieces_.push_back({j, begin, std::min(units, begin + step), pieces_.size(), begin * threads / units});
  }
  if (threads > 1)
    std::stable_sort(pieces_.begin(), pieces_.end(),
                     [](const Piece& a, const Piece& b) { return a.turn < b.turn; });
}

void Trainer::run_updates(const UpdateFactors& factors) {
  cut_jobs();
  parallel_for(pieces_.size(), 1, [&](size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) {
      const auto& [j, begin, end, number, turn] = pieces_[i];
      const UpdateJob& job = jobs_[j];
      if (job.rows) run_rows(job, begin, end, factors);
      else job.kernel(part(job.slice, kernels_.states, begin, end - begin), factors);
    }
  });
  for (size_t j = 0; j < n_jobs_; ++j) {
    if (finishes_) finish_job(jobs_[j]);
    jobs_[j].storage->clear_grad();
  }
}

void Trainer::finish_job(const UpdateJob& job) const {
  const float decay = job.storage->decay->factor;
  if (job.rows)
    for (const uint32_t row : *job.rows) finish(job.slice.out + row * job.width, job.width, decay);
  else
    for (size_t i = 0; i < job.slice.n; i += job.width) finish(job.slice.out + i, job.width, decay);
}

// ---------------------------------------------------------------------------------- moving average

void Trainer::average(MovingAverage::Kind kind, float beta, uint32_t every) {
  auto made = std::make_unique<MovingAverage>(kind, beta, every);
  if (averaged())
    throw RuntimeError(
        "moving average: the parameters have the values of the last one; wanted swap_params_to_weights() "
        "before");
  average_ = std::move(made);
}

MovingAverage& Trainer::wanted_average(const char* call) {
  if (!average_)
    throw RuntimeError(text(call,
                            "(): there is no moving average; wanted exponential_moving_average() or "
                            "cumulative_moving_average() before the updates"));
  return *average_;
}

void Trainer::swap_to_average(bool save, bool corrected) {
  wanted_average("swap_params_to_moving_average").swap_in(*collection_, save, corrected);
}

void Trainer::swap_to_weights() { wanted_average("swap_params_to_weights").swap_out(); }

void Trainer::restart() {
  for (auto* states : {&parameter_states_, &lookup_states_}) {
    for (State& state : *states) {
      if (!state.touched) continue;
      state.on_device = false;
      std::memset(state.buffer.data(), 0, state.buffer.size() * sizeof(float));
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

AdamWTrainer::AdamWTrainer(std::shared_ptr<Collection> m, float alpha, float beta_1, float beta_2, float eps,
                           float weight_decay)
    : AdamTrainer(std::move(m), UpdateRule::kAdamW, alpha, beta_1, beta_2, eps), weight_decay_(weight_decay) {
  if (!(weight_decay >= 0.f && std::isfinite(weight_decay)))
    throw ValueError(
        text("AdamWTrainer(): got weight_decay ", weight_decay, "; wanted a finite number >= 0"));
  decays_ = weight_decay > 0.f;
}

void AdamWTrainer::set_factors(UpdateFactors& factors, float decay, double t) const {
  AdamTrainer::set_factors(factors, decay, t);
  factors.rate = learning_rate_ * weight_decay_;
}

AmsgradTrainer::AmsgradTrainer(std::shared_ptr<Collection> m, float alpha, float beta_1, float beta_2,
                               float eps)
    : AdamTrainer(std::move(m), UpdateRule::kAmsgrad, alpha, beta_1, beta_2, eps) {}

EgTrainer::EgTrainer(std::shared_ptr<Collection> m, float learning_rate, float mom)
    : Trainer(std::move(m), UpdateRule::kExponentiated, learning_rate), momentum_(mom) {
  finishes_ = true;
}

void EgTrainer::set_factors(UpdateFactors& factors, float, double) const {
  factors.rate = learning_rate_ * factors.clip;
  factors.clip = 1.f;
  factors.decay1 = momentum_;
}

void EgTrainer::check_values() const {
  for (const StoragePtr& p : collection()->storages()) {
    const float* x = p->values();
    const auto bad = std::find_if(x, x + p->size(), [](float v) { return !(v > 0.f && std::isfinite(v)); });
    if (!p->updated || bad == x + p->size()) continue;
    throw ValueError(text("EGTrainer.update(): parameter ", p->name, " has the value ", *bad,
                          "; wanted positive ones, such as init=1/n. Nothing was updated."));
  }
}

void EgTrainer::finish(float* values, size_t n, float decay) const {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += values[i];
  const double factor = 1.0 / (sum * decay);
  // No value may become 0, from where there is no way back.
  for (size_t i = 0; i < n; ++i)
    values[i] = std::max(static_cast<float>(values[i] * factor), std::numeric_limits<float>::min());
}

}  // namespace dyc
