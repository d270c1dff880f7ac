#include "plan/column_losses.h"

#include <algorithm>

#include "plan/operands.h"
#include "plan/tuning.h"

namespace dyc {

// Products whose columns are one per batch item, and what may follow them.
bool ColumnLossPairs::is_large(const BucketStats& all) const {
  if (all.mixed || all.floats < tuning::kPairedFloats) return false;
  const Sig& sig = graph_.sig_number(all.sig);
  const OpInfo& info = op_info(sig.op);
  if (info.meta->kind == OpKind::matmul ? !sig.columns || sig.bias_per_column
                                        : info.column_role == ColumnRole::none)
    return false;
  return sig.y->rows() >= tuning::kPairedRows && sig.size == sig.y->rows() * sig.y->bd &&
         all.floats / sig.y->rows() >= tuning::kPairedColumns;
}

// What nodes do that may read the columns of these, one each; none: others.
ColumnRole ColumnLossPairs::role_of(const BucketStats& reader, const BucketStats& all) const {
  if (reader.mixed || reader.count != all.count) return ColumnRole::none;
  const Sig& sig = graph_.sig_number(reader.sig);
  if (sig.n_args == 0 || sig.x[0]->size() != graph_.sig_number(all.sig).size) return ColumnRole::none;
  return op_info(sig.op).column_role;
}

void ColumnLossPairs::pair(uint32_t first) const {
  for (uint32_t i = first; i < plan_.launches.size(); ++i) {
    if (!plan_.launches[i].far || plan_.launches[i].kind != OpKind::matmul) continue;
    const uint32_t loss = loss_of(i);
    if (loss == kNone) continue;
    for (uint32_t at = i; at != loss; at = only_reader(at)) plan_.launches[at].loss = loss;
    plan_.launches[loss].product = i;
  }
}

// The end of the chain of launches that each are the only reader of the one before, if that is a loss of each
// of the product's columns.
uint32_t ColumnLossPairs::loss_of(uint32_t product) const {
  ColumnRole last = ColumnRole::none;
  for (uint32_t at = product;;) {
    const uint32_t next = only_reader(at);
    if (next == kNone) return kNone;
    const Launch& l = plan_.launches[next];
    const ColumnRole role = op_info(l.op).column_role;
    const bool mapped = last == ColumnRole::maps;
    if (mapped ? role == ColumnRole::picks : role == ColumnRole::loss) return next;
    const bool adds = role == ColumnRole::adds && last == ColumnRole::none;
    if (mapped || !l.far || !(adds || role == ColumnRole::maps)) return kNone;
    if (adds && !adds_vector(l, product)) return kNone;
    last = role;
    at = next;
  }
}

// kNone: several, or one that does not read all of it column by column.
uint32_t ColumnLossPairs::only_reader(uint32_t launch) const {
  const Launch& l = plan_.launches[launch];
  uint32_t reader = kNone;
  for (uint32_t i = launch + 1; i < plan_.launches.size(); ++i) {
    const Launch& r = plan_.launches[i];
    if (!reads(graph_, plan_, r, l.out, l.out + l.total)) continue;
    if (reader != kNone || !reads_all(r, l)) return kNone;
    reader = i;
  }
  return reader;
}

bool ColumnLossPairs::reads_all(const Launch& reader, const Launch& l) const {
  const ColumnRole role = op_info(reader.op).column_role;
  if (role == ColumnRole::none || !reader.uniform || reader.count != l.count) return false;
  const Sig& sig = graph_.sig_number(reader.sig);
  const int64_t columns = l.total / graph_.sig_number(l.sig).y->rows();
  if (reader.total != (role == ColumnRole::adds || role == ColumnRole::maps ? l.total : columns))
    return false;
  const bool along_rows = role == ColumnRole::maps || role == ColumnRole::picks;
  if (along_rows && !sig.attrs.empty() && sig.attrs[0] != 0) return false;
  bool all = false;
  for (uint32_t k = 0; k < reader.n_operands; ++k) {
    const Operand& o = plan_.operands[reader.operands + k];
    all = all || (o.kind == Operand::contiguous && o.base == l.out &&
                  sig.x[k]->size() == graph_.sig_number(l.sig).size);
  }
  return all;
}

// Is what it adds to the product one vector with an element for each row, which is there before the product
// is computed?
bool ColumnLossPairs::adds_vector(const Launch& l, uint32_t product) const {
  const uint32_t k = added_operand(plan_, l, plan_.launches[product]);
  const Operand& o = plan_.operands[l.operands + k];
  const Dim& vector = *graph_.sig_number(l.sig).x[k];
  if (!(o.kind == Operand::shared || l.count == 1) || vector.bd != 1 ||
      vector.size() != graph_.sig_number(l.sig).y->rows())
    return false;
  const auto begin = plan_.launches.begin();
  return std::none_of(begin + product, plan_.launches.end(),
                      [&](const Launch& p) { return o.base >= p.out && o.base < p.out + p.total; });
}

uint32_t added_operand(const Plan& plan, const Launch& adds, const Launch& product) {
  return plan.operands[adds.operands].base == product.out;
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
