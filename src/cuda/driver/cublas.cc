#include "cuda/driver/cublas.h"

#include <dlfcn.h>

#include "base/error.h"
#include "cuda/driver/tuning.h"

namespace dyc::cuda {

namespace {

std::string words(Status status) {
  switch (status) {
    case 1:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case 8:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case 13:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case 14:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case 15:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return text("cuBLAS status ", status);
  }
}

}  // namespace

Cublas::Cublas(const std::string& path, const Calls& calls, Pool& pool, Stream stream, int architecture)
    : calls_(calls), pool_(pool), stream_(stream) {
  load(path);
  if (const Status s = create_(&handle_)) throw RuntimeError(text(path, ": cublasCreate_v2: ", words(s)));
  try {
    start(architecture);
    int version = 0;
    get_version_(handle_, &version);
    name_ = text("cuBLAS ", version, ", ", path);
  } catch (...) {
    destroy_(handle_);
    if (workspace_) pool_.release(workspace_);
    throw;
  }
}

// What is used is not unloaded: the library keeps state of the process.
void Cublas::load(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* const reason = dlerror();
    throw RuntimeError(reason ? reason : path);
  }
  const auto find = [&](const char* symbol) {
    void* const address = dlsym(library, symbol);
    if (!address) throw RuntimeError(text(path, " has no ", symbol));
    return address;
  };
#define DYC_FIND(member, symbol, ...) member##_ = reinterpret_cast<Status (*)(__VA_ARGS__)>(find(symbol));
  DYC_CUBLAS(DYC_FIND)
#undef DYC_FIND
}

// The workspace comes after the stream, which takes it away. With one of our own the library asks for no
// memory while it computes, and gives the same sums each time.
void Cublas::start(int architecture) {
  const size_t bytes = architecture >= 90 ? tuning::kWorkspace : tuning::kOldWorkspace;
  const auto check = [](Status s, const char* function) {
    if (s) throw RuntimeError(text(function, ": ", words(s)));
  };
  workspace_ = pool_.allocate(bytes);
  check(set_stream_(handle_, stream_), "cublasSetStream_v2");
  check(set_workspace_(handle_, reinterpret_cast<void*>(workspace_), bytes), "cublasSetWorkspace_v2");
  check(set_math_(handle_, kFloat32Only), "cublasSetMathMode");
}

Cublas::~Cublas() {
  if (calls_.lost()) return;  // nothing can be given back
  destroy_(handle_);
  pool_.release(workspace_);
}

void Cublas::gemm(const Gemm& g) const {
  const float one = 1.f, beta = g.add ? 1.f : 0.f;
  const auto whole = [](int64_t n) { return static_cast<int>(n); };
  const auto turn = [](const Gemm::Factor& f) { return f.transposed ? kTransposed : kNotTransposed; };
  const auto at = [](uint64_t address) { return reinterpret_cast<float*>(address); };
  const int compute = g.precision == Precision::bf16 ? kComputeFastBf16 : kComputeFastTf32;
  const Status s =
      g.precision == Precision::float32
          ? sgemm_(handle_, turn(g.a), turn(g.b), whole(g.m), whole(g.n), whole(g.inner), &one, at(g.a.at),
                   whole(g.a.stride), at(g.b.at), whole(g.b.stride), &beta, at(g.c), whole(g.c_stride))
          : gemm_ex_(handle_, turn(g.a), turn(g.b), whole(g.m), whole(g.n), whole(g.inner), &one, at(g.a.at),
                     kOfFloat32, whole(g.a.stride), at(g.b.at), kOfFloat32, whole(g.b.stride), &beta, at(g.c),
                     kOfFloat32, whole(g.c_stride), compute, kDefaultAlgorithm);
  if (!s) return;
  calls_.check(calls_.cuda.stream_wait(stream_), "running kernels");  // what went wrong before comes first
  constexpr Status kNoMemory = 3;
  const std::string message =
      text(calls_.device(), ": ", name_, " cannot make a product of ", g.m, " x ", g.inner, " and ", g.inner,
           " x ", g.n, ": ", words(s), "; DYNET_COMPAT_CUBLAS=0 does without cuBLAS");
  if (s == kNoMemory) throw MemoryError(message);
  throw RuntimeError(message);
}

}  // namespace dyc::cuda
