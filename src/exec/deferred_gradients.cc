#include "exec/deferred_gradients.h"

#include <algorithm>

namespace dyc {

DeferredGradient& DeferredGradients::entry_for(const Operand& weight, int64_t m, int64_t k) {
  const NodeId node = weight.base >= 0 ? kNone : weight.node;
  computed_ = computed_ || weight.base >= 0;
  for (uint32_t i = 0; i < n_; ++i) {
    DeferredGradient& d = all_[i];
    if (d.node == node && d.offset == weight.base && d.m == m && d.k == k) return d;
  }
  if (n_ == all_.size()) all_.emplace_back();
  DeferredGradient& d = all_[n_++];
  d.node = node;
  d.offset = weight.base;
  d.m = m;
  d.k = k;
  d.dy.clear();
  d.x.clear();
  return d;
}

void DeferredGradients::add(const Operand& weight, int64_t m, int64_t k, const Columns& dy,
                            const Columns& x) {
  DeferredGradient& d = entry_for(weight, m, k);
  const auto append = [n = dy.count](std::vector<int64_t>& to, const Columns& c) {
    const size_t begin = to.size();
    to.resize(begin + n);
    int64_t* at = to.data() + begin;
    if (c.index)
      for (int64_t j = 0; j < n; ++j) at[j] = c.base + c.index[j];
    else
      for (int64_t j = 0; j < n; ++j) at[j] = c.base + j * c.stride;
  };
  append(d.dy, dy);
  if (k > 0) append(d.x, x);
}

bool DeferredGradients::is_only(const DeferredGradient& d) const {
  const auto of_the_same = [&d](const DeferredGradient& other) { return other.node == d.node; };
  return d.node != kNone && std::count_if(all_.begin(), all_.begin() + n_, of_the_same) == 1;
}

}  // namespace dyc
