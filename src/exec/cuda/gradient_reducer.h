// Gradients that several nodes add to. Threads add in no fixed order, so ranges that overlap are collected in
// scratch memory first and added from there in the order of nodes: the sums are the same each time.
#pragma once
#include <vector>

#include "exec/cuda/cuda_context.h"

namespace dyc {

// Memory that something is added to, as offsets (floats) from the gradient arena. Other allocations have
// offsets, too: all are of one address space.
struct GradientRange {
  int64_t at, size;
};
struct Addition {  // to += from
  int64_t to, from, size;
};

// Sums of segments of memory; see cuda::Segments.
struct SegmentList {
  std::vector<int64_t> targets, sources, ends;
  std::vector<uint32_t> starts;
  std::vector<uint8_t> fresh;  // empty: none is
  void begin(int64_t to, int64_t size) {
    targets.push_back(to);
    ends.push_back((ends.empty() ? 0 : ends.back()) + size);
    starts.push_back(static_cast<uint32_t>(sources.size()));
  }
};

class GradientReducer {
 public:
  explicit GradientReducer(CudaContext& context) : c_(context) {}

  enum class Overlap { none, same, partial };  // same: those that overlap are equal
  static Overlap overlap(const std::vector<GradientRange>& ranges);
  // Replaces ranges that overlap (`all`: each range) by zeroed scratch memory. add() of what is returned adds
  // what has been added there.
  std::vector<Addition> through_scratch(std::vector<GradientRange>& ranges, bool all = false);
  // In this order where they overlap.
  void add(const std::vector<Addition>& additions);
  void launch(SegmentList& list);
  int64_t offset_of(const float* gradient) const;

 private:
  void note_sliced(const SegmentList& list);

  CudaContext& c_;
};

}  // namespace dyc
