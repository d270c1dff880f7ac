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

bool Trainer::is_usable(double norm, float scale) {
  return norm * norm <= std::numeric_limits<float>::max() && std::isfinite(norm * scale);
}

bool Trainer::clip(UpdateFactors& factors, double norm) const {
  if (!is_usable(norm, factors.clip)) refuse_norm(norm);
  norm *= std::abs(factors.clip);
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
    const size_t stride = (storages[states.size()]->size() + 15) / 16 * 16 + tuning::kStateShift;
    State state;
    state.buffer =
        FloatBuffer(static_cast<size_t>(kernels_.states) * stride, true, FloatBuffer::Kind::lasting);
    for (int i = 0; i < kernels_.states; ++i)
      state.array[i] = state.buffer.data() + static_cast<size_t>(i) * stride + tuning::kStateShift;
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
    if (where.empty() && !is_usable(std::sqrt(squared_grad_norm(*p)), 1.f)) where = p->name;
  throw RuntimeError(text(name(), ".update(): Magnitude of gradient is bad: ", norm,  // begins as in DyNet
                          where.empty() ? "" : ", first in parameter ", where,
                          "; wanted a number whose square is a finite float. Nothing was updated. "
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
  const auto units_of = [](const UpdateJob& job) { return job.rows ? job.rows->size() : job.slice.n; };
  size_t elements = 0;
  for (uint32_t j = 0; j < n_jobs_; ++j)
    elements += units_of(jobs_[j]) * (jobs_[j].rows ? jobs_[j].width : 1);
  const auto threads = static_cast<size_t>(thread_pool().threads_for(elements / kUpdatePiece));
  for (uint32_t j = 0; j < n_jobs_; ++j) {
    const UpdateJob& job = jobs_[j];
    const size_t units = units_of(job);
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

}  // namespace dyc
