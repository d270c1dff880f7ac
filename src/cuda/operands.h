// What a kernel of kernels/ is told of a launch: plan/launch.h with offsets turned into addresses. Plain
// structs, passed by value, read by the host and by NVRTC alike.
#pragma once
#include <cstdint>

#include "base/dim.h"

namespace dyc::cuda {

// Where an argument of each member lies; F is const float, or float for gradients that are added to.
template <class F>
struct Place {
  enum Kind : uint32_t { shared, contiguous, strided, indexed };
  F* base;
  const int64_t* index;  // indexed: floats from base, per member
  int64_t stride;        // strided; contiguous: one member's floats, 0 where members differ in size
  Kind kind;
  // Gradients: several members may name the same argument, always so if shared. Arguments are the same or
  // disjoint; where they overlap otherwise the host launches members one by one.
  bool repeats;
};

// How the elements of some tensor of each member (results, or an argument) are spread over members.
struct Extents {
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

// Attribute words, in the order of the row's parameters.
constexpr int kMaxAttrs = 4;
struct Attrs {
  float words[kMaxAttrs];
};

}  // namespace dyc::cuda
