// Numbers that decide how kernels of one instruction set go through memory and registers. Found by trial
// while the kernels were written, for 32 KB and 1 MB of cache, where no line says otherwise; no measurements
// are kept. Blocks, pieces and chunks of sums change results in the last bit, the others change nothing.
#pragma once
#include "cpu/simd.h"

namespace dyc::DYC_ISA {

// ---- registers: tiles of independent sums that fit, in vectors of rows by columns
inline constexpr int kPanel = kManyRegisters ? 4 : 2;  // vectors of rows of packed products
inline constexpr int kTileCols = 6;                    // columns of packed products and convolutions
inline constexpr int kPanelRows = kPanel * kLanes;
// Vectors of rows for a tile of `cols` columns that are not packed.
template <int Cols>
inline constexpr int kTileRows = kManyRegisters ? (Cols <= 2 ? 8 : 4)
                                                : (Cols == 1   ? 8
                                                   : Cols <= 3 ? 4
                                                   : Cols == 4 ? 3
                                                               : 2);

inline constexpr int64_t kLine = 16;              // floats of a cache line
inline constexpr int64_t kStreamed = 384 * 1024;  // floats of columns that do not stay in the cache together

// ---- W x (gemm_nn.h)
inline constexpr int64_t kNnBlock = 64;          // terms of one chain of additions
inline constexpr int64_t kNnLong = 2048;         // terms of a piece of a longer sum
inline constexpr int64_t kNnLongColumns = 96;    // columns of such sums at a time
inline constexpr int64_t kFewRows = 8;           // of W: they fill no vector, so W is transposed first
inline constexpr int64_t kNnLarge = 512 * 1024;  // floats of W that are all over the memory
// Floats between columns that fall into the same few cache lines; with long runs, floats of so many columns
// that the second-level cache has no room for them either.
inline constexpr int64_t kNnCrowded = kManyRegisters ? 512 : 1024;
inline constexpr int64_t kNnCrowdedFloats = 256 * 1024;
inline constexpr int64_t kNnCopyShort = 4 * kNnBlock;         // inner index up to which more columns copy
inline constexpr int64_t kNnCopyCols = 80, kNnCopyLong = 47;  // columns up to which tiles copy W: short, long
inline constexpr bool kLongRuns = kPanelRows >= 64;           // a panel's rows of a column are 4 cache lines
inline constexpr int64_t kNnPacked = 96 * 1024;  // floats of W from which it is packed beforehand
inline constexpr int64_t kNnPackedCols = kManyRegisters ? 256 : 64;  // that read it, at least
inline constexpr int64_t kNnCacheFloats = 64 * 1024;    // of a pass: columns and W in the second-level cache
inline constexpr int64_t kNnPassCols = 16 * kTileCols;  // of a pass, at least
inline constexpr int64_t kNnPassRows = 64, kNnMostRows = 512;  // of a pass, at least and at most
// What a tile fetches: so many cache lines of each of the next columns, at most, and those of their results,
// unless tiles are so large that these arrive in time.
inline constexpr int64_t kNnFetch = 4;
inline constexpr bool kNnFetchesY = !kManyRegisters;
// W of at least so many floats is fetched so many columns ahead, where it is not copied.
inline constexpr int64_t kNnFetched = kManyRegisters ? 32 * 1024 : 8 * 1024, kNnAhead = 8;
// Few columns: so many are streamed, with kStreamK columns of W at a time.
inline constexpr int kStreamCols = 2;
template <int Cols> inline constexpr int kStreamK = Cols == 1 || kManyRegisters ? 8 : 6;

// ---- W' dy (gemm_tn.h)
inline constexpr int64_t kTnChunk = 2048, kTnPiece = 64 * kLanes;  // terms of a sum's chunks and pieces
inline constexpr int64_t kTnSumCols = 96;  // columns whose sums over the pieces are kept at a time
inline constexpr int kMostProducts = 16;   // in one sum
inline constexpr int kTnCols = kManyRegisters ? 6 : 3;
template <int Cols> inline constexpr int kTnRows = Cols == 1 || (kManyRegisters && Cols == 2) ? 8 : 4;
inline constexpr int64_t kTnCacheFloats = 96 * 1024;  // of W that a pass reads: second-level cache
inline constexpr int64_t kTnPassCols = 64;            // columns of W of a pass, at least
// Rows that products of one leg have together, at most.
inline constexpr int64_t kTnLegRows = kManyRegisters ? 512 : 1024;
// Columns are fetched ahead if W has at least so many floats, so that there is time to do so between two
// columns, and if there are more of them than kStreamed.
inline constexpr int64_t kTnSlow = 8 * 1024;
// Rows of W whose columns are fetched ahead: fewer stay in the cache, more are long runs.
inline constexpr int64_t kTnFetchedLeast = 65, kTnFetchedMost = 512;

// ---- dy x' (gemm_nt.h)
inline constexpr int64_t kNtBlock = 128, kNtLong = 2048;  // terms of a chain of additions, and of a piece
inline constexpr int kNtStreamCols = 8;  // columns up to which dW is streamed, which is all that takes time
// Blocks of columns are fetched ahead that have at most so many floats, if all have at least so many.
inline constexpr int64_t kNtFetched = 96 * 1024, kNtStreamed = 192 * 1024;
// Rows of such a dW up to which the last vectors of its columns are apart (AVX2 gains nothing).
inline constexpr int64_t kNtShortRows = kManyRegisters ? 4 * kLanes : 0;
// Of dW, at a time.
template <int N>
inline constexpr int kNtStreamK = kManyRegisters ? (N <= 4 ? 4 : 2)
                                                 : (N <= 2   ? 4
                                                    : N <= 4 ? 2
                                                             : 1);
// Columns of dW that read copies of dy and x often enough (if it has a single panel of rows, which reads
// those of x once), and columns of dy and floats of both from which they are copied.
inline constexpr int64_t kNtPackKs = 48, kNtPackKsOfPanel = 192;
inline constexpr int64_t kNtPackTerms = 16, kNtInCache = 5 * 1024;
// Columns of dy per row from which a dW of few rows is transposed (AVX-512: 8 rows break even at 3 to 4).
inline constexpr int64_t kNtAcrossCols = 4;

// ---- convolutions. Planes compute places that are no positions of the result, too, and waste that work.
// They are used where positions are at least 2/5 (forward) or 1/3 (backward) of the places.
inline constexpr int64_t kForwardPart = 2, kForwardWhole = 5, kBackwardWhole = 3;
inline constexpr int64_t kAcrossPart = 4,
                         kAcrossWhole = 5;  // places across, of those along: worth less regular reads
inline constexpr int64_t kTapBlock = 64;    // terms of one chain of additions: longer ones lose bits
inline constexpr int kDotRows = 4, kDotCols = kManyRegisters ? 6 : 3;  // tile of a filter's gradient
inline constexpr int64_t kMapPlaces = 2048;         // positions of items whose planes are laid out as one map
inline constexpr int64_t kMapFloats = 64 * 1024;    // floats of such a map, in the second-level cache
inline constexpr int64_t kPatchFloats = 96 * 1024;  // of patches and results, multiplied at once
inline constexpr int64_t kFewPatches = 24, kMostPatches = 1024;  // multiplied at once

// ---- sums
inline constexpr size_t kSlopeBlock = 16 * kLanes;  // slopes of a row that are computed before they are added
inline constexpr size_t kSquaresBlock = 2048;       // squares added in float; their sums are added in double

}  // namespace dyc::DYC_ISA
