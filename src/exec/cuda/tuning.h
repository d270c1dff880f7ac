// Numbers that decide how launches on a CUDA device are grouped, divided and copied. Chosen by reasoning
// for an H100-class device: 3 TB/s, 20 TFLOPS of float32, and what was measured on an H100: 3.0 us of the
// host for a launch, 1.8 us for a kernel of a graph, 1.3 us for a step of a chain, 1.1 us for one of a
// persistent kernel, 5.6 us where it waits for all blocks and makes a product of 256 x 256
// (benchmarks/gpu_model.py). Other values of these numbers were not tried.
// kKeepColumns, and those of gradients and of products in parts, change the order of sums; kNodeScratch does
// where it limits the number of parts. The others change no result.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cuda/abi/tuning.h"

namespace dyc {

// ---- copies to the host
constexpr int64_t kFetchWhole = 1 << 14;  // floats; a launch up to this size is downloaded whole: one latency
constexpr int64_t kFetchGap = 64;         // floats between two ranges that are downloaded as one
constexpr int64_t kResultGap = 1 << 12;   // the same between results of a launch, which are all there: it
                                          // takes less time than another download
constexpr int64_t kArgmaxLeast = 1 << 12;  // floats of a launch, below which indices take as long as values

// ---- memory
constexpr size_t kDeviceAlign = 256;               // bytes, as cudaMalloc aligns
constexpr size_t kFirstChunk = size_t{1} << 16;    // bytes that a pool, or memory that grows, has at first
constexpr size_t kNodeScratch = size_t{64} << 20;  // bytes of scratch memory of one launch or list
                                                   // of products, at most
constexpr size_t kForgetEach = 256;  // parameters that are checked for dead ones each time; more once doubled

// ---- grids
constexpr uint32_t kThreads = 256;            // of a block
constexpr uint32_t kBlocksPerProcessor = 16;  // more than fit at once, so that none waits long for the last
constexpr uint32_t kWarpThreads = 32;         // threads that share a node, or a long sum

// ---- products that are made in parts, by their inner index: so many parts per multiprocessor, where that
// makes none too short for its tile or too long for its sum
constexpr int64_t kLeastPart = 512, kMostPart = 2048, kPartsPerProcessor = 4;
constexpr int64_t kPartStep = 64;  // inner indices that kernels/matmul.cu multiplies at once

// ---- gradients
constexpr int64_t kManyElements = 1 << 14;  // of sums: a thread for each is enough for the device
constexpr uint32_t kFewNodes = 32;          // nodes that one thread may add up one after the other
constexpr size_t kManySources = 16;         // per target, on average: worth a warp for each element

// ---- persistent kernels
constexpr size_t kPersistentSteps = 3;       // fewer launches are not joined
constexpr uint32_t kPersistentBlocks = 2;    // blocks per multiprocessor of a launch that may be a step
constexpr uint32_t kPersistentRequests = 3;  // flushes with the same steps before a kernel is compiled
constexpr size_t kPersistentKernelIds = 96;  // of one kernel: more take NVRTC too long
constexpr size_t kPersistentFailures = 3;    // then none is compiled in this process
constexpr size_t kCompileRequests = 256;     // remembered
constexpr size_t kOccupancyAnswers = 64;     // of the driver, remembered per kernel

// ---- launches that are part of others
constexpr size_t kAddedAtOnce = 32;     // products: each is compared with all before it
constexpr size_t kRecentProducts = 64;  // among which the one is looked for that an element-wise op reads
constexpr size_t kLinkFloats = 1024;  // of an instance: more would keep its block busy while others are idle

// ---- weights kept in shared memory
constexpr size_t kStaticShared = 48 << 10;               // bytes that the bodies of other steps may declare
constexpr int64_t kKeepColumns = cuda::kMostFewColumns;  // of a product: each block reads all of them, and
                                                         // kernels/matmul.cu adds up in another order
constexpr uint32_t kKeepUses = 3;         // steps that read a weight: fewer do not make up for loading it
constexpr int64_t kKeepElements = 64;     // of a result per block: 2 x 4 for each of 8 warps
constexpr int64_t kKeepGroups = 8;        // row groups of one block: more would leave blocks idle
constexpr uint32_t kSlicedNodes = 64;     // of a launch whose rows are sliced
constexpr size_t kSlicedSegments = 64;    // of a sum whose rows are sliced
constexpr size_t kBarrierFreeSteps = 64;  // of a run: each step is compared with all before it

// ---- CUDA graphs
constexpr size_t kGraphLeast = 8, kGraphMost = 2048;  // operations: a graph takes the host as long as three
                                                      // or four launches, and device memory per operation

// ---- ways of running a command list, for each set of kernels
constexpr uint32_t kWarmRuns = 1, kTimedRuns = 3;  // of each way
constexpr uint32_t kGraphQuestions = 64;           // lists that were no graph: then none is expected

}  // namespace dyc
