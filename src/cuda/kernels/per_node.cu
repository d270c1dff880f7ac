// KernelArgs rows of the op table, forward and backward: the text of the rows, run by a warp for each member,
// or by a thread where the row says that its threads cannot share a member (Meta::thread_group).
//
// Gradients of different members lie apart; those of one member may be the same memory.
#include "cuda/device/prelude.h"

#include "cuda/abi/scratch.h"
#include "cuda/abi/launch_args.h"
#include "cuda/device/op_by_id.h"
#include "cuda/device/thread_groups.h"
#include "cuda/device/row_slices.h"
#include "cuda/device/worker.h"

namespace dyc {

// Scratch memory: every thread of a worker counts for itself where the next piece begins.
DYC_INLINE char** room_ends() {
  DYC_SHARED(char*, ends, 1024);
  return ends;
}
inline void* take_scratch(size_t bytes) {
  char*& end = room_ends()[threadIdx.x];
  char* const taken = end;
  end += bytes;
  return taken;
}
inline void give_scratch(void* room) noexcept { room_ends()[threadIdx.x] = static_cast<char*>(room); }

}  // namespace dyc

namespace dyc::cuda {

template <bool team>
struct InstructionSet {
  using I = SingleThread;
};
template <>
struct InstructionSet<true> {
  using I = WarpGroup;
};

template <class Op>
constexpr bool takes_room = requires(const KernelArgs& m) { Op::scratch(m); };

// Members that a worker takes one after the other.
struct Turns {
  int64_t first, step;
};
template <class Op>
DYC_INLINE Turns turns(const LaunchArgs& r, const Worker& w) {
  Turns t{w.thread, w.threads};
  if constexpr (Op::meta.thread_group) t = {w.warp(), w.warps()};
  if constexpr (takes_room<Op>) {
    const auto& scratch = *static_cast<const ScratchMemory*>(r.extra);
    if (t.step > scratch.workers) t.step = scratch.workers;
    if (t.first >= t.step) t.first = r.count;  // nothing
    else room_ends()[threadIdx.x] = scratch.memory + t.first * scratch.bytes;
  }
  return t;
}

// Rows that compute a unit from that unit of their arguments, by each_one() (ops/element_loops.h).
template <class Op>
constexpr bool has_row_slices = std::is_same_v<Op, LstmCell>;

// f(member): each warp of a block takes members, and of these the units of the block.
template <class F>
DYC_INLINE void each_node_sliced(const LaunchArgs& r, F f) {
  for (uint32_t i = threadIdx.x / kWarp; i < r.count; i += blockDim.x / kWarp) f(i);
}

template <class Op, class I>
DYC_INLINE void run_node(const LaunchArgs& r, uint32_t member) {
  const float* room[kMaxOperands];
  Op::template forward<I>(kernel_args_of(r, member, room));
  sync<I>();  // scratch memory, for the next member
}

template <class Op>
__device__ void run_node_forward(const LaunchArgs& r, const Worker& w) {
  static_assert(Op::meta.kind == OpKind::per_node);
  using I = typename InstructionSet<Op::meta.thread_group>::I;
  if constexpr (has_row_slices<Op>) {
    if (r.period) return each_node_sliced(r, [&r](uint32_t i) { run_node<Op, SlicedWarp>(r, i); });
  }
  const Turns t = turns<Op>(r, w);
  for (int64_t i = t.first; i < r.count; i += t.step) run_node<Op, I>(r, static_cast<uint32_t>(i));
}

// Gradients of all arguments of one member.
template <class Op, class I>
DYC_INLINE void back_node(const LaunchArgs& r, uint32_t member) {
  const float* room[kMaxOperands];
  KernelArgs m = kernel_args_of(r, member, room);
  if constexpr (requires(float* const* dx) { Op::template backward_all<I>(m, dx); }) {
    float* places[kMaxOperands];
    float* const* dx = places;
    if (r.n) {
      for (uint32_t k = 0; k < r.n; ++k) places[k] = gradient_of(r, member, k);
    } else {
      dx = r.gradient_lists + r.list_starts[member];
    }
    Op::template backward_all<I>(m, dx);
    sync<I>();
  } else {
    for (uint32_t k = 0; k < m.n; ++k) {
      if (!(m.dx = gradient_of(r, member, k))) continue;
      Op::template backward<I>(m, k);
      sync<I>();  // arguments may be the same
    }
  }
}

template <class Op>
__device__ void run_node_backward(const LaunchArgs& r, const Worker& w) {
  static_assert(Op::meta.kind == OpKind::per_node);
  using I = typename InstructionSet<Op::meta.thread_group>::I;
  if constexpr (has_row_slices<Op>) {
    if (r.period) return each_node_sliced(r, [&r](uint32_t i) { back_node<Op, SlicedWarp>(r, i); });
  }
  const Turns t = turns<Op>(r, w);
  for (int64_t i = t.first; i < r.count; i += t.step) back_node<Op, I>(r, static_cast<uint32_t>(i));
}

template <class Op>
__global__ void node_forward(const LaunchArgs* record) {
  run_node_forward<Op>(*record, Worker());
}
template <class Op>
__global__ void node_backward(const LaunchArgs* record) {
  run_node_backward<Op>(*record, Worker());
}

}  // namespace dyc::cuda
