#include "exec/cuda/cuda_device.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "exec/cuda/parameters.h"
#include "exec/cuda/tuning.h"

namespace dyc {

namespace {

double megabytes(size_t bytes) { return std::round(static_cast<double>(bytes) / 104857.6) / 10; }

// The kernel of a row in one of kernels/.
cuda::KernelName kernel_of_op(OpId op, uint32_t variant) {
  const std::string row = "<OpById<" + std::to_string(op) + ">";
  const bool forward = variant == cuda::kForward;
  switch (op_info(op).meta->kind) {
    case OpKind::unary:
      return {"elementwise", (forward ? "unary_forward" : "unary_backward") + row + ">"};
    case OpKind::binary:
      if (forward) return {"elementwise", "binary_forward" + row + ">"};
      return {"elementwise", "binary_backward" + row + (variant == cuda::kBackward ? ", 0>" : ", 1>")};
    case OpKind::per_node:
      return {"per_node", (forward ? "node_forward" : "node_backward") + row + ">"};
    case OpKind::custom:
      return {"custom", (forward ? "custom_forward" : "custom_backward") + row + ">"};
    default:
      throw RuntimeError(text("internal error: ", op_info(op).meta->name, " has no kernel of its own"));
  }
}

// Of one of cuda::KernelId's that begin at `first`, one for each ProductKind.
cuda::KernelName large_product(uint32_t other, cuda::KernelId first, const char* sums) {
  const char* const kinds[] = {"true, false", "false, false", "true, true"};
  return {"large_products", text("large_product<", kinds[other - first], sums, ">")};
}

cuda::KernelName name_of(uint32_t kernel_id) {
  if (kernel_id < kOps * cuda::kPasses)
    return kernel_of_op(static_cast<OpId>(kernel_id / cuda::kPasses), kernel_id % cuda::kPasses);
  switch (kernel_id - kOps * cuda::kPasses) {
    case cuda::kProductWx:
      return {"matmul", "product<true, false>"};
    case cuda::kProductWdy:
      return {"matmul", "product<false, false>"};
    case cuda::kProductDyx:
      return {"matmul", "product<true, true>"};
    case cuda::kSmallProductWx:
      return {"matmul", "product<true, false, kSmallTile>"};
    case cuda::kSmallProductWdy:
      return {"matmul", "product<false, false, kSmallTile>"};
    case cuda::kSmallProductDyx:
      return {"matmul", "product<true, true, kSmallTile>"};
    case cuda::kLargeProductWx:
    case cuda::kLargeProductWdy:
    case cuda::kLargeProductDyx:
      return large_product(kernel_id - kOps * cuda::kPasses, cuda::kLargeProductWx, "");
    case cuda::kTf32ProductWx:
    case cuda::kTf32ProductWdy:
    case cuda::kTf32ProductDyx:
      return large_product(kernel_id - kOps * cuda::kPasses, cuda::kTf32ProductWx, ", TensorSums<Tf32>");
    case cuda::kBf16ProductWx:
    case cuda::kBf16ProductWdy:
    case cuda::kBf16ProductDyx:
      return large_product(kernel_id - kOps * cuda::kPasses, cuda::kBf16ProductWx, ", TensorSums<Bf16>");
    case cuda::kFewColumnsWx:
      return {"few_columns", "few_columns<true>"};
    case cuda::kFewColumnsWdy:
      return {"few_columns", "few_columns<false>"};
    case cuda::kAddFew:
      return {"memory", "add_few"};
    case cuda::kAddMany:
      return {"memory", "add_many"};
    case cuda::kLookupForward:
      return {"lookup", "lookup_forward"};
    case cuda::kGather:
      return {"memory", "gather"};
    case cuda::kArgmax:
      return {"argmax", "argmax"};
    case cuda::kTakeArray:
      return {"exchange", "take_array"};
    case cuda::kSumSquares:
      return {"updates", "squares"};
    case cuda::kTotalSquares:
      return {"updates", "total"};
    default: {
      const uint32_t rule = kernel_id - kOps * cuda::kPasses - cuda::kUpdate;
      return {"updates", text("update<", rule / 2, rule % 2 ? ", true>" : ", false>")};
    }
  }
}

}  // namespace

void DeviceMutex::lock() {
  if (owner_ == std::this_thread::get_id())
    throw RuntimeError(
        "this thread is in the middle of a computation on the device: a signal handler, __del__ or the like, "
        "which runs while kernels are compiled, cannot use parameters or graphs");
  take(mutex_);
  owner_ = std::this_thread::get_id();
}

namespace {
std::shared_ptr<cuda::Allocator>& allocator_in_use() {
  static auto& allocator = *new std::shared_ptr<cuda::Allocator>;
  return allocator;
}
}  // namespace

void DeviceMemory::use_allocator(std::shared_ptr<cuda::Allocator> allocator) {
  allocator_in_use() = std::move(allocator);
}

void DeviceMemory::release() noexcept {
  if (!address_) return;
  if (allocator_) {
    backend_.disown(address_, shared_);
    allocator_->release(address_);
  } else {
    backend_.release(address_, shared_);
  }
  address_ = bytes_ = 0;
  allocator_.reset();
}

void DeviceMemory::reserve(size_t bytes, size_t kept) {
  if (bytes <= bytes_) return;
  const size_t wanted = std::max({bytes, 2 * bytes_, least_});
  if (kept == 0) release();
  const std::shared_ptr<cuda::Allocator> allocator = allocator_in_use();
  cuda::Backend::Address fresh = 0;
  size_t taken = wanted;
  for (size_t size = wanted; !fresh; size = bytes) {
    try {
      taken = size;
      fresh = allocator ? allocator->allocate(size) : backend_.allocate(size);
    } catch (const MemoryError& e) {
      if (size > bytes) continue;
      throw MemoryError(text("out of memory on the device: ", name_, ", requested ", megabytes(bytes),
                             " MB, in use ", megabytes(bytes_), " MB; ", e.what()));
    }
  }
  if (allocator) backend_.adopt(fresh, taken);
  if (address_) backend_.copy(fresh, address_, kept);
  release();
  address_ = fresh;
  bytes_ = taken;
  allocator_ = allocator;
}

CudaDevice::CudaDevice(std::unique_ptr<cuda::Backend> backend)
    : backend_(std::move(backend)),
      threads_(std::min(kThreads, backend_->limits().threads)),
      most_blocks_(backend_->limits().processors * kBlocksPerProcessor),
      persistent_kernels_({"persistent", "persistent kernels", true}, *backend_, options, threads_),
      chain_kernels_({"chain", "chains of launches", false}, *backend_, options, threads_),
      choices_(*backend_, options),
      parameters_(std::make_unique<CudaParameters>(*this)) {}

CudaDevice::~CudaDevice() = default;

std::string CudaDevice::kernel_name(uint32_t kernel_id) {
  const cuda::KernelName name = name_of(kernel_id);
  return name.file + ": " + name.expression;
}

void CudaDevice::prepare(const std::vector<uint32_t>& kernel_ids) {
  kernels_.resize(kOps * cuda::kPasses + cuda::kKernelIds, nullptr);
  std::vector<cuda::KernelName> names;
  std::vector<uint32_t> fresh;
  for (const uint32_t t : kernel_ids) {
    if (kernels_[t] || std::find(fresh.begin(), fresh.end(), t) != fresh.end()) continue;
    fresh.push_back(t);
    names.push_back(name_of(t));
  }
  if (names.empty()) return;
  backend_->prepare(names);
  for (size_t i = 0; i < fresh.size(); ++i) kernels_[fresh[i]] = backend_->kernel(names[i]);
}

void CudaDevice::rethrow() {
  try {
    throw;
  } catch (const RuntimeError& e) {
    if (!backend_->lost()) throw;
    throw RuntimeError(text(e.what(), ". ", parameters_->loss()));
  }
}

}  // namespace dyc
