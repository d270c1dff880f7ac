// LaunchArgs::extra of the kernels for products and of kernels/memory.cu.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cuda/abi/launch_args.h"
#include "cuda/abi/tuning.h"

namespace dyc::cuda {

// Columns: element i of column j is base[(index ? index[j] : j * stride) + i].
template <class F>
struct Matrix {
  F* base;
  const int64_t* index;
  int64_t stride;
};

// Sum over k < inner of A(i, k) B(k, j). Which of the two indices of A and B counts columns is up to the
// kernel.
struct Term {
  Matrix<const float> a, b;
  int64_t inner;
};

// An element-wise op of columns, computed by the thread that has made an element of a product. Forward: to =
// f(x, y). Backward: to += dz times the slope of f by x, or by y, where z = f(x, y). What has no base is not
// read, or is what the product, or the follower before, made there.
struct Follower {
  enum Kind : uint32_t { forward, backward, backward_second } kind;
  uint32_t op;  // number from 1 in Followers
  float attr;
  Matrix<float> to;
  Matrix<const float> x, y, z, dz;
};

// C = start + sum of terms, m x n; without a start, C += sum of terms, or C += term for each of them.
struct Product {
  Matrix<float> c;
  Matrix<const float> start;
  enum Begin : uint32_t { zero, begin_at, add, add_each } begin;
  uint32_t first, terms;  // in Products::terms
  uint32_t tile;          // tiles of the products before
  int64_t m, n;
  uint32_t follower_count = 0;
  const Follower* followers = nullptr;  // in this order
};

struct alignas(16) Products {
  const Product* products;
  const Term* terms;
  uint32_t count, tiles;
  uint32_t each;  // tiles_of_each()
};

// A launch of products is described by one record: LaunchArgs, Products, then all products and all terms. A
// block reads the first kHeadBytes from Products on at once, also where the record is shorter.
constexpr size_t kProductsAt = (sizeof(LaunchArgs) + 15) / 16 * 16, kHeadBytes = 2048;
constexpr size_t record_bytes(size_t products, size_t terms) {
  return kProductsAt + sizeof(Products) + products * sizeof(Product) + terms * sizeof(Term);
}
DYC_INLINE const Products* products_of(const LaunchArgs* args) {
  return reinterpret_cast<const Products*>(reinterpret_cast<const char*>(args) + kProductsAt);
}

// Tiles of each product, where all have as many; else 0.
constexpr uint32_t tiles_of_each(const Product* products, uint32_t count, uint32_t tiles) {
  const uint32_t each = count ? tiles / count : 0;
  for (uint32_t i = 0; i < count; ++i)
    if (products[i].tile != i * each) return 0;
  return each * count == tiles ? each : 0;
}

// The tile of kernels/large_products.cu.
constexpr int large_side(uint32_t threads) { return threads == 256 ? 16 : 8; }
constexpr int large_rows(uint32_t threads) { return 8 * large_side(threads); }
constexpr int large_columns(uint32_t threads) { return 4 * large_side(threads); }

// Sums of segments of memory in a fixed order: to[targets[s] + e] += sum over k of from[sources[k] + e], for
// starts[s] <= k < starts[s + 1] and e < length(s). Where a target is fresh it has no contents yet.
struct Segments {
  float* to;
  const float* from;
  const int64_t* targets;
  const int64_t* sources;
  const uint32_t* starts;
  const int64_t* ends;   // lengths of all segments up to and with this one
  const uint8_t* fresh;  // null: none is
  uint32_t count;
};

}  // namespace dyc::cuda
