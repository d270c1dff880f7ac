// Where the tensors of a launch are stored on the device, and how they are spread over its nodes. Plain
// structs, read by the host and by NVRTC alike.
#pragma once
#include <cstdint>

#include "base/dim.h"
#include "ops/kernel_args.h"

namespace dyc::cuda {

// The compiler does not always see it where addresses come out of structs, and would then ask at each access
// what memory it is.
template <class F>
DYC_INLINE F* in_device_memory(F* p) {
#ifdef __CUDACC_RTC__
  __builtin_assume(__isGlobal(p));
#endif
  return p;
}

// Division of numbers below 2^31 by one multiplication: a 64-bit division takes a hundred instructions.
struct Divisor {
  uint32_t multiplier, shift;
};
constexpr int64_t kDivisible = int64_t{1} << 31;
constexpr Divisor divisor(int64_t by) {
  if (by < 1) return {};
  uint32_t log = 0;
  while (int64_t{1} << log < by) ++log;
  return {static_cast<uint32_t>((uint64_t{1} << (31 + log)) / static_cast<uint64_t>(by) + 1), 31 + log};
}
DYC_INLINE uint32_t quotient(uint32_t i, const Divisor& d) {
  return static_cast<uint32_t>(static_cast<uint64_t>(i) * d.multiplier >> d.shift);
}

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
  const int64_t* starts;  // they differ, or are 2^31 and more: count + 1 offsets into the range they form
  int64_t total;          // floats of all
  int64_t largest;        // floats of the largest node
  Divisor by_size;        // there are no starts
};

// The dimensions of a result, batch last, where an operand may repeat (step 0). n = 0: equal dimensions. Else
// the result has less than 2^31 elements.
struct Axes {
  uint32_t n;
  uint32_t extent[kMaxDims + 1];
  uint32_t x[kMaxDims + 1], y[kMaxDims + 1];  // steps of the operands
  Divisor by_extent[kMaxDims + 1];
};

struct Element {
  uint32_t node;
  int64_t at;  // within the node
};

DYC_INLINE int64_t start_of(const NodeSizes& e, uint32_t node) {
  return e.starts ? in_device_memory(e.starts)[node] : node * e.size;
}
DYC_INLINE int64_t size_of(const NodeSizes& e, uint32_t node) {
  if (!e.starts) return e.size;
  const int64_t* const starts = in_device_memory(e.starts);
  return starts[node + 1] - starts[node];
}

// Element i of the range that all nodes form.
DYC_INLINE Element element(const NodeSizes& e, int64_t i) {
  if (!e.starts) {
    const uint32_t node = quotient(static_cast<uint32_t>(i), e.by_size);
    return {node, i - node * e.size};
  }
  const int64_t* const starts = in_device_memory(e.starts);
  uint32_t low = 0, high = e.count;  // starts[low] <= i < starts[high]
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (starts[middle] <= i) low = middle;
    else high = middle;
  }
  return {low, i - starts[low]};
}

// KernelArgs's argument; `results` serves contiguous arguments that are as large as the results.
template <class F>
DYC_INLINE F* argument(const DeviceOperand<F>& p, const NodeSizes& results, uint32_t node) {
  int64_t at = 0;
  if (p.kind == DeviceOperand<F>::indexed) at = in_device_memory(p.index)[node];
  else if (p.kind == DeviceOperand<F>::strided || p.stride) at = node * p.stride;
  else if (p.kind == DeviceOperand<F>::contiguous) at = start_of(results, node);
  return in_device_memory(p.base) + at;
}

}  // namespace dyc::cuda
