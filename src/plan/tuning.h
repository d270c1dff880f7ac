// Tuning constants of the planner. None changes a result bit: they decide how long planning takes and how
// launches are grouped. Chosen by benchmarks/plan.py and benchmarks/run_all.py on the models that each line
// names, where a line says so; the others bound time or memory and were set well above what these models
// reach.
#pragma once
#include <cstddef>
#include <cstdint>

namespace dyc::tuning {

// ---- selection
constexpr uint32_t kListShare =
    8;  // roots' ancestors are listed while they are at most 1/8 of the pending nodes
constexpr size_t kListFewest = 8;  // nodes: below it marking is as fast as listing

// ---- order of buckets
constexpr uint32_t kFewNodes = 32;     // nodes: up to here a check for two equal batch keys is worth it
constexpr uint32_t kNestFewest = 256;  // pending nodes from which the orders of nested loops are compared
constexpr uint32_t kNestShare = 4;     // and at least 1/4 of all nodes of the graph
constexpr uint32_t kOrderGain = 20;    // segments are preferred if they save more than 1/20 of the launches
constexpr uint32_t kOrderKept = 16;    // plans: first interval between two comparisons, then doubled
constexpr uint32_t kOrderKeptMost = 1024;  // plans: upper bound of that
constexpr size_t kMostOrdered =
    1 << 18;  // buckets of cached orders, some 40 bytes each: then all are forgotten
constexpr uint32_t kMostListBuckets =
    4096;  // buckets: beyond it ancestor sets cost more than they save (n^2 bits)

// ---- plans of graphs that come again (plan/plan_cache.h)
constexpr uint32_t kFewestCached = 8;  // planned nodes: fewer are planned as fast
constexpr uint32_t kMostCached =
    2048;  // nodes of the graph, and a quarter of its arguments: larger ones hardly come again
constexpr size_t kPlanBytes = 32 << 20;      // of all plans that are kept
constexpr size_t kSeenStructures = 1 << 13;  // a power of two
constexpr uint32_t kPlanLooks = 1 << 14;     // graphs until it is asked how many were found,
constexpr uint32_t kPlanShare = 16;          // of which one in so many should be,
constexpr uint32_t kMostPlanRest = 1 << 16;  // and graphs that are not looked at otherwise, at most

// ---- products that only a loss reads (plan/column_losses.h), from so many floats, rows and columns on:
// smaller ones stay in the cache, and weight gradients of fewer columns are better summed with those of other
// launches
constexpr int64_t kPairedFloats = 1 << 18;
constexpr uint32_t kPairedRows = 1000;
constexpr int64_t kPairedColumns = 64;

// ---- filling launches
constexpr uint32_t kNodesAhead = 32, kOffsetsAhead = 64;  // fetched ahead, as they were recorded a while ago
constexpr uint32_t kOffsetsAtOnce = 32;                   // offsets compared without a branch

// ---- fusion
constexpr uint32_t kMostElementwise = 16;  // launches of an element-wise group: its test is quadratic
constexpr uint32_t kMostLaunches = 24;     // launches of a fused group
constexpr uint32_t kMostStages = 48;       // stages of a fused group
constexpr uint32_t kManyNodes = 512;       // planned nodes from which also the smallest launches are fused
constexpr int64_t kFusedFloats = 256;      // floats of the first launch from which fewer nodes are fused, too
constexpr size_t kLargeWeight = 1 << 16;   // floats of a weight whose product alone is worth a group
constexpr int64_t kSortedTargets = 1 << 15;  // floats of a group from which its gradient targets are sorted

}  // namespace dyc::tuning
