// One launch as the device is told of it: plan/launch.h with offsets turned into addresses. The host writes
// the records of a flush, with all arrays they point to, into one block of memory and uploads that at once
// (exec/cuda/command_list.h). Plain structs, read by the host and by NVRTC alike.
//
// Every kernel of kernels/ takes the address of one record: `kernel(const LaunchArgs* record)`. Its body is a
// __device__ function run_...(const LaunchArgs&, const Worker&), which a kernel that walks over many records
// calls, too. Grids may have any size.
#pragma once
#include "cuda/abi/operands.h"

namespace dyc::cuda {

// A signature: what members that share it have in common.
struct Shape {
  Dim y;
  const Dim* const* x;
  const uint32_t* attrs;
  const uint32_t* needs;  // per argument: 1 where it takes a gradient
  uint32_t n;             // arguments
};

struct LaunchArgs {
  uint32_t op = 0;     // the row's number
  uint32_t count = 0;  // members
  uint32_t n = 0;      // places; 0: arguments are lists
  uint32_t arg = 0;    // backward kernels of one argument: which
  bool full = false;   // backward: every argument takes a gradient

  // ---- results: values and gradients
  float* y = nullptr;
  float* dy = nullptr;
  const int64_t* outs = nullptr;  // null: gapless, as `results` says; else floats from y, per member
  NodeSizes results{};

  // ---- arguments: `n` places for all members, or a list of addresses for each: those of member i are
  // lists[list_starts[i]] to lists[list_starts[i + 1]]. Gradients: null where none is wanted.
  const DeviceOperand<const float>* x = nullptr;
  const DeviceOperand<float>* dx = nullptr;
  const float* const* lists = nullptr;
  float* const* gradient_lists = nullptr;
  const uint32_t* list_starts = nullptr;

  // ---- extents and attributes: of all members, or of each
  const Shape* shape = nullptr;
  const Shape* const* shapes = nullptr;  // null: all as `shape`

  // ---- indices (Param::index, indices) of member i: ids[id_starts[i]] to ids[id_starts[i + 1]]
  const uint32_t* ids = nullptr;
  const uint32_t* id_starts = nullptr;

  // ---- binary rows that broadcast
  const Axes* axes = nullptr;  // of all members, or (each_own) of each
  bool each_own = false;
  NodeSizes own{};  // backward: elements of the argument

  // In walks: each block computes its units alone (cuda/device/row_slices.h). 0: a thread what its number
  // says.
  int64_t period = 0;

  const void* extra = nullptr;  // what only the kernels of one file know: products, segments, tables
};

// Arguments of fixed arity have at most so many places.
constexpr uint32_t kMaxOperands = 8;

DYC_INLINE const Shape& shape_of(const LaunchArgs& r, uint32_t member) {
  return r.shapes ? *r.shapes[member] : *r.shape;
}
DYC_INLINE int64_t out_of(const LaunchArgs& r, uint32_t member) {
  return r.outs ? r.outs[member] : start_of(r.results, member);
}
DYC_INLINE const float* argument_of(const LaunchArgs& r, uint32_t member, uint32_t k) {
  return r.n ? argument(r.x[k], r.results, member) : r.lists[r.list_starts[member] + k];
}
// Null where that argument of that member takes no gradient.
DYC_INLINE float* gradient_of(const LaunchArgs& r, uint32_t member, uint32_t k) {
  if (!r.full && !shape_of(r, member).needs[k]) return nullptr;
  if (r.n) return r.dx[k].base ? argument(r.dx[k], r.results, member) : nullptr;
  return r.gradient_lists[r.list_starts[member] + k];
}

// The member as its row sees it; `room` holds the addresses of arguments that have places. dx is to be set.
DYC_INLINE KernelArgs kernel_args_of(const LaunchArgs& r, uint32_t member,
                                     const float* (&room)[kMaxOperands]) {
  const Shape& s = shape_of(r, member);
  const int64_t out = out_of(r, member);
  KernelArgs m{};
  m.xd = s.x;
  m.yd = &s.y;
  m.n = s.n;
  m.attrs = s.attrs;
  m.y = r.y + out;
  m.dy = r.dy ? r.dy + out : nullptr;
  if (r.n) {
    for (uint32_t k = 0; k < r.n; ++k) room[k] = argument(r.x[k], r.results, member);
    m.x = room;
  } else {
    m.x = r.lists + r.list_starts[member];
  }
  if (r.id_starts) {
    m.ids = r.ids + r.id_starts[member];
    m.n_ids = r.id_starts[member + 1] - r.id_starts[member];
  }
  return m;
}

}  // namespace dyc::cuda
