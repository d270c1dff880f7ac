// Tuning constants of the recorder. They decide how long recording takes and how nodes are grouped, never a
// value. Chosen by benchmarks/record.py, benchmarks/plan.py and the launch counts of
// tests/graph/test_nested_loops.py where a line says so; the others bound time or memory and were set well
// above what the models of benchmarks/ reach.
#pragma once
#include <cstddef>
#include <cstdint>

namespace dyc::tuning {

// ---- sites
constexpr int kSiteDepth = 8;  // refinements by producers of producers ...; deeper ones count by batch key
constexpr uint32_t kOrderedProducers =
    4;                                   // arguments: with more, the set of producers counts, not their order
constexpr uint32_t kMostProducers = 16;  // distinct producers: with more, the site is that of the batch key

// Numbers beside arguments of one site that are attributes (graph/varying_numbers.h).
constexpr uint32_t kFewNumbers = 4;

// ---- buckets
constexpr uint32_t kEdgesSearched = 16;  // edges of a bucket compared one by one before a hash table is used

// ---- tables of signatures and sites
constexpr uint32_t kMostSignatures =
    4096;                             // signatures: above it the tables are given up at the next renewal
constexpr uint32_t kGraphsKept = 64;  // renewals: a table that filled up in fewer may become twice as large
constexpr uint32_t kMostNumbers =
    1 << 16;  // of computed values (graph/value_numbers.h): above it they begin again at the next renewal

// ---- nodes
constexpr uint32_t kFirstNodes = 1024;  // of a graph that are allocated at once, with kFirstArgs arguments
constexpr uint32_t kFirstArgs = 2048;
constexpr int kCachedSignatures = 10;     // bits of their number: 64 bytes each, so that the cache is 64 KB
constexpr uint32_t kMostListKeys = 2048;  // ops on many arguments that are kept; then all are forgotten
constexpr uint32_t kAdviceFrom = 1000;    // from which a message advises renew_cg()

// ---- nested loops (by launch counts: tests/graph/test_nested_loops.py)
constexpr uint32_t kNestSites = 4;     // sites of a component from which an inner loop is looked for
constexpr uint32_t kInnerExcess = 4;   // inner loops occur more than 1/4 more often than the outer one
constexpr uint32_t kMostSiblings = 8;  // segments searched for one that a node may join

// How the next kind of segments is chosen (graph/segment_schedule.h): by the largest `ahead` of its segments,
// or by the sum of that to some power. The rules that had the fewest launches for some program of these
// tests.
constexpr int kLongest = 0;
struct SegmentRule {
  int power;
  bool per_cost;  // divided by the cost of its time step
};
constexpr SegmentRule kSegmentRules[] = {{kLongest, true}, {4, true},         {8, true},
                                         {16, true},       {kLongest, false}, {8, false}};

// ---- traces
constexpr size_t kMostLayouts = 256;  // of a trace: above it they are learned again
// Of long ones those of so many steps together, but not fewer than kFewLayouts.
constexpr size_t kLayoutSteps = 1 << 14, kFewLayouts = 4;

}  // namespace dyc::tuning
