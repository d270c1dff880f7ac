// What all trainers do: from gradients to new values, for all parameters of a collection. Their rules are in
// trainer_kinds.cc.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/storage.h"
#include "cpu/update_kernels.h"
#include "exec/device_update.h"
#include "model/collection.h"
#include "model/moving_average.h"

namespace dyc {

// One update(): (1) state for parameters added since; (2) the norm G of all gradients, frozen
// parameters included: NaN or Inf is a RuntimeError and nothing has changed, G > threshold scales the
// gradients by threshold / G; (3) every Parameters that is not frozen, with gradient 0 if it has none;
// (4) of every lookup the rows with a gradient, or all rows when sparse updates are off or the table
// was used as a whole; each gradient is cleared after its use; (5) counters; (6) weight decay.
//
// Where graphs are computed on a device, updates are made there as well: values, gradients and state stay
// there until the host asks for them. Where the device cannot (no memory left, for one) the host goes on.
//
// 46 methods and 18 fields: 20 methods are DyNet's interface, 8 what a rule overrides; the rest are the steps
// of update(), which pass the state of all parameters from one to the next, on the host or the device.
class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual const char* name() const = 0;  // "AdamTrainer"

  void update(float scale = 1.f);  // gradients times scale, before clipping: DyNet 1.0
  void restart();                  // zeroes momentum and accumulators; the counter of updates goes on
  void restart(float learning_rate);
  // "[lr=0.1 clips=0 updates=5] ", as DyNet prints it on stderr; resets both counters.
  std::string take_status();

  float learning_rate() const { return learning_rate_; }
  void set_learning_rate(float value) { learning_rate_ = value; }
  // DyNet 1.x: each epoch, learning rate = its first value / (1 + epochs * decay).
  void set_epoch_decay(float decay) { epoch_decay_ = decay; }
  void update_epoch(float epochs);
  float clip_threshold() const { return clip_threshold_; }
  void set_clip_threshold(float value) { clip_threshold_ = value > 0.f ? value : 0.f; }  // 0: no clipping
  bool sparse_updates() const { return sparse_updates_; }
  void set_sparse_updates(bool value) { sparse_updates_ = value; }
  const std::shared_ptr<Collection>& collection() const { return collection_; }

  // From now on each update, or every so many, goes into a mean, which starts again. RuntimeError while the
  // parameters have the values of one.
  void average(MovingAverage::Kind kind, float beta, uint32_t every);
  const MovingAverage* moving_average() const { return average_.get(); }
  bool averaged() const { return average_ && average_->swapped(); }
  // RuntimeError without a moving average.
  void swap_to_average(bool save, bool corrected);
  void swap_to_weights();

 protected:
  Trainer(std::shared_ptr<Collection> collection, UpdateRule rule, float learning_rate);

  // Fills in what the rule needs; `decay` is the weight-decay factor, t counts from 1.
  virtual void set_factors(UpdateFactors& factors, float decay, double t) const = 0;
  virtual void after_update() {}
  // Before anything has changed: may refuse the parameters.
  virtual void check_values() const {}
  // After the rule was applied to n values that belong together: a Parameters, or a row of a lookup.
  virtual void finish(float*, size_t, float) const {}
  // Updates since the beginning of a schedule of learning rates.
  virtual uint64_t cycle() const { return 0; }
  virtual void set_cycle(uint64_t) {}

  float learning_rate_;
  bool finishes_ = false;  // finish() does something
  bool decays_ = false;    // a gradient of 0 changes values, too, that never had another one

 private:
  friend struct TrainerFile;  // trainer_file.cc: reads and writes all state
  using State = UpdateState;

  // A parameter to pass over: its elements, or those of the rows listed.
  struct UpdateJob {
    Storage* storage;
    UpdateSlice slice;
    UpdateKernel kernel;
    const std::vector<uint32_t>* rows;  // nullptr: all elements
    size_t width;                       // elements of a row
  };
  // Units [begin, end) of a job: what one thread does at a time.
  struct Piece {
    uint32_t job;
    size_t begin, end;
    size_t number, turn;  // in order of memory; thread that has it in its cache
  };

  void allocate_states();
  void allocate_states(const std::vector<StoragePtr>& storages, std::deque<State>& states);
  // Null for rules without any.
  State* state_of(std::deque<State>& states, size_t i) { return kernels_.states > 0 ? &states[i] : nullptr; }
  // ---- trainers_device.cc
  bool update_on_device(float scale);
  void run_on(DeviceUpdate& device, float scale, double norm);
  void add_to(DeviceUpdate& device);
  // Values, gradients and state that a device has come to the host.
  void all_to_host();
  void bring_states();
  void leave_to_host();

  void update_on_host(float scale);
  // Whether gradients are scaled down. Throws RuntimeError where their norm is not usable.
  bool clip(UpdateFactors& factors, double norm) const;
  double gradient_norm();
  // Is the square of a gradient's norm a finite float? DyNet ends a diverging program where it is not.
  static bool is_usable(double norm, float scale);
  [[noreturn]] void refuse_norm(double norm) const;
  void update_all(const UpdateFactors& factors);
  UpdateJob& add_job(Storage& storage, const std::vector<uint32_t>* rows);
  void update_dense(Storage& storage, State* state, const UpdateFactors& factors);
  void update_lookup(Storage& storage, State* state, const UpdateFactors& factors);
  void update_rows(Storage& storage, State* state, UpdateKernel kernel, const std::vector<uint32_t>* rows,
                   const UpdateFactors& factors);
  void run_rows(const UpdateJob& job, size_t begin, size_t end, const UpdateFactors& factors) const;
  void finish_job(const UpdateJob& job) const;
  MovingAverage& wanted_average(const char* call);
  void cut_jobs();
  void run_updates(const UpdateFactors& factors);

  std::shared_ptr<Collection> collection_;
  const UpdateRule rule_;
  UpdateKernels kernels_;
  float clip_threshold_ = 5.f;
  float epoch_decay_ = 0.f, epochs_ = 0.f;
  bool sparse_updates_ = true;
  uint64_t updates_ = 0, status_updates_ = 0, status_clips_ = 0;
  // (Reading a parameter may let other threads run, which add more: references stay.)
  std::deque<State> parameter_states_, lookup_states_;
  std::unique_ptr<MovingAverage> average_;

  // A pass large enough to be shared among threads: its jobs and how they are cut.
  bool shared_ = false;
  std::vector<UpdateJob> jobs_;  // the first n_jobs_
  size_t n_jobs_ = 0;
  std::vector<Piece> pieces_;
  std::vector<double> sums_;  // by piece
};

}  // namespace dyc
