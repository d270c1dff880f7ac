#include "plan/column_losses.h"

#include <algorithm>

#include "plan/operands.h"
#include "plan/tuning.h"

namespace dyc {

bool ColumnLossPairs::may_pair(const BucketStats& all) const {
  if (all.mixed || all.floats < tuning::kPairedFloats) return false;
  const Sig& sig = graph_.sig_number(all.sig);
  return sig.columns && !sig.bias_per_column && sig.y->rows() >= tuning::kPairedRows &&
         sig.size == sig.y->rows() * sig.y->bd && all.floats / sig.y->rows() >= tuning::kPairedColumns;
}

bool ColumnLossPairs::may_pair(const BucketStats& all, const BucketStats& loss) const {
  if (loss.mixed || loss.count != all.count) return false;
  const Sig& sig = graph_.sig_number(loss.sig);
  return op_info(sig.op).column_loss && sig.x[0]->size() == graph_.sig_number(all.sig).size;
}

void ColumnLossPairs::pair(uint32_t first) const {
  for (uint32_t i = first; i < plan_.launches.size(); ++i) {
    if (!plan_.launches[i].far) continue;
    const uint32_t loss = loss_of(i);
    if (loss == kNone) continue;
    plan_.launches[i].loss = loss;
    plan_.launches[loss].product = i;
  }
}

// The only launch that reads the product, if that is a loss of each of its columns.
uint32_t ColumnLossPairs::loss_of(uint32_t product) const {
  const Launch& p = plan_.launches[product];
  uint32_t loss = kNone;
  for (uint32_t i = product + 1; i < plan_.launches.size(); ++i) {
    const Launch& l = plan_.launches[i];
    if (!reads(graph_, plan_, l, p.out, p.out + p.total)) continue;
    if (loss != kNone || !reads_all(l, p)) return kNone;
    loss = i;
  }
  return loss;
}

bool ColumnLossPairs::reads_all(const Launch& loss, const Launch& product) const {
  if (!op_info(loss.op).column_loss || !loss.uniform || loss.count != product.count) return false;
  const Operand& o = plan_.operands[loss.operands];
  return o.kind == Operand::contiguous && o.base == product.out &&
         graph_.sig_number(loss.sig).x[0]->size() == graph_.sig_number(product.sig).size;
}

bool reads(const Graph& graph, const Plan& plan, const Launch& l, int64_t begin, int64_t end) {
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    const Operand& o = plan.operands[l.operands + k];
    if (o.kind == Operand::indexed) {
      const int64_t* at = plan.index.data() + o.index;
      const uint32_t n = l.fixed_arity ? l.count : plan.starts[l.arg_begin + l.count];
      if (std::any_of(at, at + n, [=](int64_t a) { return a >= begin && a < end; })) return true;
      continue;
    }
    if (o.kind == Operand::unused || o.base < 0) continue;
    const ReadRange read = range_of(graph, plan, l, k);
    if (overlap(read.begin, read.end, begin, end)) return true;
  }
  return false;
}

}  // namespace dyc
