// Which variant computes a product: one of our kernels, or NVIDIA's library.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace dyc::cuda {

enum class ProductKind : uint8_t { wx, wdy, dyx };  // W x; W' dy; dy x'
enum class MatmulVariant : uint8_t { few, middle, large, library };
constexpr int kMatmulVariants = 4;
constexpr const char* kMatmulVariantNames[kMatmulVariants] = {"few", "middle", "large", "library"};

// What factors of large products are rounded to, for tensor cores; sums are float32.
enum class Precision : uint8_t { float32, tf32, bf16 };
constexpr int kPrecisions = 3;
constexpr const char* kPrecisionNames[kPrecisions] = {"float32", "tf32", "bf16"};
constexpr int kTensorArchitecture = 80;  // the first that can

struct ProductFacts {
  int64_t m, n;          // of C
  int64_t inner;         // of all terms
  bool plain;            // the library can read all operands, and write C
  int64_t gathered = 0;  // floats that must be copied for it first
};

struct ProductDevice {
  uint32_t processors, threads;  // threads: of a block
  bool has_gemm;                 // is there a library?
  int forced = -1;               // the variant to use wherever it can be; -1: the fastest by the rule
};

// The variant of each product of a list, which run at the same time.
std::vector<MatmulVariant> matmul_variants(ProductKind kind, std::span<const ProductFacts> list,
                                           const ProductDevice& device);

// Tiles of a product.
int64_t tiles_of(MatmulVariant variant, const ProductFacts& p, uint32_t threads);

}  // namespace dyc::cuda
