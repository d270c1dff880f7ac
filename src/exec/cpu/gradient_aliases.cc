#include "exec/cpu/gradient_aliases.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "exec/cpu/tuning.h"

namespace dyc {

namespace {

constexpr uint32_t kNever = kNone - 1;  // of a launch: its gradients stay where they are

}  // namespace

// The columns that have floats in [first, last].
void GradientAliases::AliasedProduct::keep(int64_t first, int64_t last) {
  first = std::max(first, out);
  last = std::min(last, out + total - 1);
  if (first > last) return;
  for (int64_t c = (first - out) / m; c <= (last - out) / m; ++c) at[c] = place(c);
}

// Does the launch add its gradient to that of its bias, column by column?
bool GradientAliases::reads_bias(const Launch& l) const {
  if (l.op != op_id<Affine> || l.loss != kNone || !launches_.wanted(l, 0)) return false;
  const Sig& sig = launches_.graph().sig_number(l.sig);
  return sig.columns && sig.bias_per_column;
}

// The last readers come first: whether the gradient of a launch that reads a bias has aliases itself is known
// before its own bias is looked at.
void GradientAliases::find(const LaunchesByOffset& made_by, const std::vector<uint32_t>& live_nodes,
                           uint32_t root) {
  const std::vector<Launch>& launches = launches_.plan().launches;
  bool begun = false;
  for (uint32_t i = static_cast<uint32_t>(launches.size()); i-- > 0;) {
    const Launch& l = launches[i];
    if (!live_nodes[i] || !reads_bias(l)) continue;
    if (!begun) entry_of_.assign(launches.size(), kNone);
    begun = true;
    const bool may_be = live_nodes[i] == l.count && entry_of_[i] >= kNever;
    made_by.each_read(i, 0, [&](uint32_t launch) {
      if (launch == root || live_nodes[launch] != launches[launch].count) entry_of_[launch] = kNever;
      if (AliasedProduct* const p = entry_of(launch, rows_of(l))) take(l, may_be, *p);
    });
  }
}

void GradientAliases::take(const Launch& reader, bool may_be, AliasedProduct& p) {
  const Columns columns = launches_.columns(reader, launches_.operand(reader, 0), 0, bias_memory_);
  const Columns dy = launches_.result_columns(reader, dy_memory_);
  for (int64_t j = 0; j < columns.count; ++j) {
    const int64_t column = columns.at(j);
    if (!p.has(column)) continue;
    int64_t& at = p.at[(column - p.out) / p.m];
    if (may_be && at < 0 && (column - p.out) % p.m == 0) at = dy.at(j);
    else p.keep(column, column + p.m - 1);
  }
}

int64_t GradientAliases::rows_of(const Launch& l) const {
  return launches_.graph().sig_number(l.sig).y->rows();
}

// Null: the gradients of this launch stay where they are.
GradientAliases::AliasedProduct* GradientAliases::entry_of(uint32_t launch, int64_t m) {
  uint32_t& number = entry_of_[launch];
  const Launch& l = launches_.plan().launches[launch];
  if (number == kNone) {
    const Sig& sig = launches_.graph().sig_number(l.sig);
    const bool product =
        l.kind == OpKind::matmul && sig.columns && sig.y->rows() == m && l.total >= kAliasedColumns * m;
    number = kNever;
    if (!product || l.loss != kNone || LaunchesByOffset::is_elsewhere(l)) return nullptr;
    number = static_cast<uint32_t>(n_);
    if (n_ == entries_.size()) entries_.emplace_back();
    AliasedProduct& p = entries_[n_++];
    p.out = l.out;
    p.total = l.total;
    p.m = m;
    p.at.assign(l.total / m, -1);
  }
  if (number == kNever) return nullptr;
  AliasedProduct& p = entries_[number];
  if (p.m == m) return &p;
  p.keep(p.out, p.out + p.total - 1);
  return nullptr;
}

void GradientAliases::note_reader(uint32_t reader, uint32_t k, uint32_t launch) {
  if (n_ == 0 || entry_of_[launch] >= kNever) return;
  const Launch& l = launches_.plan().launches[reader];
  if (k == 0 && reads_bias(l)) return;
  AliasedProduct& p = entries_[entry_of_[launch]];
  if (!l.uniform || !l.fixed_arity) return p.keep(p.out, p.out + p.total - 1);
  const int64_t size = launches_.graph().sig_number(l.sig).x[k]->size();
  for (uint32_t i = 0; i < l.count; ++i) {
    const int64_t at = launches_.argument(l, launches_.operand(l, k), i);
    p.keep(at, at + size - 1);
  }
}

void GradientAliases::finish() {
  const auto has_none = [](AliasedProduct& p) {
    bool none = true;
    for (size_t c = 0; c < p.at.size(); ++c) {
      if (p.at[c] < 0) p.at[c] = p.place(c);
      none = none && p.at[c] == p.place(c);
    }
    return none;
  };
  const auto begin = entries_.begin();
  const auto end = std::partition(begin, begin + static_cast<ptrdiff_t>(n_), std::not_fn(has_none));
  n_ = static_cast<size_t>(end - begin);
  std::sort(begin, end, [](const auto& a, const auto& b) { return a.out < b.out; });
}

const GradientAliases::AliasedProduct* GradientAliases::find_entry(int64_t offset) const {
  const auto begin = entries_.begin();
  const auto after = std::upper_bound(begin, begin + static_cast<ptrdiff_t>(n_), offset,
                                      [](int64_t at, const auto& entry) { return at < entry.out; });
  return after != begin && std::prev(after)->has(offset) ? &*std::prev(after) : nullptr;
}

std::optional<GradientAliases::Columns> GradientAliases::columns(const Launch& l) const {
  const AliasedProduct* const p = find_entry(l.out);
  if (!p) return std::nullopt;
  return Columns{0, 0, p->at.data() + (l.out - p->out) / p->m, l.total / p->m};
}

bool GradientAliases::is_alias(int64_t column, int64_t of) const {
  const AliasedProduct* const p = find_entry(column);
  return p && p->at[(column - p->out) / p->m] == of;
}

bool GradientAliases::clear_others(const Launch& l) const {
  const AliasedProduct* const p = find_entry(l.out);
  if (!p) return false;
  for (size_t c = 0; c < p->at.size(); ++c)
    if (p->at[c] == p->place(c)) std::memset(launches_.grads() + p->at[c], 0, p->m * sizeof(float));
  return true;
}

void GradientAliases::store(int64_t offset) {
  const AliasedProduct* const found = find_entry(offset);
  if (!found) return;
  AliasedProduct& p = entries_[found - entries_.data()];
  for (size_t c = 0; c < p.at.size(); ++c) {
    const int64_t to = p.place(c), from = std::exchange(p.at[c], to);
    if (from != to) std::memcpy(launches_.grads() + to, launches_.grads() + from, p.m * sizeof(float));
  }
}

}  // namespace dyc
