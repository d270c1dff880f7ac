// Where the tensors of a launch are stored on the device, and how they are spread over its nodes. Plain
// structs, read by the host and by NVRTC alike.
#pragma once
#include <cstdint>

#include "base/dim.h"
#include "ops/kernel_args.h"

namespace dyc::cuda {

// Where an argument of each node is stored; F is const float, or float for gradients that are added to.
template <class F>
struct DeviceOperand {
  enum Kind : uint32_t { shared, contiguous, strided, indexed };
  F* base;               // null: no gradient is wanted
  const int64_t* index;  // indexed: floats from base, per node
  int64_t stride;        // strided; contiguous: one node's floats, 0 where nodes differ in size
  Kind kind;
  // Gradients: several nodes may name the same argument, always so if shared. Arguments are the same or
  // disjoint.
  bool repeats;
};

// How the elements of some tensor of each node (results, or an argument) are spread over nodes.
struct NodeSizes {
  uint32_t count;         // nodes
  int64_t size;           // floats of each node; 0: they differ
  const int64_t* starts;  // they differ: count + 1 offsets into the range they form
  int64_t total;          // floats of all
  int64_t largest;        // floats of the largest node
};

// The dimensions of a result, batch last, where an operand may repeat (step 0). n = 0: equal dimensions.
struct Axes {
  uint32_t n;
  uint32_t extent[kMaxDims + 1];
  uint32_t x[kMaxDims + 1], y[kMaxDims + 1];  // steps of the operands
};

struct Element {
  uint32_t node;
  int64_t at;  // within the node
};

DYC_INLINE int64_t start_of(const NodeSizes& e, uint32_t node) {
  return e.starts ? e.starts[node] : node * e.size;
}
DYC_INLINE int64_t size_of(const NodeSizes& e, uint32_t node) {
  return e.starts ? e.starts[node + 1] - e.starts[node] : e.size;
}

// Element i of the range that all nodes form.
DYC_INLINE Element element(const NodeSizes& e, int64_t i) {
  if (!e.starts) return {static_cast<uint32_t>(i / e.size), i % e.size};
  uint32_t low = 0, high = e.count;  // starts[low] <= i < starts[high]
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (e.starts[middle] <= i) low = middle;
    else high = middle;
  }
  return {low, i - e.starts[low]};
}

// KernelArgs's argument; `results` serves contiguous arguments that are as large as the results.
template <class F>
DYC_INLINE F* argument(const DeviceOperand<F>& p, const NodeSizes& results, uint32_t node) {
  switch (p.kind) {
    case DeviceOperand<F>::shared:
      return p.base;
    case DeviceOperand<F>::contiguous:
      return p.base + (p.stride ? node * p.stride : start_of(results, node));
    case DeviceOperand<F>::strided:
      return p.base + node * p.stride;
    default:
      return p.base + p.index[node];
  }
}

}  // namespace dyc::cuda
