#include <algorithm>
#include <cstring>

#include "base/thread_pool.h"
#include "exec/cpu/cpu_executor.h"

namespace dyc {

uint32_t CpuExecutor::forward(uint32_t i) {
  const Launch& l = plan_.launches[i];
  if (l.loss != kNone) return i + 1;  // with its loss
  const LaunchTimer watch(*this, i, i + 1 + l.fused + l.elementwise, false);
  if (l.product != kNone) {
    column_losses_.forward(i);
    return i + 1;
  }
  if (l.fused) {
    forward_group(i);
    return i + 1 + l.fused;
  }
  if (l.elementwise == 0) {
    run(l);
    return i + 1;
  }
  ++counters.launches;
  for (uint32_t k = 0; k <= l.elementwise; ++k) {
    counters.nodes += plan_.launches[i + k].count;
    counters.operand_bytes += 4 * l.total * plan_.launches[i + k].n_operands;
  }
  run_elementwise(false, i, i + l.elementwise);
  return i + 1 + l.elementwise;
}

// An element-wise group: element-wise launches [first, last], backward the last first.
void CpuExecutor::run_elementwise(bool backward, uint32_t first, uint32_t last) {
  const uint32_t n = last - first + 1;
  const auto run = [&](uint32_t k, size_t begin, size_t end) {
    if (backward) back_tile(plan_.launches[last - k], begin, end);
    else run_tile(plan_.launches[first + k], begin, end);
  };
  const size_t total = static_cast<size_t>(plan_.launches[first].total);
  parallel_for(total, kFlatGrain / n, [&](size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += kTile)
      for (uint32_t k = 0; k < n; ++k) run(k, at, std::min(at + kTile, end));
  });
}

// Elements [begin, end) of an element-wise launch whose operands are gapless.
void CpuExecutor::run_tile(const Launch& l, size_t begin, size_t end) {
  const OpKernels& k = kernels_.ops[l.op];
  const float* attrs = reinterpret_cast<const float*>(graph_.sig_number(l.sig).attrs.data());
  const Operand* o = plan_.operands.data() + l.operands;
  float* base = graph_.values_arena.base();
  float* out = base + l.out + begin;
  if (l.kind == OpKind::unary) k.map1(base + o[0].base + begin, out, end - begin, attrs);
  else k.map2(base + o[0].base + begin, base + o[1].base + begin, out, end - begin, attrs);
}

const float* CpuExecutor::weight(const Operand& o) {
  if (o.base >= 0) return values() + o.base;
  return graph_.parameters.values(graph_.parameter_use(o.node));
}

void CpuExecutor::run(const Launch& l) {
  ++counters.launches;
  counters.nodes += l.count;
  if (op_info(l.op).check) check(l);
  dispatch(l);
}

void CpuExecutor::dispatch(const Launch& l) {
  switch (l.kind) {
    case OpKind::unary:
      return run_unary(l);
    case OpKind::binary:
      return run_binary(l);
    case OpKind::per_node:
      return run_per_node(l);
    case OpKind::matmul:
      return run_matmul(l);
    case OpKind::custom:
      return run_custom(l);
    case OpKind::lookup:
      return run_lookup(l);
    case OpKind::user:
      return call_functions(l, graph_.values_arena.base(), nullptr);
    case OpKind::parameter:
      return run_parameter(l);
    default:
      throw RuntimeError(text("no kernel for ", op_info(l.op).meta->name));
  }
}

void CpuExecutor::run_unary(const Launch& l) {
  counters.operand_bytes += 4 * l.total;
  if (plan_.operands[l.operands].kind == Operand::contiguous) {
    parallel_for(l.total, kFlatGrain, [&](size_t begin, size_t end) { run_tile(l, begin, end); });
    return;
  }
  for_nodes(l, true, [&](size_t begin, size_t end) { run_range(l, begin, end); });
}

// Nodes [begin, end) of a unary, binary or per-node launch, one after the other.
void CpuExecutor::run_range(const Launch& l, uint32_t begin, uint32_t end) {
  if (l.kind == OpKind::per_node || (l.kind == OpKind::binary && !l.flat))
    return run_per_node_range(l, begin, end);
  const OpKernels& k = kernels_.ops[l.op];
  const float* attrs = reinterpret_cast<const float*>(graph_.sig_number(l.sig).attrs.data());
  const Operand* o = plan_.operands.data() + l.operands;
  const bool unary = l.kind == OpKind::unary;
  if (l.uniform && o[0].kind == Operand::contiguous && (unary || o[1].kind == Operand::contiguous)) {
    const size_t size = graph_.sig_number(l.sig).size;
    return run_tile(l, begin * size, end * size);
  }
  float* const base = graph_.values_arena.base();
  if (unary)
    each_flat(l, begin, end, [=, map = k.map1](size_t n, int64_t x, int64_t, int64_t z) {
      map(base + x, base + z, n, attrs);
    });
  else
    each_flat(l, begin, end, [=, map = k.map2](size_t n, int64_t x, int64_t y, int64_t z) {
      map(base + x, base + y, base + z, n, attrs);
    });
}

void CpuExecutor::run_binary(const Launch& l) {
  const Operand &ox = plan_.operands[l.operands], &oy = plan_.operands[l.operands + 1];
  if (!l.flat) return run_per_node(l);
  counters.operand_bytes += 8 * l.total;
  if (ox.kind == Operand::contiguous && oy.kind == Operand::contiguous) {
    parallel_for(l.total, kFlatGrain, [&](size_t begin, size_t end) { run_tile(l, begin, end); });
    return;
  }
  for_nodes(l, true, [&](size_t begin, size_t end) { run_range(l, begin, end); });
}

void CpuExecutor::run_per_node(const Launch& l) {
  counters.operand_bytes += operand_bytes(l);
  for_nodes(l, true, [&](size_t begin, size_t end) {
    run_per_node_range(l, static_cast<uint32_t>(begin), static_cast<uint32_t>(end));
  });
}

// Does the op compute column by column, and are the columns of all nodes one after the other?
bool CpuExecutor::joins_columns(const Launch& l) const {
  const ColumnRole role = op_info(l.op).column_role;
  if (l.kind != OpKind::per_node || role == ColumnRole::none || !l.uniform) return false;
  const Sig& sig = graph_.sig_number(l.sig);
  return plan_.operands[l.operands].kind == Operand::contiguous && sig.x[0]->bd == sig.y->bd &&
         2 * sig.y->bd <= kJoinedItems;
}

void CpuExecutor::run_per_node_range(const Launch& l, uint32_t begin, uint32_t end) {
  const OpKernels& k = kernels_.ops[l.op];
  if (joins_columns(l))
    return each_joined(l, begin, end, [&](const KernelArgs& m, uint32_t) { k.forward(m); });
  const OpInfo& info = op_info(l.op);
  float* base = graph_.values_arena.base();
  const float* few[kFewArguments];
  std::vector<const float*> many;
  for (uint32_t i = begin; i < end; ++i) {
    const Item it = item(l, i);
    const uint32_t n = it.sig->n_args;
    const float** x = few;
    if (n > kFewArguments) {
      many.resize(n);
      x = many.data();
    }
    if (l.fixed_arity) {
      for (uint32_t a = 0; a < n; ++a) x[a] = base + argument(l, plan_.operands[l.operands + a], i);
    } else {
      const int64_t* places =
          plan_.index.data() + plan_.operands[l.operands].index + plan_.starts[l.arg_begin + i];
      for (uint32_t a = 0; a < n; ++a) x[a] = base + places[a];
    }
    const Graph::Ids ids = this->ids(info, it.id);
    const KernelArgs m{it.sig->x.data(),     it.sig->y, x,    base + it.out, nullptr, nullptr, n,
                       it.sig->attrs.data(), ids.data,  ids.n};
    k.forward(m);
  }
}

void CpuExecutor::fetch_row(const float* table, uint32_t number, size_t row) {
  const auto at = reinterpret_cast<uintptr_t>(table) + size_t{number} * row * sizeof(float);
  const size_t bytes = std::min(row * sizeof(float), kFetchedBytes);
  for (size_t line = 0; line < bytes; line += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(at + line));
}

void CpuExecutor::fetch_ahead(const Launch& l, uint32_t i, const float* table, size_t row) const {
  if (i + kRowsAhead >= l.count) return;
  const Graph::Ids ids = graph_.ids(item(l, i + kRowsAhead).id);
  if (ids.n) fetch_row(table, ids.data[0], row);
}

void CpuExecutor::run_lookup(const Launch& l) {
  const Sig& first = graph_.sig_number(l.sig);
  Storage& storage = graph_.parameters.storage(first.attrs[0]);
  const size_t row = storage.row_size();
  const ParameterTable::Values values = graph_.parameters.values_of(storage);
  const float *table = values.raw, factor = values.factor;
  float* base = graph_.values_arena.base();
  counters.operand_bytes += 4 * l.total;
  for_copies(l.count, l.total, [&](size_t begin, size_t end) {
    for (auto i = static_cast<uint32_t>(begin); i < end; ++i) {
      const Item it = item(l, i);
      const Graph::Ids ids = graph_.ids(it.id);
      check_rows(storage, ids);
      fetch_ahead(l, i, table, row);
      for (uint32_t j = 0; j < ids.n; ++j) {
        if (j + kRowsAhead < ids.n) fetch_row(table, ids.data[j + kRowsAhead], row);
        float* y = base + it.out + j * row;
        const float* x = table + ids.data[j] * row;
        if (factor == 1.f) std::memcpy(y, x, row * 4);
        else
          for (size_t e = 0; e < row; ++e) y[e] = x[e] * factor;
      }
    }
  });
}

void CpuExecutor::run_parameter(const Launch& l) {
  ParameterUse& use = graph_.parameter_use(plan_.nodes[l.nodes]);
  const float* source = graph_.parameters.values(use);
  std::memcpy(graph_.values_arena.base() + l.out, source, static_cast<size_t>(l.total) * 4);
  counters.gathered_bytes += static_cast<size_t>(l.total) * 4;
}

}  // namespace dyc
