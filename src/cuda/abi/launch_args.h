// The arguments of one launch: plan/launch.h with offsets turned into addresses. The host writes the
// arguments of all launches that it submits together, with all arrays they point to, into one allocation, and
// uploads that at once (exec/cuda/command_list.h). Plain structs, read by the host and by NVRTC alike.
//
// Every kernel of kernels/ takes the address of its arguments: `kernel(const LaunchArgs* args)`. Its body is
// a __device__ function run_...(const LaunchArgs&, const Worker&), which the persistent kernel calls, too.
// Grids may have any size.
#pragma once
#include "cuda/abi/operands.h"

namespace dyc::cuda {

// A signature: what nodes that share it have in common.
struct Shape {
  Dim y;
  const Dim* const* x;
  const uint32_t* attrs;
  const uint32_t* needs;  // per argument: 1 where it takes a gradient
  uint32_t n;             // arguments
};

struct LaunchArgs {
  uint32_t op = 0;     // OpId
  uint32_t count = 0;  // nodes
  uint32_t n = 0;      // operands; 0: arguments are lists
  uint32_t arg = 0;    // backward kernels of one argument: which
  bool full = false;   // backward: every argument takes a gradient

  // ---- results: values and gradients
  float* y = nullptr;
  float* dy = nullptr;
  const int64_t* outs = nullptr;  // null: gapless, as `results` says; else floats from y, per node
  NodeSizes results{};

  // ---- arguments: `n` operands for all nodes, or a list of addresses for each: those of node i are
  // lists[list_starts[i]] to lists[list_starts[i + 1]]. Gradients: null where none is wanted.
  const DeviceOperand<const float>* x = nullptr;
  const DeviceOperand<float>* dx = nullptr;
  const float* const* lists = nullptr;
  float* const* gradient_lists = nullptr;
  const uint32_t* list_starts = nullptr;

  // ---- dimensions and attributes: of all nodes, or of each
  const Shape* shape = nullptr;
  const Shape* const* shapes = nullptr;  // null: all as `shape`

  // ---- indices or number of node i (Param::index, indices, number)
  // ids[id_starts[i]] to ids[id_starts[i + 1]]
  const uint32_t* ids = nullptr;
  const uint32_t* id_starts = nullptr;

  // ---- binary ops that broadcast
  const Axes* axes = nullptr;  // of all nodes, or (each_own) of each
  bool each_own = false;
  NodeSizes own{};  // backward: elements of the argument

  // In persistent kernels and chains each block computes its own slice (cuda/device/row_slices.h): of rows
  // modulo `period`, or of instances, where node i is of instance i % instances. 0: no slices.
  int64_t period = 0;
  uint32_t instances = 0;

  const void* extra = nullptr;  // what only the kernels of one file know: products, segments, tables
};

template <class T>
DYC_INLINE const T& extra_of(const LaunchArgs& r) {
  return *in_device_memory(static_cast<const T*>(r.extra));
}

// Arguments of fixed arity have at most so many operands.
constexpr uint32_t kMaxOperands = 8;

DYC_INLINE const Shape& shape_of(const LaunchArgs& r, uint32_t node) {
  return r.shapes ? *r.shapes[node] : *r.shape;
}
DYC_INLINE int64_t out_of(const LaunchArgs& r, uint32_t node) {
  return r.outs ? r.outs[node] : start_of(r.results, node);
}
// Null where that argument of that node takes no gradient.
DYC_INLINE float* gradient_of(const LaunchArgs& r, uint32_t node, uint32_t k) {
  if (!r.full && !shape_of(r, node).needs[k]) return nullptr;
  if (r.n) return r.dx[k].base ? argument(r.dx[k], r.results, node) : nullptr;
  return r.gradient_lists[r.list_starts[node] + k];
}

// The node's arguments as its op reads them; `scratch` holds the addresses of operands. dx is to be set.
DYC_INLINE KernelArgs kernel_args_of(const LaunchArgs& r, uint32_t node,
                                     const float* (&operands)[kMaxOperands]) {
  const Shape& s = shape_of(r, node);
  const int64_t out = out_of(r, node);
  KernelArgs m{};
  m.xd = s.x;
  m.yd = &s.y;
  m.n = s.n;
  m.attrs = s.attrs;
  m.y = r.y + out;
  m.dy = r.dy ? r.dy + out : nullptr;
  if (r.n) {
    for (uint32_t k = 0; k < r.n; ++k) operands[k] = argument(r.x[k], r.results, node);
    m.x = operands;
  } else {
    m.x = r.lists + r.list_starts[node];
  }
  if (r.id_starts) {
    m.ids = r.ids + r.id_starts[node];
    m.n_ids = r.id_starts[node + 1] - r.id_starts[node];
  }
  return m;
}

}  // namespace dyc::cuda
