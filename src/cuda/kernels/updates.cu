// The trainers' rules, and the norm of gradients.
#include "cuda/device/prelude.h"

#include "cuda/device/grid.h"
#include "cuda/abi/launch_args.h"
#include "cuda/abi/updates.h"
#include "cuda/device/worker.h"

namespace dyc {

DYC_INLINE float divide_by_sqrt(float n, float a) { return n / sqrtf(a); }
DYC_INLINE float subtract_quotient(float x, float n, float a) { return x - n / a; }
DYC_INLINE float subtract_root_quotient(float x, float n, float a) { return x - divide_by_sqrt(n, a); }

}  // namespace dyc

#include "ops/update_rules.h"

namespace dyc::cuda {

// In the order of UpdateRule.
template <uint32_t number>
struct RuleAt;
template <>
struct RuleAt<0> : rules::Sgd {};
template <>
struct RuleAt<1> : rules::Momentum {};
template <>
struct RuleAt<2> : rules::Adagrad {};
template <>
struct RuleAt<3> : rules::Adadelta {};
template <>
struct RuleAt<4> : rules::RmsProp {};
template <>
struct RuleAt<5> : rules::Adam {};
template <>
struct RuleAt<6> : rules::Amsgrad {};
template <>
struct RuleAt<7> : rules::Exponentiated {};
template <>
struct RuleAt<8> : rules::AdamW {};

// Position in the parameter of element i of those to be updated.
DYC_INLINE int64_t place_of(const UpdateWork& work, int64_t i) {
  return work.rows ? work.rows[i / work.width] * work.width + i % work.width : i;
}

DYC_INLINE int64_t place_of_grad(const UpdateWork& work, int64_t i) {
  return work.dense_rows ? i : place_of(work, i);
}

// active: with a gradient; else it is 0.
template <uint32_t number, bool active>
__device__ void run_update(const LaunchArgs& r, const Worker& w) {
  using Rule = RuleAt<number>;
  const Updates& u = extra_of<Updates>(r);
  const UpdateFactors factors = u.factors;
  for (int64_t k = w.thread; k < u.elements.total; k += w.threads) {
    const Element e = element(u.elements, k);
    const UpdateWork& work = u.list[e.node];
    const int64_t i = place_of(work, e.at);
    float s[rules::kMostStates];
    for (int j = 0; j < Rule::kStates; ++j) s[j] = work.slice.state[j][i];
    const float g = active ? work.slice.grad[place_of_grad(work, e.at)] * factors.clip : 0.f;
    const float x = Rule::apply(work.slice.old[i], g, s, factors);
    for (int j = 0; j < Rule::kStates; ++j) work.slice.state[j][i] = s[j];
    work.slice.out[i] = x;
  }
}

template <uint32_t number, bool active>
__global__ void update(const LaunchArgs* args) {
  run_update<number, active>(*args, Worker());
}

// After the rule kExponentiated: the values of each row (`width` elements) are divided by their sum. A warp
// for each. No value may become 0, from where there is no way back.
__device__ inline void run_normalise(const LaunchArgs& r, const Worker& w) {
  const Updates& u = extra_of<Updates>(r);
  int64_t first = 0;  // rows of those before
  for (uint32_t k = 0; k < u.elements.count; ++k) {
    const UpdateWork& work = u.list[k];
    const int64_t rows = size_of(u.elements, k) / work.width;
    const int64_t begin = (w.warp() + w.warps() - first % w.warps()) % w.warps();
    for (int64_t row = begin; row < rows; row += w.warps()) {
      float* const x = work.slice.out + place_of(work, row * work.width);
      double part = 0.;
      for (int64_t i = w.lane(); i < work.width; i += kWarp) part += static_cast<double>(x[i]);
      const double factor = 1. / (warp_sum(part) * static_cast<double>(work.decay));
      for (int64_t i = w.lane(); i < work.width; i += kWarp) {
        const float scaled = static_cast<float>(static_cast<double>(x[i]) * factor);
        x[i] = scaled < 0x1p-126f ? 0x1p-126f : scaled;
      }
    }
    first += rows;
  }
}

__global__ void normalise(const LaunchArgs* args) { run_normalise(*args, Worker()); }

// A warp for each chunk. Squares in float, unless some may have been lost to overflow or underflow: those of
// floats are exact in double and never leave its range.
__device__ inline void run_squares(const LaunchArgs& r, const Worker& w) {
  const Squares& s = extra_of<Squares>(r);
  for (int64_t p = w.warp(); p < s.pieces.total; p += w.warps()) {
    const Element piece = element(s.pieces, p);
    const UpdateWork& work = s.list[piece.node];
    const int64_t begin = piece.at * kSquares, size = size_of(s.elements, piece.node);
    const int64_t end = begin + kSquares < size ? begin + kSquares : size;
    float a = 0.f;
    for (int64_t i = begin + w.lane(); i < end; i += kWarp) {
      const float g = work.slice.grad[place_of_grad(work, i)];
      a = vfma(g, g, a);
    }
    const float in_float = warp_sum(a);
    double sum = static_cast<double>(in_float);
    if (!(in_float > 1e-28f && in_float < 1e37f)) {
      double b = 0.;
      for (int64_t i = begin + w.lane(); i < end; i += kWarp) {
        const double g = static_cast<double>(work.slice.grad[place_of_grad(work, i)]);
        b += g * g;
      }
      sum = warp_sum(b);
    }
    if (w.lane() == 0) s.sums[p] = sum;
  }
}

__global__ void squares(const LaunchArgs* args) { run_squares(*args, Worker()); }

// The first warp adds up the sums of the chunks.
__device__ inline void run_total(const LaunchArgs& r, const Worker& w) {
  const Squares& s = extra_of<Squares>(r);
  if (w.warp() > 0) return;
  double a = 0.;
  for (int64_t p = w.lane(); p < s.pieces.total; p += kWarp) a += s.sums[p];
  const double sum = warp_sum(a);
  if (w.lane() == 0) s.sums[s.pieces.total] = sum;
}

__global__ void total(const LaunchArgs* args) { run_total(*args, Worker()); }

}  // namespace dyc::cuda
