// Time per op, for --dynet-profiling.
#include <chrono>
#include <cstdio>

#include "exec/executor.h"

namespace dyc {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void Executor::charge_weights(double seconds) {
  if (op_times.size() < kOps) op_times.resize(kOps);
  OpTime& product = op_times[op_id<MatMul>];
  OpTime& affine = op_times[op_id<Affine>];
  if (OpTime& t = product.backward_launches ? product : affine; t.backward_launches) t.backward += seconds;
}

void Executor::Watch::start() { start_ = now(); }

// A fused chain or a grouped GEMM runs at once: its launches get equal parts.
void Executor::Watch::stop() {
  const double part = (now() - start_) / (end_ - first_);
  std::vector<OpTime>& times = executor_->op_times;
  if (times.size() < kOps) times.resize(kOps);
  for (uint32_t i = first_; i < end_; ++i) {
    const Launch& l = executor_->plan_.launches[i];
    OpTime& t = times[l.op];
    (backward_ ? t.backward : t.forward) += part;
    ++(backward_ ? t.backward_launches : t.forward_launches);
    if (!backward_ && executor_->profiling > 1)
      std::printf("BatchSize:%u %s\n", l.count, op_row(l.op).meta->name);
  }
}

}  // namespace dyc
