// cuBLAS without a GPU, for tests: part of the library of fake_libcuda.cc, whose stream, memory and faults it
// shares. It refuses what cuBLAS would refuse, and what would not be float32 or would ask for memory.
#include <cstdint>
#include <functional>

int fake_enter(const char* name);
bool fake_inside(uint64_t at, size_t bytes);
void fake_later(std::function<int()> work);

namespace {

enum { kNotInitialised = 1, kInvalid = 7, kNotSupported = 15 };
enum { kFloat32 = 68, kFastBf16 = 75, kFastTf32 = 77 };  // what is computed in: cublasComputeType_t
constexpr int64_t kMostMultiplied = 1 << 20;             // larger products are checked and left out

struct Handle {
  void* stream = nullptr;
  uint64_t workspace = 0;
  size_t bytes = 0;
  int math = -1;
};
int handles = 0;
struct Call {
  int turn_a, turn_b, m, n, k;
  int compute;
} last;

}  // namespace

#define API extern "C" __attribute__((visibility("default")))
#define ENTER(name) \
  if (const int fault = fake_enter(name)) return fault;

API int fake_handles() { return handles; }
// Of the last product: transposes, m, n, k; what it was computed in.
API void fake_last_product(int* numbers) {
  const int all[] = {last.turn_a, last.turn_b, last.m, last.n, last.k, last.compute};
  for (int i = 0; i < 6; ++i) numbers[i] = all[i];
}

API int cublasCreate_v2(Handle** handle) {
  ENTER("cublasCreate_v2")
  *handle = new Handle;
  ++handles;
  return 0;
}
API int cublasDestroy_v2(Handle* handle) {
  ENTER("cublasDestroy_v2")
  delete handle;
  --handles;
  return 0;
}
API int cublasGetVersion_v2(Handle*, int* version) {
  ENTER("cublasGetVersion_v2")
  *version = 130002;
  return 0;
}
API int cublasGetProperty(int which, int* value) {
  const int version[] = {13, 0, 2};
  *value = version[which];
  return 0;
}
API int cublasSetStream_v2(Handle* handle, void* stream) {
  ENTER("cublasSetStream_v2")
  handle->stream = stream;
  handle->workspace = 0;  // as cuBLAS does
  return 0;
}
API int cublasSetWorkspace_v2(Handle* handle, void* memory, size_t bytes) {
  ENTER("cublasSetWorkspace_v2")
  handle->workspace = reinterpret_cast<uint64_t>(memory);
  handle->bytes = bytes;
  return fake_inside(handle->workspace, bytes) ? 0 : kInvalid;
}
API int cublasSetMathMode(Handle* handle, int mode) {
  ENTER("cublasSetMathMode")
  handle->math = mode;
  return 0;
}

namespace {

int multiply(Handle* handle, int turn_a, int turn_b, int m, int n, int k, float alpha, const float* a,
             int a_stride, const float* b, int b_stride, float scale, float* c, int c_stride, int compute) {
  if (!handle || !handle->stream) return kNotInitialised;
  if (handle->math != 0 || !handle->workspace || alpha != 1) return kNotSupported;  // TF32; memory of its own
  const auto lies = [](const void* at, int64_t stride, int64_t high, int64_t wide) {
    const size_t floats = static_cast<size_t>((wide - 1) * stride + high);
    return stride >= high && fake_inside(reinterpret_cast<uint64_t>(at), floats * sizeof(float));
  };
  if (m < 1 || n < 1 || k < 1 || !lies(a, a_stride, turn_a ? k : m, turn_a ? m : k) ||
      !lies(b, b_stride, turn_b ? n : k, turn_b ? k : n) || !lies(c, c_stride, m, n))
    return kInvalid;
  last = {turn_a, turn_b, m, n, k, compute};
  if (int64_t{m} * n * k > kMostMultiplied) return 0;
  fake_later([=] {
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < m; ++i) {
        float sum = 0;
        for (int64_t x = 0; x < k; ++x)
          sum += a[turn_a ? i * a_stride + x : x * a_stride + i] *
                 b[turn_b ? x * b_stride + j : j * b_stride + x];
        float& to = c[j * c_stride + i];
        to = (scale == 0 ? 0 : to) + sum;
      }
    return 0;
  });
  return 0;
}

}  // namespace

API int cublasSgemm_v2(Handle* handle, int turn_a, int turn_b, int m, int n, int k, const float* alpha,
                       const float* a, int a_stride, const float* b, int b_stride, const float* beta,
                       float* c, int c_stride) {
  ENTER("cublasSgemm_v2")
  return multiply(handle, turn_a, turn_b, m, n, k, *alpha, a, a_stride, b, b_stride, *beta, c, c_stride,
                  kFloat32);
}
// Of float32, with tensor cores or without; the sums here are those of float32 in each case.
API int cublasGemmEx(Handle* handle, int turn_a, int turn_b, int m, int n, int k, const void* alpha,
                     const void* a, int a_type, int a_stride, const void* b, int b_type, int b_stride,
                     const void* beta, void* c, int c_type, int c_stride, int compute, int algorithm) {
  ENTER("cublasGemmEx")
  if (a_type || b_type || c_type || algorithm != -1 || (compute != kFastTf32 && compute != kFastBf16))
    return kInvalid;
  const auto floats = [](const void* at) { return static_cast<const float*>(at); };
  return multiply(handle, turn_a, turn_b, m, n, k, *floats(alpha), floats(a), a_stride, floats(b), b_stride,
                  *floats(beta), static_cast<float*>(c), c_stride, compute);
}
