// Numbers that decide how the CPU executor divides work among threads and into parts that fit the caches.
// Chosen for 32 KB of first-level and 1 to 2 MB of second-level cache per core while the kernels were
// written; no measurements are kept. Results do not depend on them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace dyc {

// ---- work worth handing to a thread
constexpr int64_t kParallelFlops = 400000;  // multiply-adds
constexpr size_t kFlatGrain = 16384;        // floats of element-wise work
// The most chunks that a product or fused group is cut into, for each thread and in all: each reads all
// weights.
constexpr int64_t kChunksPerThread = 4, kMostChunks = 64;

// ---- signals of the script are looked for after so many launches, or floats that launches read or write:
// asking for the time takes as long as a small launch
constexpr uint32_t kPolledLaunches = 16;
constexpr int64_t kPolledFloats = 64 * 1024;

// ---- ops that compute node by node
constexpr size_t kLargeNode = 1024;    // floats of a node that are worth looking at where they are
constexpr uint32_t kFewArguments = 8;  // of a node, whose addresses are kept on the stack
constexpr uint32_t kJoinedItems = 64;  // batch items of nodes that are computed as one

// ---- element-wise groups and fused groups
constexpr size_t kTile = 2048;       // floats that go through all launches at once: first-level cache
constexpr int64_t kBackTile = 8192;  // the same backward, in a fused group
constexpr int64_t kLargeInstance = 4 * kTile;  // floats of an instance: better shared by the threads itself
constexpr int64_t kGroupColumns = 128;         // columns of products that go through a fused group at once

// ---- products
constexpr int64_t kManyWeights = 128 * 1024;  // floats; more do not stay in the second-level cache
constexpr int64_t kFewColumns = 24;           // threads share rows of products with fewer columns
constexpr int64_t kReadColumns = 12,
                  kWideColumns = 32;         // columns worth reading a product's weights, many of them
constexpr int64_t kMatrixColumns = 8;        // columns that take as long as reading a matrix of their own
constexpr int64_t kByColumns = 32;           // columns from which threads share the columns of one product
constexpr int64_t kChunkColumns = 16;        // columns of a chunk, at least: it reads all weights
constexpr int64_t kChunkRows = 16;           // rows of W' dy of a chunk, at least: a cache line
constexpr int64_t kRowBlock = 64;            // rows of a product that threads share
constexpr int64_t kPart = 64;                // rows or columns of a weight gradient that threads share
constexpr int64_t kCopiedColumns = 256;      // columns of dy from which threads share rows of it
constexpr int64_t kPartFloats = 256 * 1024;  // of a gradient that are computed at once, if parts are smaller

// ---- products with their losses (exec/cpu/column_losses.h)
constexpr int64_t kLossColumns = 64;  // that go through a block of rows at once, forward
constexpr int64_t kLossGradientColumns = 32, kLossGradientRows = 64;  // of a chunk, backward
constexpr int64_t kLossGroups =
    4;  // blocks of columns that threads share, backward (one thread has one block)
// Results that are kept for backward: all up to so many, else that many or a share of them, for each launch
// whose results are not stored. The others are computed again, which takes a third more multiplications. The
// results of a launch and their gradients, which the real DyNet stores, would be 200 percent; with 40 a step
// takes at most a quarter of that.
constexpr int64_t kKeptFloats = 6 << 20, kKeptPercent = 40;

// ---- custom ops: chunks per thread of pieces that are items, and of pieces that add to one gradient
constexpr uint64_t kItemChunks = 4, kSharedChunks = 1;

// ---- lookups: nodes (or rows of one node) ahead, and bytes of a row; the processor follows longer ones
// itself
constexpr uint32_t kRowsAhead = 4;
constexpr size_t kFetchedBytes = 1024;

// ---- backward
constexpr int64_t kInCache = 64 * 1024;  // floats of gradients that stay in the cache for all of backward
// Columns, at least, of a product whose gradients may be aliases: fewer are copied in no time.
constexpr int64_t kAliasedColumns = 64;
// Of a graph that was computed in pieces: launches without products that may run together have at most so
// many floats, and they do if so many percent are left (exec/cpu/backward_order.h).
constexpr int64_t kJoinedFloats = 8192;
constexpr size_t kJoinedShare = 75;

}  // namespace dyc
