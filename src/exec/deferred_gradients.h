// Gradients of weights that leave the recurrence: the columns that add to a weight are collected over the
// whole backward pass, so that each weight takes one GEMM.
#pragma once
#include <vector>

#include "exec/launch_reader.h"

namespace dyc {

// dW += dy x' (k > 0) or db += sum of dy (k == 0), over all columns collected.
struct DeferredGradient {
  NodeId node = kNone;         // parameter node, or kNone when the weight was computed
  int64_t offset = -1;         // of a computed weight
  int64_t m = 0, k = 0;        // rows and columns of the weight
  std::vector<int64_t> dy, x;  // offsets of columns
  const char* name() const { return k ? "dy x'" : "sum of dy"; }
  int64_t inner() const { return k ? k : 1; }
  int64_t work() const { return m * inner() * static_cast<int64_t>(dy.size()); }
};

class DeferredGradients {
 public:
  using Columns = LaunchReader::Columns;

  void add(const Operand& weight, int64_t m, int64_t k, const Columns& dy, const Columns& x);
  // Is it of a parameter, and nothing else collected of the same?
  bool is_only(const DeferredGradient& d) const;
  // Is there any of a computed weight?
  bool any_computed() const { return computed_; }
  void clear() {
    n_ = 0;
    computed_ = false;
  }
  uint32_t size() const { return n_; }
  DeferredGradient& operator[](uint32_t i) { return all_[i]; }

 private:
  DeferredGradient& entry_for(const Operand& weight, int64_t m, int64_t k);

  std::vector<DeferredGradient> all_;  // the first n_; others are kept for their memory
  uint32_t n_ = 0;
  bool computed_ = false;
};

}  // namespace dyc
