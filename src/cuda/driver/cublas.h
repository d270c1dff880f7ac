// cuBLAS as far as it is used here: large products of float32. Found at run time, like the driver
// (libcuda.h); without it our own kernels make all products. Declarations are our own, after NVIDIA's
// documentation.
#pragma once
#include <cstddef>
#include <string>

#include "cuda/driver/driver.h"

namespace dyc::cuda {

using Status = int;  // cublasStatus_t; 0 is success
using CublasHandle = struct CublasTag*;

constexpr int kFloat32Only = 0;  // CUBLAS_DEFAULT_MATH: no TF32
constexpr int kNotTransposed = 0, kTransposed = 1;
constexpr int kOfFloat32 = 0;                                // CUDA_R_32F
constexpr int kComputeFastBf16 = 75, kComputeFastTf32 = 77;  // CUBLAS_COMPUTE_32F_FAST_16BF, _FAST_TF32
constexpr int kDefaultAlgorithm = -1;                        // CUBLAS_GEMM_DEFAULT

// X(member, symbol, parameters...)
#define DYC_CUBLAS(X)                                                                                    \
  X(create, "cublasCreate_v2", CublasHandle* handle)                                                     \
  X(destroy, "cublasDestroy_v2", CublasHandle handle)                                                    \
  X(get_version, "cublasGetVersion_v2", CublasHandle handle, int* version)                               \
  X(set_stream, "cublasSetStream_v2", CublasHandle handle, Stream stream)                                \
  X(set_workspace, "cublasSetWorkspace_v2", CublasHandle handle, void* memory, size_t bytes)             \
  X(set_math, "cublasSetMathMode", CublasHandle handle, int mode)                                        \
  X(sgemm, "cublasSgemm_v2", CublasHandle handle, int transpose_a, int transpose_b, int m, int n, int k, \
    const float* alpha, const float* a, int a_stride, const float* b, int b_stride, const float* beta,   \
    float* c, int c_stride)                                                                              \
  X(gemm_ex, "cublasGemmEx", CublasHandle handle, int transpose_a, int transpose_b, int m, int n, int k, \
    const void* alpha, const void* a, int a_type, int a_stride, const void* b, int b_type, int b_stride, \
    const void* beta, void* c, int c_type, int c_stride, int compute, int algorithm)

// The library for one stream. Its functions are called with the stream's context current.
class Cublas {
 public:
  // Throws RuntimeError, or MemoryError, that says why the library at `path` cannot be used.
  Cublas(const std::string& path, const Calls& calls, Pool& pool, Stream stream, int architecture);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  // Throws RuntimeError.
  void gemm(const Gemm& product) const;
  const std::string& name() const { return name_; }  // version and path

 private:
  void load(const std::string& path);
  void start(int architecture);

#define DYC_MEMBER(member, symbol, ...) Status (*member##_)(__VA_ARGS__) = nullptr;
  DYC_CUBLAS(DYC_MEMBER)
#undef DYC_MEMBER
  const Calls& calls_;
  Pool& pool_;
  Stream stream_;
  CublasHandle handle_ = nullptr;
  Address workspace_ = 0;
  std::string name_;
};

}  // namespace dyc::cuda
