// What executors of all devices have in common.
#include "exec/executor.h"

#include <algorithm>

namespace dyc {

// ---------------------------------------------------------------- launches

// Indices may change without the graph changing, so they are checked each time.
void Executor::check(const Launch& l) {
  const OpInfo& info = op_info(l.op);
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    const Graph::Ids ids = graph_.ids(it.id);
    KernelArgs m{};
    m.xd = it.sig->x.data();
    m.yd = it.sig->y;
    m.n = it.sig->n_args;
    m.attrs = it.sig->attrs.data();
    m.ids = ids.data;
    m.n_ids = ids.n;
    info.check(m, info.meta->name);
  }
}

void Executor::check_rows(const Storage& storage, const Graph::Ids& ids) {
  for (uint32_t j = 0; j < ids.n; ++j)
    if (ids.data[j] >= storage.rows)
      throw ValueError(
          text("lookup(): expected index < ", storage.rows, ", got ", ids.data[j], " in ", storage.name));
}

void Executor::count_operands(const Launch& l) {
  for (uint32_t i = 0; i < (l.uniform ? 1 : l.count); ++i)
    for (const Dim* d : item(l, i).sig->x)
      counters.operand_bytes += 4 * d->size() * (l.uniform ? l.count : 1);
}

// The launch restricted to members that take part. Others are left out rather than run with a zero
// gradient: 0 times an infinite derivative would be NaN.
Launch Executor::live_part(const Launch& l, const std::vector<uint8_t>& live, uint32_t live_nodes) {
  Launch part = l;
  part.count = live_nodes;
  part.uniform = false;
  part.nodes = static_cast<uint32_t>(plan_.nodes.size());
  part.out_index = static_cast<uint32_t>(plan_.index.size());
  std::vector<uint32_t> kept;
  part.total = 0;
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    if (!live[it.id]) continue;
    kept.push_back(i);
    part.total += it.sig->size;
    plan_.nodes.push_back(it.id);
    plan_.index.push_back(it.out);
  }
  part.sig = graph_.node(plan_.nodes[part.nodes]).sig;
  part.operands = static_cast<uint32_t>(plan_.operands.size());
  if (!l.fixed_arity) {
    Operand o = plan_.operands[l.operands];
    std::vector<int64_t> places;
    part.arg_begin = static_cast<uint32_t>(plan_.starts.size());
    for (uint32_t i : kept) {
      plan_.starts.push_back(static_cast<uint32_t>(places.size()));
      for (uint32_t p = plan_.starts[l.arg_begin + i]; p < plan_.starts[l.arg_begin + i + 1]; ++p)
        places.push_back(plan_.index[o.index + p]);
    }
    plan_.starts.push_back(static_cast<uint32_t>(places.size()));
    o.index = static_cast<uint32_t>(plan_.index.size());
    plan_.index.insert(plan_.index.end(), places.begin(), places.end());
    plan_.operands.push_back(o);
    return part;
  }
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    Operand o = plan_.operands[l.operands + k];
    if (o.kind != Operand::weight && o.kind != Operand::shared) {
      const uint32_t index = static_cast<uint32_t>(plan_.index.size());
      for (uint32_t i : kept) {
        const int64_t at = argument(l, o, i);
        plan_.index.push_back(at);
      }
      o.kind = Operand::indexed;
      o.index = index;
    }
    plan_.operands.push_back(o);
  }
  return part;
}

// ---------------------------------------------------------------- gradients that overlap

namespace {

// Do members that each add to `a` and `b` keep apart, whatever thread runs them?
bool keep_apart(const Operand& a, int64_t size_a, const Operand& b, int64_t size_b, int64_t count) {
  if (a.base == b.base && a.stride == b.stride) return true;  // the same memory in the same member
  const Operand &low = a.base < b.base ? a : b, &high = a.base < b.base ? b : a;
  const int64_t size_low = a.base < b.base ? size_a : size_b, size_high = a.base < b.base ? size_b : size_a;
  if (low.stride == high.stride && low.stride > 0) {  // interleaved, as parts of one block
    const int64_t gap = high.base - low.base;
    if (gap >= size_low && gap + size_high <= low.stride) return true;
  }
  if (low.stride < 0 || high.stride < 0) return false;
  return low.base + (count - 1) * low.stride + size_low <= high.base;
}

}  // namespace

// No two members add to the same gradient.
bool Executor::distinct(const Launch& l) const {
  if (!l.fixed_arity || !l.uniform) return false;
  const Sig& sig = graph_.sig_number(l.sig);
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    if (!wanted(l, k)) continue;
    const Operand& o = plan_.operands[l.operands + k];
    const int64_t size = static_cast<int64_t>(sig.x[k]->size());
    if (o.kind != Operand::contiguous &&
        !(o.kind == Operand::strided && (o.stride >= size || o.stride <= -size)))
      return false;
    for (uint32_t j = 0; j < k; ++j)
      if (wanted(l, j) && !keep_apart(plan_.operands[l.operands + j], sig.x[j]->size(), o, size, l.count))
        return false;
  }
  return true;
}

// ---------------------------------------------------------------- columns

Executor::Columns Executor::columns(const Launch& l, const Operand& o, uint32_t k,
                                    std::vector<int64_t>& room) const {
  const Sig& first = graph_.sig_number(l.sig);
  const int64_t rows = first.x[k]->rows();
  Columns c;
  c.base = o.base;
  c.stride = rows;
  if (o.kind == Operand::contiguous) {
    c.count = 0;
    if (l.uniform) c.count = int64_t{l.count} * first.x[k]->size() / rows;
    else
      for (uint32_t i = 0; i < l.count; ++i) c.count += item(l, i).sig->x[k]->size() / rows;
    return c;
  }
  bool single = true;
  for (uint32_t i = 0; i < (l.uniform ? 1 : l.count); ++i)
    single = single && item(l, i).sig->x[k]->size() == size_t(rows);
  if (single) {
    c.count = l.count;
    c.stride = o.kind == Operand::strided ? o.stride : 0;
    if (o.kind == Operand::indexed) {
      c.index = plan_.index.data() + o.index;
      c.base = 0;
    }
    return c;
  }
  room.clear();
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    const int64_t at = argument(l, o, i), n = it.sig->x[k]->size() / rows;
    for (int64_t j = 0; j < n; ++j) room.push_back(at + j * rows);
  }
  c.base = 0;
  c.index = room.data();
  c.count = static_cast<int64_t>(room.size());
  return c;
}

// The columns of the results; also of launches cut down to their live members.
Executor::Columns Executor::result_columns(const Launch& l, std::vector<int64_t>& room) const {
  const int64_t m = graph_.sig_number(l.sig).y->rows();
  if (l.uniform && !l.out_index) return {l.out, m, nullptr, l.total / m};
  room.clear();
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    for (uint32_t c = 0; c < it.sig->size / m; ++c) room.push_back(it.out + c * m);
  }
  return {0, 0, room.data(), static_cast<int64_t>(room.size())};
}

// ---------------------------------------------------------------- weight gradients

Executor::Deferred& Executor::deferred_for(const Operand& o, int64_t m, int64_t k) {
  const NodeId node = o.base >= 0 ? kNone : o.node;
  for (uint32_t i = 0; i < n_deferred_; ++i) {
    Deferred& d = deferred_[i];
    if (d.node == node && d.place == o.base && d.m == m && d.k == k) return d;
  }
  if (n_deferred_ == deferred_.size()) deferred_.emplace_back();
  Deferred& d = deferred_[n_deferred_++];
  d.node = node;
  d.place = o.base;
  d.m = m;
  d.k = k;
  d.dy.clear();
  d.x.clear();
  return d;
}

void Executor::defer(const Operand& o, int64_t m, int64_t k, const Columns& dy, const Columns& x) {
  Deferred& d = deferred_for(o, m, k);
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

void Executor::run_deferred_of(const Launch& l) {
  for (uint32_t i = 0; i < n_deferred_; ++i) {
    Deferred& d = deferred_[i];
    if (d.place >= l.out && d.place < l.out + l.total) run_deferred(d);
  }
}

bool Executor::is_only(const Deferred& d) const {
  const auto of_the_same = [&d](const Deferred& other) { return other.node == d.node; };
  return d.node != kNone &&
         std::count_if(deferred_.begin(), deferred_.begin() + n_deferred_, of_the_same) == 1;
}

// ---------------------------------------------------------------- gradients of parameters

void Executor::begin_backward(bool full, bool direct) {
  full_ = full;
  direct_ = direct;
  n_deferred_ = 0;
  rows_.clear();
  // A parameter that already holds a gradient, or is also read like any value, collects this
  // backward's gradient apart, so that its node gradient is of this backward alone.
  for (ParameterUse& use : graph_.parameters()) {
    use.direct = false;
    use.gradient = -1;
    const bool needs = graph_.node(use.node).flags & Node::requires_grad;
    if (!needs && !full) continue;
    int64_t at = graph_.offset_of(use.node);
    // Rows of a table add to its storage too, so the whole table's gradient is kept apart.
    if (at < 0 &&
        (!direct || always_separate() || use.storage->has_grad() || !needs || use.storage->is_lookup())) {
      if (use.slot < 0) use.slot = graph_.values_arena.allocate(use.storage->size(), 16);
      at = use.slot;
    }
    if (at < 0) continue;
    use.gradient = at;
    zero_gradients(at, use.storage->size());
  }
}

// Sparse updates of DyNet visit every row that was looked up before the loss, also where the loss does not
// depend on it: momentum moves such a row, too. Its gradient is zero.
void Executor::mark_rows_used(NodeId id) {
  const Sig& sig = graph_.sig(id);
  if (op_info(sig.op).meta->kind != OpKind::lookup || !sig.attrs[1]) return;  // attrs[1]: update
  Storage& storage = graph_.storage(sig.attrs[0]);
  const Graph::Ids ids = graph_.ids(id);
  for (uint32_t j = 0; j < ids.n; ++j)
    if (ids.data[j] < storage.rows)
      rows_.push_back({&storage, ids.data[j], -1});  // else an error if asked for
}

void Executor::accumulate() {
  for (const ParameterUse& use : graph_.parameters())
    if (accumulates(use)) add_to_storage(use);
  for (const RowGradient& row : rows_) add_to_storage(row);
  rows_.clear();
}

void Executor::add_to_storage(const ParameterUse& use) const {
  Storage& storage = *use.storage;
  float* to = storage.grad();
  const float* from = grads() + use.gradient;
  for (size_t i = 0; i < storage.size(); ++i) to[i] += from[i];
}

void Executor::add_to_storage(const RowGradient& r) const {
  float* to = r.storage->grad_row(r.row);
  if (r.from < 0) return;
  const float* from = grads() + r.from;
  for (size_t i = 0; i < r.storage->row_size(); ++i) to[i] += from[i];
}

}  // namespace dyc
