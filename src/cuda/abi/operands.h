// Where the tensors of a launch lie on the device, and how they are spread over its members. Plain structs,
// read by the host and by NVRTC alike.
#pragma once
#include <cstdint>

#include "base/dim.h"
#include "ops/kernel_args.h"

namespace dyc::cuda {

// Where an argument of each member lies; F is const float, or float for gradients that are added to.
template <class F>
struct DeviceOperand {
  enum Kind : uint32_t { shared, contiguous, strided, indexed };
  F* base;               // null: no gradient is wanted
  const int64_t* index;  // indexed: floats from base, per member
  int64_t stride;        // strided; contiguous: one member's floats, 0 where members differ in size
  Kind kind;
  // Gradients: several members may name the same argument, always so if shared. Arguments are the same or
  // disjoint.
  bool repeats;
};

// How the elements of some tensor of each member (results, or an argument) are spread over members.
struct NodeSizes {
  uint32_t count;         // members
  int64_t size;           // floats of each member; 0: they differ
  const int64_t* starts;  // they differ: count + 1 offsets into the block they form
  int64_t total;          // floats of all
  int64_t largest;        // floats of the largest member
};

// The extents of a result, batch last, where an operand may be repeated (step 0). n = 0: equal extents.
struct Axes {
  uint32_t n;
  uint32_t extent[kMaxDims + 1];
  uint32_t x[kMaxDims + 1], y[kMaxDims + 1];  // steps of the operands
};

struct Element {
  uint32_t member;
  int64_t at;  // within the member
};

DYC_INLINE int64_t start_of(const NodeSizes& e, uint32_t member) {
  return e.starts ? e.starts[member] : member * e.size;
}
DYC_INLINE int64_t size_of(const NodeSizes& e, uint32_t member) {
  return e.starts ? e.starts[member + 1] - e.starts[member] : e.size;
}

// Element i of the block that all members form.
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
DYC_INLINE F* argument(const DeviceOperand<F>& p, const NodeSizes& results, uint32_t member) {
  switch (p.kind) {
    case DeviceOperand<F>::shared:
      return p.base;
    case DeviceOperand<F>::contiguous:
      return p.base + (p.stride ? member * p.stride : start_of(results, member));
    case DeviceOperand<F>::strided:
      return p.base + member * p.stride;
    default:
      return p.base + p.index[member];
  }
}

}  // namespace dyc::cuda
