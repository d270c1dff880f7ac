// Parameters as launches of one graph see them: the values that they read, and what a backward pass adds to
// the gradients of parameters, on the device where it can.
#pragma once
#include <vector>

#include "exec/cuda/gradient_reducer.h"

namespace dyc {

class ParameterSync {
 public:
  ParameterSync(CudaContext& context, GradientReducer& reducer) : c_(context), reducer_(reducer) {}

  // ---- values, on the device
  const float* weight(const Operand& o);
  const float* values(ParameterUse& use);
  // The collected commands have been submitted, or (discarded()) never will be.
  void submitted() { scaled_.clear(); }
  void discarded();

  // ---- gradients
  void begin_backward() { reached_.assign(c_.graph().parameters.size(), 0); }
  void mark_reached(const ParameterUse& use) { reached_[number_of(use)] = 1; }
  // Offset of the gradient of a weight.
  int64_t gradient_of_weight(const Operand& o);
  // Nothing was added to the gradients of other parameters than the reached ones.
  void forget_unreached();
  // Adds gradients of parameters, and of rows of tables, to what is there. The caller has no lock.
  void accumulate(const std::vector<RowGradient>& rows);

 private:
  struct PendingGradients {
    std::vector<const ParameterUse*> uses;
    std::vector<RowGradient> rows;
    bool empty() const { return uses.empty() && rows.empty(); }
  };
  size_t number_of(const ParameterUse& use) const {
    return static_cast<size_t>(&use - c_.graph().parameters.all().data());
  }
  const float* scaled(const std::shared_ptr<Storage>& storage, const ParameterUse& use, const float* raw);
  void split_by_side(const std::vector<RowGradient>& rows, PendingGradients& device, PendingGradients& host);
  void accumulate_on_device(PendingGradients& pending);
  void add_whole(const PendingGradients& pending);
  struct TableRows {
    Storage* table;
    std::vector<uint32_t> rows;
    std::vector<int64_t> from;
    bool single;  // one of them was read on its own
  };
  static std::vector<TableRows> rows_by_table(const PendingGradients& pending);
  void add_rows(const std::vector<TableRows>& tables);
  void accumulate_on_host(const PendingGradients& pending);

  CudaContext& c_;
  GradientReducer& reducer_;
  std::vector<uint8_t> reached_;  // per parameter of the graph: something is added to its gradient
  std::vector<uint32_t> scaled_;  // parameters whose scaled copies are collected and not yet computed, by uid
};

}  // namespace dyc
