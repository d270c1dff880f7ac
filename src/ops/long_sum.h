// Sums of any number of floats, within a few units in the last place. Terms are added in blocks; the blocks
// are added to a pair of floats, the second of which keeps what rounding the first one loses.
#pragma once
#include "ops/kernel_args.h"
#include "ops/tuning.h"

namespace dyc {

using tuning::kSumBlock;

// high + low += term. Where high is infinite or NaN, low is 0.
template <class V>
DYC_INLINE void add_exactly(V& high, V& low, V term) {
  const V sum = high + term, part = sum - high;
  const V rest = low + ((high - (sum - part)) + (term - part));
  const auto finite = sum - sum == V{};
  high = finite ? sum + rest : sum;
  low = finite ? rest - (high - sum) : V{};
}

template <class V>
class LongSum {
 public:
  DYC_INLINE LongSum() {}
  DYC_INLINE explicit LongSum(V first) : block_(first), count_(1) {}
  DYC_INLINE void add(V term) {
    block_ += term;
    if (++count_ == kSumBlock) close();
  }
  DYC_INLINE V total() const { return closed_ ? high_ + (low_ + block_) : block_; }

 private:
  DYC_INLINE void close() {
    add_exactly(high_, low_, block_);
    block_ = V{};
    count_ = 0;
    closed_ = true;
  }
  V block_{}, high_{}, low_{};
  uint32_t count_ = 0;
  bool closed_ = false;
};

}  // namespace dyc
