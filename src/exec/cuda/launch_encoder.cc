// Launch records as the device is told of them, and launches forward.
#include <algorithm>

#include "exec/cuda/cuda_executor.h"
#include "exec/cuda/parameters.h"

namespace dyc {

using cuda::Axes;
using cuda::LaunchArgs;
using cuda::NodeSizes;
using cuda::Shape;

// ---------------------------------------------------------------- records

LaunchArgs CudaExecutor::record(const Launch& l, bool backward) {
  LaunchArgs r;
  r.op = l.op;
  r.count = l.count;
  r.full = full_;
  encode_results(l, r);
  if (backward) r.dy = gradients() + l.out;
  if (l.fixed_arity) encode_arguments(l, r, backward);
  else encode_lists(l, r, backward);
  encode_shapes(l, r);
  encode_ids(l, r);
  encode_scratch(l, r);
  return r;
}

void CudaExecutor::encode_results(const Launch& l, LaunchArgs& r) {
  r.y = values() + l.out;
  r.results = extents(l, kResult);
  if (l.uniform) return;
  bool gapless = true;  // not if it was cut down to its live members
  const int64_t* const outs = plan_.index.data() + l.out_index;
  int64_t at = l.out;
  for (uint32_t i = 0; i < l.count; at += item(l, i).sig->size, ++i) gapless = gapless && outs[i] == at;
  if (gapless) return;
  const auto room = batch_.room<int64_t>(l.count);
  for (uint32_t i = 0; i < l.count; ++i) room[i] = outs[i] - l.out;
  r.outs = room.device;
}

// Of the results, or of an argument.
NodeSizes CudaExecutor::extents(const Launch& l, uint32_t arg) {
  const auto size_of = [arg](const Sig& s) -> int64_t { return arg == kResult ? s.size : s.x[arg]->size(); };
  NodeSizes e{};
  e.count = l.count;
  e.size = e.largest = size_of(graph_.sig_number(l.sig));
  e.total = e.size * l.count;
  if (l.uniform) return e;
  bool alike = true;
  for (uint32_t i = 0; i < l.count; ++i) alike = alike && size_of(*item(l, i).sig) == e.size;
  if (alike && e.size > 0) return e;
  const auto starts = batch_.room<int64_t>(size_t{l.count} + 1);
  e.size = e.largest = starts[0] = 0;
  for (uint32_t i = 0; i < l.count; ++i) {
    const int64_t size = size_of(*item(l, i).sig);
    starts[i + 1] = starts[i] + size;
    e.largest = std::max(e.largest, size);
  }
  e.starts = starts.device;
  e.total = starts[l.count];
  return e;
}

CudaExecutor::ValueOperand CudaExecutor::place(const Launch& l, const Operand& o, const float* arena) {
  ValueOperand p{arena + o.base, nullptr, o.stride, ValueOperand::shared, false};
  switch (o.kind) {
    case Operand::contiguous:
      p.kind = ValueOperand::contiguous;
      break;
    case Operand::strided:
      p.kind = ValueOperand::strided;
      break;
    case Operand::indexed: {
      p.kind = ValueOperand::indexed;
      p.base = arena;
      const int64_t* const index = plan_.index.data() + o.index;
      if (index_from_ != index) index_at_ = batch_.put(index, l.count);
      index_from_ = index;
      p.index = index_at_;
      break;
    }
    default:
      break;
  }
  return p;
}

void CudaExecutor::encode_arguments(const Launch& l, LaunchArgs& r, bool backward) {
  if (l.n_operands > cuda::kMaxOperands)
    throw RuntimeError(
        text("internal error: ", op_info(l.op).meta->name, " has ", l.n_operands, " operands"));
  r.n = l.n_operands;
  const auto places = batch_.room<ValueOperand>(l.n_operands);
  for (uint32_t k = 0; k < l.n_operands; ++k)
    places[k] = like_dynet && !backward ? gathered(l, k) : place(l, plan_.operands[l.operands + k], values());
  r.x = places.device;
}

void CudaExecutor::encode_lists(const Launch& l, LaunchArgs& r, bool backward) {
  const uint32_t* const starts = plan_.starts.data() + l.arg_begin;
  const int64_t* const index = plan_.index.data() + plan_.operands[l.operands].index;
  const uint32_t first = starts[0], n = starts[l.count] - first;
  const auto lists = batch_.room<const float*>(n);
  for (uint32_t k = 0; k < n; ++k) lists[k] = values() + index[first + k];
  if (like_dynet && !backward) gather_lists(l, lists.host, n);
  const auto begins = batch_.room<uint32_t>(size_t{l.count} + 1);
  for (uint32_t i = 0; i <= l.count; ++i) begins[i] = starts[i] - first;
  r.lists = lists.device;
  r.list_starts = begins.device;
}

// ---------------------------------------------------------------- copies, as DyNet makes them

// The argument of each member, one behind the other.
void CudaExecutor::gather_to(float* to, const ValueOperand& from, const NodeSizes& results,
                             const NodeSizes& own) {
  LaunchArgs r;
  r.count = own.count;
  r.n = 1;
  r.results = results;
  r.own = own;
  r.x = batch_.put(&from, 1);
  r.y = to;
  batch_.launch(CudaDevice::kernel_id(cuda::kGather), r, own.total);
}

// The same in memory of its own.
CudaExecutor::ValueOperand CudaExecutor::gather(const ValueOperand& from, const NodeSizes& results,
                                                const NodeSizes& own) {
  float* const to = static_cast<float*>(batch_.uninitialised(static_cast<size_t>(own.total) * sizeof(float)));
  gather_to(to, from, results, own);
  counters.gathered_bytes += 4 * static_cast<uint64_t>(own.total);
  if (own.starts) return {to, own.starts, 0, ValueOperand::indexed, false};
  return {to, nullptr, own.size, ValueOperand::contiguous, false};
}

CudaExecutor::ValueOperand CudaExecutor::gathered(const Launch& l, uint32_t k) {
  const Operand& o = plan_.operands[l.operands + k];
  const ValueOperand p = place(l, o, values());
  if (o.kind == Operand::contiguous || o.kind == Operand::shared || l.count == 1) return p;
  return gather(p, extents(l, kResult), extents(l, k));
}

// All arguments of lists, in one launch.
void CudaExecutor::gather_lists(const Launch& l, const float** lists, uint32_t n) {
  if (l.count == 1 || n == 0) return;
  const auto places = batch_.room<int64_t>(n), starts = batch_.room<int64_t>(size_t{n} + 1);
  uint32_t k = 0;
  starts[0] = 0;
  NodeSizes own{};
  for (uint32_t i = 0; i < l.count; ++i)
    for (const Dim* d : item(l, i).sig->x) {
      places[k] = lists[k] - values();
      starts[k + 1] = starts[k] + static_cast<int64_t>(d->size());
      own.largest = std::max<int64_t>(own.largest, d->size());
      ++k;
    }
  own.count = n;
  own.starts = starts.device;
  own.total = starts[n];
  const ValueOperand from{values(), places.device, 0, ValueOperand::indexed, false};
  const ValueOperand to = gather(from, own, own);
  for (k = 0; k < n; ++k) lists[k] = to.base + starts[k];
}

const Shape* CudaExecutor::shape(const Sig& sig) {
  const uint32_t n = sig.n_args;
  const auto dims = batch_.room<Dim>(n);
  const auto x = batch_.room<const Dim*>(n);
  for (uint32_t k = 0; k < n; ++k) {
    dims.host[k] = *sig.x[k];
    x[k] = dims.device + k;
  }
  const auto s = batch_.room<Shape>(1);
  s.host->y = *sig.y;
  s.host->x = x.device;
  s.host->attrs = batch_.put(sig.attrs);
  s.host->needs = batch_.put(sig.requires_grad_args);
  s.host->n = n;
  return s.device;
}

// One for each signature of the launches that go up together.
const Shape* CudaExecutor::shape_number(uint32_t sig) {
  if (shapes_.size() <= sig) shapes_.resize(sig + 64, nullptr);
  if (!shapes_[sig]) {
    shapes_[sig] = shape(graph_.sig_number(sig));
    shapes_known_.push_back(sig);
  }
  return shapes_[sig];
}

void CudaExecutor::encode_shapes(const Launch& l, LaunchArgs& r) {
  r.shape = shape_number(l.sig);
  if (l.uniform) return;
  const auto shapes = batch_.room<const Shape*>(l.count);
  for (uint32_t i = 0; i < l.count; ++i) shapes[i] = shape_number(graph_.node(plan_.nodes[l.nodes + i]).sig);
  r.shapes = shapes.device;
}

void CudaExecutor::encode_ids(const Launch& l, LaunchArgs& r) {
  if (!op_info(l.op).ids() && l.kind != OpKind::lookup) return;
  const auto starts = batch_.room<uint32_t>(size_t{l.count} + 1);
  starts[0] = 0;
  for (uint32_t i = 0; i < l.count; ++i) starts[i + 1] = starts[i] + graph_.ids(plan_.nodes[l.nodes + i]).n;
  const auto all = batch_.room<uint32_t>(starts[l.count]);
  for (uint32_t i = 0; i < l.count; ++i) {
    const Graph::Ids ids = graph_.ids(plan_.nodes[l.nodes + i]);
    std::copy_n(ids.data, ids.n, all.host + starts[i]);
  }
  r.ids = all.device;
  r.id_starts = starts.device;
}

// Scratch memory of rows that take some.
void CudaExecutor::encode_scratch(const Launch& l, LaunchArgs& r) {
  constexpr size_t kMost = size_t{64} << 20;  // bytes of all
  const OpInfo& info = op_info(l.op);
  if (!info.scratch) return;
  size_t bytes = 16;
  for (uint32_t i = 0; i < (l.uniform ? 1 : l.count); ++i) {
    const Sig& s = *item(l, i).sig;
    KernelArgs m{};
    m.xd = s.x.data();
    m.yd = s.y;
    m.n = s.n_args;
    m.attrs = s.attrs.data();
    bytes = std::max(bytes, info.scratch(m));
  }
  cuda::Rooms rooms{};
  rooms.bytes = (bytes + 15) / 16 * 16;
  rooms.workers = static_cast<uint32_t>(std::clamp<size_t>(kMost / rooms.bytes, 1, l.count));
  rooms.memory = static_cast<char*>(batch_.uninitialised(rooms.bytes * rooms.workers));
  r.extra = batch_.put(&rooms, 1);
}

namespace {

// The extents of z, batch last, with neighbours merged where x and y both go on or both repeat; n = 0 where
// all extents are equal.
Axes axes_of(const Dim& x, const Dim& y, const Dim& z) {
  Axes a{};
  if (x == y && x.size() == z.size()) return a;
  uint32_t x_size = 1, y_size = 1;
  const auto add = [&](uint32_t extent, uint32_t of_x, uint32_t of_y) {
    if (extent == 1) return;
    const bool x_on = of_x != 1, y_on = of_y != 1;
    if (a.n > 0 && (a.x[a.n - 1] != 0) == x_on && (a.y[a.n - 1] != 0) == y_on) {
      a.extent[a.n - 1] *= extent;
    } else {
      a.extent[a.n] = extent;
      a.x[a.n] = x_on ? x_size : 0;
      a.y[a.n++] = y_on ? y_size : 0;
    }
    if (x_on) x_size *= extent;
    if (y_on) y_size *= extent;
  };
  for (uint32_t i = 0; i < z.nd; ++i) add(z.d[i], x[i], y[i]);
  add(z.bd, x.bd, y.bd);
  return a;
}

}  // namespace

void CudaExecutor::encode_axes(const Launch& l, LaunchArgs& r) {
  r.each_own = !l.flat && !l.uniform;
  const auto axes = batch_.room<Axes>(r.each_own ? l.count : 1);
  axes[0] = Axes{};
  if (!l.flat)
    for (uint32_t i = 0; i < axes.n; ++i) {
      const Sig& s = *item(l, i).sig;
      axes[i] = axes_of(*s.x[0], *s.x[1], *s.y);
    }
  r.axes = axes.device;
}

const float* CudaExecutor::weight(const Operand& o) {
  if (o.base >= 0) return values() + o.base;
  return parameter(graph_.parameter_use(o.node));
}

const float* CudaExecutor::parameter(ParameterUse& use) {
  graph_.pin_parameter(use);
  const std::shared_ptr<Storage>& storage = graph_.shared_storage(use.storage->uid);
  const float* const raw = device_.parameters().values(storage, use.pinned, use.version);
  return use.factor == 1.f ? raw : scaled(storage, use, raw);
}

// By weight decay: the lookup of one row that is the whole parameter.
const float* CudaExecutor::scaled(const std::shared_ptr<Storage>& storage, const ParameterUse& use,
                                  const float* raw) {
  const auto [copy, made] = device_.parameters().scaled(storage, use.version, use.factor);
  if (!made) return copy;
  needs_grid_sync_ = true;  // the launch in hand
  scaled_.push_back(storage->uid);
  const int64_t size = static_cast<int64_t>(storage->size());
  const cuda::LookupArgs table{raw, use.factor, size};
  const uint32_t first = 0;
  LaunchArgs r;
  r.count = 1;
  r.y = copy;
  r.results = {1, size, nullptr, size, size};
  r.ids = batch_.put(&first, 1);
  r.extra = batch_.put(&table, 1);
  batch_.launch(CudaDevice::kernel_id(cuda::kLookupForward), r, size);
  return copy;
}

// ---------------------------------------------------------------- launches

// Does it read results of launches that it does not wait for? `part`: where those are.
bool CudaExecutor::reads(const Launch& l, ArenaRange part) const {
  if (part.begin == part.end) return false;
  const auto fresh = [part](int64_t begin, int64_t end) { return begin < part.end && part.begin < end; };
  const Sig& sig = graph_.sig_number(l.sig);
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    const Operand& o = plan_.operands[l.operands + k];
    if (o.kind == Operand::weight && o.base < 0) continue;
    if (!l.uniform || !l.fixed_arity) return true;
    const int64_t size = static_cast<int64_t>(sig.x[k]->size());
    if (o.kind == Operand::indexed) {
      const int64_t* const at = plan_.index.data() + o.index;
      for (uint32_t i = 0; i < l.count; ++i)
        if (fresh(at[i], at[i] + size)) return true;
      continue;
    }
    const bool run = o.kind == Operand::contiguous || o.kind == Operand::strided;
    const int64_t last = o.base + (run ? int64_t{l.count - 1} * o.stride : 0);
    if (fresh(std::min(o.base, last), std::max(o.base, last) + size)) return true;
  }
  return false;
}

// A launch of a chain reads what the same thread wrote, and may read what was there before the chain.
void CudaExecutor::decide_sync(const Launch& l, bool chained) {
  if (!chained) unsynced_before_group_ = unsynced_;
  needs_grid_sync_ = like_dynet || reads(l, unsynced_before_group_);
  if (needs_grid_sync_) unsynced_ = unsynced_before_group_ = {0, 0};
  if (unsynced_.begin == unsynced_.end) unsynced_ = {l.out, l.out + l.total};
  else unsynced_ = {std::min(unsynced_.begin, l.out), std::max(unsynced_.end, l.out + l.total)};
}

void CudaExecutor::run(const Launch& l, bool chained) {
  decide_sync(l, chained);
  counters.nodes += l.count;
  if (op_info(l.op).check) check(l);
  switch (l.kind) {
    case OpKind::unary:
    case OpKind::binary:
    case OpKind::per_node:
    case OpKind::custom:
      return run_op(l);
    case OpKind::matmul:
      return run_matmul(l);
    case OpKind::lookup:
      return run_lookup(l);
    case OpKind::parameter:
      return run_parameter(l);
    default:
      throw RuntimeError(text("no kernel for ", op_info(l.op).meta->name));
  }
}

void CudaExecutor::run_op(const Launch& l) {
  count_operands(l);
  if (l.total == 0) return;
  LaunchArgs r = record(l, false);
  if (l.kind == OpKind::binary) encode_axes(l, r);
  const bool elements = l.kind == OpKind::unary || l.kind == OpKind::binary;
  batch_.launch(CudaDevice::kernel_id(l.op, cuda::kForward), r, elements ? l.total : int64_t{l.count} * 32,
                needs_grid_sync_);
  note_sliced(l, false, 0, l.n_operands);
}

// The launch made last, if it can be made unit by unit: element i of a vector, or of a column, from elements
// i of others; of an LSTM's cell from those of all gates. Backward it adds to the gradients of operands
// [first, end); no launch there writes values.
void CudaExecutor::note_sliced(const Launch& l, bool backward, uint32_t first, uint32_t end) {
  constexpr uint32_t kMost = 64;  // members: walks with kept weights have few
  const Sig& sig = graph_.sig_number(l.sig);
  const bool cell = l.op == op_id<LstmCell>,
             elements = (l.kind == OpKind::unary || l.kind == OpKind::binary) && l.flat;
  if (!batch_.keeps_weights() || !(cell || elements) || !l.uniform || l.count > kMost) return;
  const int64_t period = cell ? sig.x[1]->rows() : sig.y->rows();
  const float* const arena = backward ? gradients() : values();
  std::vector<Access> accesses;
  accesses.push_back(access_to(arena, 1, l.total, period, !backward || cell, [&](int64_t) { return l.out; }));
  for (uint32_t k = first; k < end; ++k) {
    const Operand& o = plan_.operands[l.operands + k];
    if (backward && !wanted(l, k)) continue;
    accesses.push_back(access_to(arena, l.count, static_cast<int64_t>(sig.x[k]->size()), period, backward,
                                 [&](int64_t i) { return argument(l, o, static_cast<uint32_t>(i)); }));
  }
  batch_.note_sliced(period, elements, std::move(accesses));
}

void CudaExecutor::run_lookup(const Launch& l) {
  const Sig& first = graph_.sig_number(l.sig);
  Storage& storage = graph_.storage(first.attrs[0]);
  counters.operand_bytes += 4 * l.total;
  for (uint32_t i = 0; i < l.count; ++i) {
    check_rows(storage, graph_.ids(plan_.nodes[l.nodes + i]));
  }
  const Graph::Values v = graph_.values_of(storage);
  LaunchArgs r = record(l, false);
  cuda::LookupArgs table{};
  table.rows = device_.parameters().values(graph_.shared_storage(storage.uid), v.raw, v.version);
  table.factor = v.factor;
  table.row_size = static_cast<int64_t>(storage.row_size());
  r.extra = batch_.put(&table, 1);
  batch_.launch(CudaDevice::kernel_id(cuda::kLookupForward), r, l.total, needs_grid_sync_);
}

void CudaExecutor::run_parameter(const Launch& l) {
  batch_.copy(values() + l.out, parameter(graph_.parameter_use(plan_.nodes[l.nodes])),
              static_cast<size_t>(l.total));
  counters.gathered_bytes += static_cast<size_t>(l.total) * 4;
}

}  // namespace dyc
