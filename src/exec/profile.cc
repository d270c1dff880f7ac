// Time per op, for --dynet-profiling and for profiles.
#include <cstdio>

#include "exec/executor.h"

namespace dyc {

void Executor::charge_weights(double seconds) {
  if (op_times.size() < kOps) op_times.resize(kOps);
  OpTime& product = op_times[op_id<MatMul>];
  OpTime& affine = op_times[op_id<Affine>];
  if (OpTime& t = product.backward_launches ? product : affine; t.backward_launches) t.backward += seconds;
}

void Executor::LaunchTimer::start() { start_ = profile_clock(); }

// An element-wise group or a grouped GEMM runs at once: its launches get equal parts.
void Executor::LaunchTimer::stop() {
  const int64_t end = profile_clock();
  if (executor_->trace) {
    uint32_t nodes = nodes_;
    if (nodes == kNone) {
      nodes = 0;
      for (uint32_t i = first_; i < end_; ++i) nodes += executor_->plan_.launches[i].count;
    }
    executor_->trace_launches(first_, end_, backward_, nodes, start_, end);
  }
  if (!executor_->profiling) return;
  const double part = 1e-9 * static_cast<double>(end - start_) / (end_ - first_);
  std::vector<OpTime>& times = executor_->op_times;
  if (times.size() < kOps) times.resize(kOps);
  for (uint32_t i = first_; i < end_; ++i) {
    const Launch& l = executor_->plan_.launches[i];
    OpTime& t = times[l.op];
    (backward_ ? t.backward : t.forward) += part;
    ++(backward_ ? t.backward_launches : t.forward_launches);
    if (!backward_ && executor_->profiling > 1)
      std::printf("BatchSize:%u %s\n", l.count, op_info(l.op).meta->name);
  }
}

}  // namespace dyc
