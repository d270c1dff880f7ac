// Per-node ops, forward and backward: the op's code, run by a warp for each node, or by a thread where the op
// cannot be computed by a thread group (Meta::thread_group), or by several warps where there are more of them
// than nodes (Meta::warps_share).
//
// Gradients do not overlap (exec/cuda/gradient_reducer.h).
#include "cuda/device/prelude.h"

#include "cuda/abi/scratch.h"
#include "cuda/abi/launch_args.h"
#include "cuda/device/op_by_id.h"
#include "cuda/device/thread_groups.h"
#include "cuda/device/row_slices.h"
#include "cuda/device/worker.h"

namespace dyc {

// Scratch memory: every thread of a worker keeps its own copy of where the next allocation begins.
DYC_INLINE char** scratch_ends() {
  DYC_SHARED(char*, ends, 1024);
  return ends;
}
inline void* take_scratch(size_t bytes) {
  char*& end = scratch_ends()[threadIdx.x];
  char* const taken = end;
  end += bytes;
  return taken;
}
inline void give_scratch(void* from) noexcept { scratch_ends()[threadIdx.x] = static_cast<char*>(from); }

}  // namespace dyc

namespace dyc::cuda {

template <class Op>
using InstructionSet = std::conditional_t<Op::meta.warps_share, SharedWarps,
                                          std::conditional_t<Op::meta.thread_group, WarpGroup, SingleThread>>;

template <class Op>
constexpr bool takes_scratch = requires(const KernelArgs& m) { Op::scratch(m); };

// Nodes that a worker takes one after the other: [k] for first <= k < count, step by step.
struct Turns {
  int64_t first, step, count;
  uint32_t instances = 0, own_first = 0, own_count = 1;
  DYC_INLINE uint32_t operator[](int64_t k) const {
    const auto turn = static_cast<uint32_t>(k);
    return instances ? turn / own_count * instances + own_first + turn % own_count : turn;
  }
};
// Returns the first node of this warp, of which it computes a part where there are more warps than nodes.
DYC_INLINE uint32_t choose_part(const LaunchArgs& r, const Worker& w) {
  const auto warp = static_cast<uint32_t>(w.warp()), warps = static_cast<uint32_t>(w.warps());
  uint32_t parts = 1;
  if (!r.instances && r.count < warps) {
    const auto most = static_cast<uint32_t>(r.results.largest / (kShareElements * kWarp));
    parts = warps / r.count < most ? warps / r.count : most;
  }
  const uint32_t node = parts > 1 ? warp / parts : warp;
  part_of_warp() = parts > 1 ? NodePart{warp - node * parts, parts} : NodePart{0, 1};
  __syncwarp();
  return node;
}
template <class Op>
DYC_INLINE Turns turns(const LaunchArgs& r, const Worker& w) {
  Turns t{w.thread, w.threads, r.count};
  if constexpr (Op::meta.warps_share) {
    t = {choose_part(r, w), w.warps(), r.count};
  } else if constexpr (Op::meta.thread_group) {
    t = {w.warp(), w.warps(), r.count};
  }
  if (r.instances) {  // of a chain, which has no ops that take scratch memory
    constexpr uint32_t threads = Op::meta.thread_group ? kWarp : 1;
    const RowSlice own(r.instances);
    t.first = threadIdx.x / threads;
    t.step = blockDim.x / threads;
    t.count = r.count / r.instances * own.count;
    t.instances = r.instances;
    t.own_first = static_cast<uint32_t>(own.first);
    t.own_count = static_cast<uint32_t>(own.count);
    return t;
  }
  if constexpr (takes_scratch<Op>) {
    const auto& scratch = extra_of<ScratchMemory>(r);
    if (t.step > scratch.workers) t.step = scratch.workers;
    if (t.first >= t.step) t.first = r.count;  // nothing
    else scratch_ends()[threadIdx.x] = scratch.memory + t.first * scratch.bytes;
  }
  return t;
}

// Ops that compute a row from that row of their arguments, by each_one() (ops/element_loops.h).
template <class Op>
constexpr bool has_row_slices = std::is_same_v<Op, LstmCell>;

// f(node): each warp of a block takes nodes, and of these the row slice of the block.
template <class F>
DYC_INLINE void each_node_sliced(const LaunchArgs& r, F f) {
  for (uint32_t i = threadIdx.x / kWarp; i < r.count; i += blockDim.x / kWarp) f(i);
}

template <class Op, class I>
DYC_INLINE void run_node(const LaunchArgs& r, uint32_t node) {
  const float* operands[kMaxOperands];
  Op::template forward<I>(kernel_args_of(r, node, operands));
  sync<I>();  // scratch memory, for the next node
}

template <class Op>
__device__ void run_node_forward(const LaunchArgs& r, const Worker& w) {
  static_assert(Op::meta.kind == OpKind::per_node);
  using I = InstructionSet<Op>;
  if constexpr (has_row_slices<Op>) {
    if (r.period) return each_node_sliced(r, [&r](uint32_t i) { run_node<Op, SlicedWarp>(r, i); });
  }
  const Turns t = turns<Op>(r, w);
  for (int64_t k = t.first; k < t.count; k += t.step) run_node<Op, I>(r, t[k]);
}

// Gradients of all arguments of one node.
template <class Op, class I>
DYC_INLINE void back_node(const LaunchArgs& r, uint32_t node) {
  const float* operands[kMaxOperands];
  KernelArgs m = kernel_args_of(r, node, operands);
  if constexpr (requires(float* const* dx) { Op::template backward_all<I>(m, dx); }) {
    float* targets[kMaxOperands];
    float* const* dx = targets;
    if (r.n) {
      for (uint32_t k = 0; k < r.n; ++k) targets[k] = gradient_of(r, node, k);
    } else {
      dx = r.gradient_lists + r.list_starts[node];
    }
    Op::template backward_all<I>(m, dx);
    sync<I>();
  } else {
    for (uint32_t k = 0; k < m.n; ++k) {
      if (!(m.dx = gradient_of(r, node, k))) continue;
      Op::template backward<I>(m, k);
      sync<I>();  // arguments may be the same
    }
  }
}

template <class Op>
__device__ void run_node_backward(const LaunchArgs& r, const Worker& w) {
  static_assert(Op::meta.kind == OpKind::per_node);
  using I = InstructionSet<Op>;
  if constexpr (has_row_slices<Op>) {
    if (r.period) return each_node_sliced(r, [&r](uint32_t i) { back_node<Op, SlicedWarp>(r, i); });
  }
  const Turns t = turns<Op>(r, w);
  for (int64_t k = t.first; k < t.count; k += t.step) back_node<Op, I>(r, t[k]);
}

template <class Op>
__global__ void node_forward(const LaunchArgs* args) {
  run_node_forward<Op>(*args, Worker());
}
template <class Op>
__global__ void node_backward(const LaunchArgs* args) {
  run_node_backward<Op>(*args, Worker());
}

}  // namespace dyc::cuda
