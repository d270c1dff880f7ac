// Numbers of the kernels that host and device must agree on, or that shape what a thread block does. Chosen
// by reasoning for an H100-class device, by registers and shared memory (tests/cuda counts instructions);
// none is measured. They change the order of sums.
#pragma once
#include <cstdint>

namespace dyc::cuda {

// ---- products: tiles that a thread block makes, in elements, and what a thread has of them
constexpr int kTile = 32;        // along each side, in kernels/matmul.cu
constexpr int kSmallTile = 16;   // likewise, where there are few tiles: elements are summed in the same order
constexpr int kSmallStages = 3;  // parts of a small tile's factors in shared memory at once
constexpr int kDepth = 16;       // of the inner index that a group has in shared memory at once
// kernels/few_columns.cu, for products of at most kMostFewColumns.
constexpr int kFewColumns = 8, kMostFewColumns = 16, kFewRows = 32;
constexpr int kRowsEach = 4;  // of a thread
// kernels/large_products.cu: threads are a square, and each has 8 x 4 elements.
constexpr int kLargeDepth = 16;  // of the inner index, in shared memory at once
// device/persistent_product.h: rows and columns of a warp.
constexpr int kWarpRows = 2, kWarpColumns = 4;

constexpr uint32_t kMostFollowers = 24;  // of a product: computed one after the other

// ---- nodes that warps share
constexpr int64_t kShareElements = 4;  // of the result for each thread, on average at least

// ---- updates
constexpr int64_t kSquares = 2048;  // elements of a chunk whose squares are added up by one warp

// ---- waiting
constexpr unsigned kPollPause = 40;  // nanoseconds between two looks at a barrier

}  // namespace dyc::cuda
