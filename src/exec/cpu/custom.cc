// Custom launches: all nodes at once, in pieces that threads share.
#include <algorithm>

#include "exec/cpu/cpu_executor.h"

namespace dyc {

namespace {

// Nodes of a launch with their argument addresses.
struct LaunchNodes {
  std::vector<KernelArgs> list;
  std::vector<const float*> x;
  uint64_t work = 0;
};

// f(range) for all pieces, in chunks of at least kParallelWork of `work` in all. A chunk lays out its
// operands for itself, so there are no more than `per_thread` chunks for each thread; results do not depend
// on them.
template <class F>
void parallel_pieces(size_t pieces, uint64_t work, uint64_t per_thread, F f) {
  const size_t small = small_chunks(static_cast<int64_t>(work));
  const uint64_t most = per_thread * static_cast<uint64_t>(thread_pool().threads_for(small));
  const uint64_t chunks = std::max<uint64_t>(1, std::min(work / kParallelFlops, most));
  const auto run = [&](size_t begin, size_t end) {
    f(Range{static_cast<int64_t>(begin), static_cast<int64_t>(end)});
  };
  parallel_for(pieces, static_cast<size_t>((pieces + chunks - 1) / chunks), run, small);
}

// How the gradients that nodes add to are stored.
enum class Targets { one, separate, overlapping };

Targets targets(const std::vector<KernelArgs>& nodes, uint32_t arg) {
  std::vector<std::pair<const float*, const float*>> spans;
  for (const KernelArgs& m : nodes) spans.emplace_back(m.dx, m.dx + m.xd[arg]->size());
  bool one = true, sorted = true, separate = true;
  for (size_t i = 1; i < spans.size(); ++i) {
    one = one && spans[i] == spans[0] && nodes[i].xd[arg] == nodes[0].xd[arg];  // not another view
    sorted = sorted && spans[i - 1].second <= spans[i].first;
  }
  if (one) return Targets::one;
  if (sorted) return Targets::separate;
  std::sort(spans.begin(), spans.end());
  for (size_t i = 1; i < spans.size(); ++i) separate = separate && spans[i - 1].second <= spans[i].first;
  return separate ? Targets::separate : Targets::overlapping;
}

}  // namespace

void CpuExecutor::run_custom(const Launch& l) {
  counters.operand_bytes += operand_bytes(l);
  const OpInfo& info = op_info(l.op);
  const CustomKernels& k = kernels_.ops[l.op].custom;
  float* base = graph_.values_arena.base();
  LaunchNodes nodes;
  nodes.x.resize(size_t{l.count} * l.n_operands);
  size_t pieces = 0;
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    const float** x = nodes.x.data() + size_t{i} * l.n_operands;
    for (uint32_t a = 0; a < l.n_operands; ++a) x[a] = base + argument(l, plan_.operands[l.operands + a], i);
    nodes.list.push_back({it.sig->x.data(), it.sig->y, x, base + it.out, nullptr, nullptr, l.n_operands,
                          it.sig->attrs.data(), nullptr, 0});
    nodes.work += info.work(nodes.list.back());
    pieces += info.pieces(nodes.list.back());
  }
  parallel_pieces(pieces, nodes.work, kItemChunks,
                  [&](Range r) { k.forward(nodes.list.data(), int64_t{l.count}, r); });
}

void CpuExecutor::back_custom(const Launch& l) {
  for (uint32_t a = 0; a < l.n_operands; ++a)
    if (wanted(l, a)) back_argument(l, a);
}

// The gradient of one argument, of all nodes that want it. Nodes add to a gradient in their order, so it
// does not depend on the threads.
void CpuExecutor::back_argument(const Launch& l, uint32_t arg) {
  const OpInfo& info = op_info(l.op);
  const CustomKernels& k = kernels_.ops[l.op].custom;
  const float* v = values();
  float* g = grads();
  LaunchNodes nodes;
  nodes.x.resize(size_t{l.count} * l.n_operands);
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    if (!full_ && !it.sig->requires_grad_args[arg]) continue;
    const float** x = nodes.x.data() + size_t{i} * l.n_operands;
    for (uint32_t a = 0; a < l.n_operands; ++a) x[a] = v + argument(l, plan_.operands[l.operands + a], i);
    float* dx = g + argument(l, plan_.operands[l.operands + arg], i);
    nodes.list.push_back({it.sig->x.data(), it.sig->y, x, v + it.out, g + it.out, dx, l.n_operands,
                          it.sig->attrs.data(), nullptr, 0});
    nodes.work += info.work(nodes.list.back());
  }
  const std::vector<KernelArgs>& list = nodes.list;
  if (list.empty()) return;
  const Targets where = targets(list, arg);
  if (where != Targets::overlapping) {
    size_t pieces = 0;
    for (const KernelArgs& m : list) {
      pieces += info.gradient_pieces(m, arg);
      if (where == Targets::one) break;
    }
    const bool one = where == Targets::one;
    parallel_pieces(pieces, nodes.work, one ? kSharedChunks : kItemChunks, [&](Range r) {
      k.backward(list.data(), static_cast<int64_t>(list.size()), arg, one, r);
    });
    return;
  }
  for (const KernelArgs& m : list)
    parallel_pieces(info.gradient_pieces(m, arg), info.work(m), kSharedChunks,
                    [&](Range r) { k.backward(&m, 1, arg, true, r); });
}

}  // namespace dyc
