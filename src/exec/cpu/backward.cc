#include <algorithm>
#include <cstring>

#include "base/thread_pool.h"
#include "exec/cpu/cpu_executor.h"

namespace dyc {

namespace {

// May threads share the nodes, as no two add to the same gradient? Large nodes are looked at wherever they
// are.
bool may_share_nodes(const LaunchReader& launches, const Launch& l) {
  if (launches.distinct(l)) return true;
  const Sig& sig = launches.graph().sig_number(l.sig);
  if (!l.fixed_arity || !l.uniform || sig.size < kLargeNode || thread_pool().threads() == 1) return false;
  struct AddedTo {
    int64_t begin, end;
    uint32_t node;
  };
  std::vector<AddedTo> targets;
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    if (!launches.wanted(l, k)) continue;
    const Operand& o = launches.operand(l, k);
    if (o.kind == Operand::shared || o.kind == Operand::weight) return false;
    for (uint32_t i = 0; i < l.count; ++i) {
      const int64_t at = launches.argument(l, o, i);
      targets.push_back({at, at + static_cast<int64_t>(sig.x[k]->size()), i});
    }
  }
  std::sort(targets.begin(), targets.end(),
            [](const AddedTo& a, const AddedTo& b) { return a.begin < b.begin; });
  AddedTo last{};
  for (const AddedTo& t : targets) {
    if (t.begin >= last.end) last = t;
    else if (t.node != last.node) return false;
    else last.end = std::max(last.end, t.end);
  }
  return true;
}

}  // namespace

void CpuExecutor::backward(NodeId root, const std::vector<uint8_t>& live,
                           const std::vector<uint32_t>& live_nodes) {
  const NodeId base = graph_.base_of(root);
  column_losses_.begin_backward(live_nodes);
  if (full_) {
    zero_gradients(0, static_cast<size_t>(graph_.values_arena.top()));
    for (const Launch& l : plan_.launches)
      if (l.far) zero_gradients(l.out, static_cast<size_t>(l.total));
  }
  const bool joined = in_pieces && order_.find(live, live_nodes);
  clearing_.begin(live, live_nodes, base < plan_.launch_of.size() ? plan_.launch_of[base] : kNone, joined);
  if (graph_.offset_of(root) >= 0) grads()[graph_.offset_of(root)] = root_gradient;
  else if (graph_.node(base).flags & Node::requires_grad) parameter_target(base)[0] += root_gradient;
  if (joined) run_joined(live, live_nodes);
  else run_backward(live, live_nodes);
  const int64_t start = profile_clock();
  {
    const ProfileTrace::Scope weights(trace, ProfileSpan::weights, "weight gradients");
    run_all_deferred();
    if (direct_) accumulate();
  }
  if (profiling) charge_weights(1e-9 * static_cast<double>(profile_clock() - start));
}

// Launches in reverse; a fused or element-wise group at once if all of it that takes part does so as a whole.
void CpuExecutor::run_backward(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes) {
  uint32_t end = static_cast<uint32_t>(plan_.launches.size());
  std::vector<uint32_t> heads;
  for (uint32_t i = 0; i < end; i += 1 + plan_.launches[i].elementwise + plan_.launches[i].fused)
    heads.push_back(i);
  while (!heads.empty()) {
    const uint32_t head = heads.back();
    heads.pop_back();
    clearing_.before(head, end, live, live_nodes);
    const bool block = plan_.launches[head].fused > 0;
    bool whole = end - head > 1, any = false;
    for (uint32_t i = head; i < end; ++i) {
      whole = whole && (live_nodes[i] == plan_.launches[i].count || (block && !live_nodes[i]));
      any = any || live_nodes[i];
    }
    if (whole && any) {
      const LaunchTimer watch(*this, head, end, true);
      if (block) backward_group(head, live_nodes);
      else backward_elementwise(head, end - 1);
    } else {
      for (uint32_t i = end; i-- > head;) {
        if (!live_nodes[i]) continue;
        const LaunchTimer watch(*this, i, i + 1, true, live_nodes[i]);
        backward({&i, 1}, live, live_nodes);
      }
    }
    end = head;
    if (!direct_) poll_script();
  }
}

// Launches of several pieces together. A product runs in the turn of its loss, whose gradient it needs.
void CpuExecutor::run_joined(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes) {
  for (uint32_t i = 0; i < order_.groups(); ++i) {
    std::span<const uint32_t> group = order_.group(i);
    const Launch& l = plan_.launches[group.front()];
    if (l.loss != kNone) continue;
    if (l.product != kNone) group = {&l.product, 1};
    uint32_t nodes = 0;
    for (const uint32_t launch : group) nodes += live_nodes[launch];
    const LaunchTimer watch(*this, group.front(), group.front() + 1, true, nodes);
    backward(group, live, live_nodes);
    if (!direct_) poll_script();
  }
}

void CpuExecutor::poll_script() {
  if (!poll) return;
  struct Looking {
    bool& flag;
    ~Looking() { flag = false; }
  } looking{polling_};
  polling_ = true;
  poll();
}

void CpuExecutor::refuse_reentry() {
  if (polling_)
    throw RuntimeError(
        "the handler of a signal runs in the middle of a computation: it can neither compute, nor set an "
        "input, "
        "nor call renew_cg(), cg_checkpoint() or cg_revert(); raise an exception, or set a flag that the "
        "program looks at");
}

void CpuExecutor::zero_gradients(int64_t place, size_t floats) { clear_floats(grads() + place, floats); }

float* CpuExecutor::weight_gradient(const Operand& o) {
  if (o.base >= 0) return grads() + o.base;
  return parameter_target(o.node);
}

float* CpuExecutor::parameter_target(NodeId node, bool* unset) {
  ParameterUse& use = graph_.parameter_use(node);
  if (use.gradient >= 0) return grads() + use.gradient;
  use.direct = true;
  return use.storage->grad(unset);
}

const float* CpuExecutor::parameter_gradient(NodeId id) {
  const ParameterUse& use = graph_.parameter_use(id);
  if (use.gradient >= 0) return grads() + use.gradient;
  return use.direct ? use.storage->raw_grad() : nullptr;
}

void CpuExecutor::backward(std::span<const uint32_t> launches, const std::vector<uint8_t>& live,
                           const std::vector<uint32_t>& live_nodes) {
  const Launch& l = plan_.launches[launches.front()];
  if (l.product != kNone || (l.loss != kNone && l.kind != OpKind::matmul)) return;  // with the product
  for (const uint32_t launch : launches) run_deferred_of(plan_.launches[launch]);
  if (l.loss != kNone) return column_losses_.backward(launches.front());
  if (l.kind == OpKind::parameter) return;  // its gradient stays in the slot until the end
  ++counters.launches;
  if (launches.size() == 1 && live_nodes[launches.front()] == l.count) return back(l);
  const PlanMark mark = plan_.mark();
  back(live_part(launches, live, live_nodes));
  plan_.revert(mark);
}

void CpuExecutor::back(const Launch& l) {
  switch (l.kind) {
    case OpKind::unary:
      return back_unary(l);
    case OpKind::binary:
      return back_binary(l);
    case OpKind::per_node:
      return back_per_node(l);
    case OpKind::matmul:
      return back_matmul(l);
    case OpKind::custom:
      return back_custom(l);
    case OpKind::lookup:
      return back_lookup(l);
    case OpKind::user:
      return call_functions(l, graph_.values_arena.base(), grads());
    default:
      return;
  }
}

void CpuExecutor::backward_elementwise(uint32_t first, uint32_t last) {
  for (uint32_t i = first; i <= last; ++i) run_deferred_of(plan_.launches[i]);
  ++counters.launches;
  run_elementwise(true, first, last);
}

// Elements [begin, end) of an element-wise launch whose operands are gapless.
void CpuExecutor::back_tile(const Launch& l, size_t begin, size_t end) {
  if (op_info(l.op).meta->nondiff) return;
  const OpKernels& k = kernels_.ops[l.op];
  const float* attrs = reinterpret_cast<const float*>(graph_.sig_number(l.sig).attrs.data());
  const Operand* o = plan_.operands.data() + l.operands;
  const float* v = values();
  float* g = grads();
  const size_t n = end - begin, y = l.out + begin, x0 = o[0].base + begin;
  if (l.kind == OpKind::unary) {
    if (wanted(l, 0)) k.map1_back(v + x0, v + y, g + y, g + x0, n, attrs);
    return;
  }
  const size_t x1 = o[1].base + begin;
  float *d0 = wanted(l, 0) ? g + x0 : nullptr, *d1 = wanted(l, 1) ? g + x1 : nullptr;
  if (d0 && d0 == d1) {  // x * x: one after the other
    k.map2_back(v + x0, v + x1, v + y, g + y, d0, nullptr, n, attrs);
    d0 = nullptr;
  }
  k.map2_back(v + x0, v + x1, v + y, g + y, d0, d1, n, attrs);
}

void CpuExecutor::back_unary(const Launch& l) {
  if (plan_.operands[l.operands].kind == Operand::contiguous) {
    parallel_for(l.total, kFlatGrain, [&](size_t begin, size_t end) { back_tile(l, begin, end); });
    return;
  }
  for_nodes(l, may_share_nodes(*this, l), [&](size_t begin, size_t end) { back_range(l, begin, end); });
}

void CpuExecutor::back_binary(const Launch& l) {
  if (!l.flat) return back_per_node(l);
  const Operand &ox = plan_.operands[l.operands], &oy = plan_.operands[l.operands + 1];
  const int64_t separate = ox.base < oy.base ? oy.base - ox.base : ox.base - oy.base;
  if (ox.kind == Operand::contiguous && oy.kind == Operand::contiguous &&
      (separate == 0 || separate >= l.total)) {
    parallel_for(l.total, kFlatGrain, [&](size_t begin, size_t end) { back_tile(l, begin, end); });
    return;
  }
  for_nodes(l, may_share_nodes(*this, l), [&](size_t begin, size_t end) { back_range(l, begin, end); });
}

// Nodes [begin, end) of a unary, binary or per-node launch, one after the other.
void CpuExecutor::back_range(const Launch& l, uint32_t begin, uint32_t end) {
  if (op_info(l.op).meta->nondiff) return;
  if (l.kind == OpKind::per_node || (l.kind == OpKind::binary && !l.flat))
    return back_per_node_range(l, begin, end);
  const OpKernels& k = kernels_.ops[l.op];
  const float* attrs = reinterpret_cast<const float*>(graph_.sig_number(l.sig).attrs.data());
  const Operand* o = plan_.operands.data() + l.operands;
  const float* v = values();
  float* g = grads();
  const bool unary = l.kind == OpKind::unary, want_x = wanted(l, 0), want_y = !unary && wanted(l, 1);
  const int64_t separate = unary ? 0 : o[0].base < o[1].base ? o[1].base - o[0].base : o[0].base - o[1].base;
  if (l.uniform && o[0].kind == Operand::contiguous &&
      (unary || (o[1].kind == Operand::contiguous && (separate == 0 || separate >= l.total)))) {
    const size_t size = graph_.sig_number(l.sig).size;
    return back_tile(l, begin * size, end * size);
  }
  if (unary) {
    if (!want_x) return;
    return each_flat(l, begin, end, [=, back = k.map1_back](size_t n, int64_t x, int64_t, int64_t z) {
      back(v + x, v + z, g + z, g + x, n, attrs);
    });
  }
  each_flat(l, begin, end, [=, back = k.map2_back](size_t n, int64_t x, int64_t y, int64_t z) {
    float *dx = want_x ? g + x : nullptr, *const dy = want_y ? g + y : nullptr;
    if (dx && dy && (x < y ? y - x : x - y) < static_cast<int64_t>(n)) {  // the same memory, as in x * x
      back(v + x, v + y, v + z, g + z, dx, nullptr, n, attrs);
      dx = nullptr;
    }
    back(v + x, v + y, v + z, g + z, dx, dy, n, attrs);
  });
}

void CpuExecutor::back_per_node(const Launch& l) {
  if (op_info(l.op).meta->nondiff) return;
  for_nodes(l, may_share_nodes(*this, l), [&](size_t begin, size_t end) {
    back_per_node_range(l, static_cast<uint32_t>(begin), static_cast<uint32_t>(end));
  });
}

void CpuExecutor::back_per_node_range(const Launch& l, uint32_t begin, uint32_t end) {
  const OpKernels& k = kernels_.ops[l.op];
  const OpInfo& info = op_info(l.op);
  const float* v = values();
  float* g = grads();
  if (joins_columns(l)) {
    if (!wanted(l, 0)) return;
    const Sig& sig = graph_.sig_number(l.sig);
    const int64_t size = sig.x[0]->size();
    return each_joined(l, begin, end, [&](KernelArgs m, uint32_t i) {
      m.dy = g + l.out + int64_t{i} * sig.size;
      m.dx = g + plan_.operands[l.operands].base + i * size;
      k.backward(m, 0);
    });
  }
  const float *few_x[kFewArguments], **x = few_x;
  float *few_dx[kFewArguments], **dx = few_dx;
  std::vector<const float*> many_x;
  std::vector<float*> many_dx;
  for (uint32_t i = begin; i < end; ++i) {
    const Item it = item(l, i);
    const Sig& sig = *it.sig;
    if (sig.n_args > kFewArguments) {
      many_x.resize(sig.n_args);
      many_dx.resize(sig.n_args);
      x = many_x.data();
      dx = many_dx.data();
    }
    const int64_t* places =
        l.fixed_arity ? nullptr
                      : plan_.index.data() + plan_.operands[l.operands].index + plan_.starts[l.arg_begin + i];
    for (uint32_t a = 0; a < sig.n_args; ++a) {
      const int64_t at = places ? places[a] : argument(l, plan_.operands[l.operands + a], i);
      x[a] = v + at;
      dx[a] = (full_ || sig.requires_grad_args[a]) ? g + at : nullptr;
    }
    const Graph::Ids ids = this->ids(info, it.id);
    KernelArgs m{sig.x.data(),     sig.y,    x,    v + it.out, g + it.out, nullptr, sig.n_args,
                 sig.attrs.data(), ids.data, ids.n};
    if (k.backward_all) {
      k.backward_all(m, dx);
      continue;
    }
    for (uint32_t a = 0; a < sig.n_args; ++a) {
      if (!(m.dx = dx[a])) continue;
      k.backward(m, a);
    }
  }
}

void CpuExecutor::back_lookup(const Launch& l) {
  const Sig& first = graph_.sig_number(l.sig);
  if (!first.attrs[1]) return;  // update=False
  Storage& storage = graph_.parameters.storage(first.attrs[0]);
  const size_t row = storage.row_size();
  const bool now = direct_ && row < tuning::kSharedRow;
  const size_t before = rows_.size();
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    const Graph::Ids ids = graph_.ids(it.id);
    if (now && !ids.list) storage.count_single_rows();
    for (uint32_t j = 0; j < ids.n; ++j) {
      const int64_t at = it.out + static_cast<int64_t>(j * row);
      if (!now) {
        rows_.push_back({&storage, ids.data[j], !ids.list, at});
        continue;
      }
      bool unset = false;
      float* const to = storage.grad_row(ids.data[j], &unset);
      if (unset) store_sums(to, grads() + at, row);
      else add(to, grads() + at, row);
      if (j + kRowsAhead < ids.n) fetch_row(storage.raw_grad(), ids.data[j + kRowsAhead], row);
    }
    if (now) fetch_ahead(l, i, storage.raw_grad(), row);
  }
  if (!direct_ || now) return;
  add_to_storage(std::span(rows_).subspan(before));
  rows_.resize(before);
}

}  // namespace dyc
