#include "exec/cuda/cuda_device.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>

#include "base/error.h"
#include "exec/cuda/parameters.h"

namespace dyc {

namespace {

constexpr uint32_t kThreads = 256;            // of a block
constexpr uint32_t kBlocksPerProcessor = 16;  // more than fit at once, so that none waits long for the last

double megabytes(size_t bytes) { return std::round(static_cast<double>(bytes) / 104857.6) / 10; }

constexpr size_t kMaxKernelIds = 96;      // of one walk: more take long to compile
constexpr uint32_t kPersistentAfter = 3;  // launches one by one
constexpr size_t kMaxRequests = 256;
constexpr size_t kMaxUnsupported = 3;  // of walks: then there are none in this process

// Of ascending tasks.
bool contains(const std::vector<uint32_t>& all, const std::vector<uint32_t>& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

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
    case cuda::kLargeProductWx:
      return {"large_products", "large_product<true, false>"};
    case cuda::kLargeProductWdy:
      return {"large_products", "large_product<false, false>"};
    case cuda::kLargeProductDyx:
      return {"large_products", "large_product<true, true>"};
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
    case cuda::kPersistentWx:
      return {"persistent_weights", "persistent_product<true>"};
    case cuda::kPersistentWdy:
      return {"persistent_weights", "persistent_product<false>"};
    case cuda::kArgmax:
      return {"argmax", "argmax"};
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
        "this thread is in the midst of a computation on the device: a signal handler, __del__ or the like, "
        "which runs while kernels are compiled, cannot use parameters or graphs");
  take(mutex_);
  owner_ = std::this_thread::get_id();
}

void DeviceMemory::reserve(size_t bytes, size_t kept) {
  if (bytes <= bytes_) return;
  const size_t wish = std::max({bytes, 2 * bytes_, least_});
  if (kept == 0 && address_) {
    backend_.release(address_);
    address_ = bytes_ = 0;
  }
  cuda::Backend::Address fresh = 0;
  for (size_t size = wish; !fresh; size = bytes) {
    try {
      fresh = backend_.allocate(size);
      bytes_ = fresh ? size : bytes_;
    } catch (const MemoryError& e) {
      if (size > bytes) continue;
      throw MemoryError(text("out of memory on the device: ", name_, ", requested ", megabytes(bytes),
                             " MB, in use ", megabytes(bytes_), " MB; ", e.what()));
    }
  }
  if (address_) {
    backend_.copy(fresh, address_, kept);
    backend_.release(address_);
  }
  address_ = fresh;
}

CudaDevice::CudaDevice(std::unique_ptr<cuda::Backend> backend)
    : backend_(std::move(backend)),
      threads_(std::min(kThreads, backend_->limits().threads)),
      most_blocks_(backend_->limits().processors * kBlocksPerProcessor),
      parameters_(std::make_unique<CudaParameters>(*this)) {}

CudaDevice::~CudaDevice() = default;

bool CudaDevice::runs_in_persistent(uint32_t kernel_id) {
  if (kernel_id >= kOps * cuda::kPasses) return kernel_id - kOps * cuda::kPasses <= cuda::kLastPersistent;
  return op_info(static_cast<OpId>(kernel_id / cuda::kPasses)).meta->kind != OpKind::custom;
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

// ---------------------------------------------------------------- walks

CudaDevice::PersistentKernel* CudaDevice::persistent_kernel(const std::vector<uint32_t>& kernel_ids) {
  for (PersistentKernel& w : persistent_runs_)
    if (contains(w.kernel_ids, kernel_ids)) return &w;
  return nullptr;
}

bool CudaDevice::wants_persistent(const std::vector<uint32_t>& kernel_ids) {
  if (persistent_kernel(kernel_ids)) return true;
  // Which of its tasks was at fault is not known: neither a part of what failed, nor all of it with more.
  if (unsupported_.size() >= kMaxUnsupported || !backend_->limits().cooperative) return false;
  for (const auto& r : unsupported_)
    if (contains(r, kernel_ids) || contains(kernel_ids, r)) return false;
  auto wish = std::find_if(compile_requests_.begin(), compile_requests_.end(),
                           [&](const CompileRequest& w) { return w.kernel_ids == kernel_ids; });
  if (wish == compile_requests_.end()) {
    if (compile_requests_.size() == kMaxRequests) compile_requests_.clear();
    wish = compile_requests_.insert(compile_requests_.end(), {kernel_ids, 0});
  }
  return ++wish->asked >= (persistent_after ? persistent_after : emulated() ? 1 : kPersistentAfter);
}

void CudaDevice::prepare_persistent(const std::vector<std::vector<uint32_t>>& runs_in_persistent) {
  std::vector<uint32_t> all;  // one kernel for what all these walks, those to come and the last one do
  const auto add = [&all](const std::vector<uint32_t>& kernel_ids) {
    all.insert(all.end(), kernel_ids.begin(), kernel_ids.end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
  };
  for (const auto& walk : runs_in_persistent)
    if (!persistent_kernel(walk)) add(walk);
  if (all.empty()) return;
  for (const CompileRequest& wish : compile_requests_)
    if (all.size() + wish.kernel_ids.size() <= kMaxKernelIds) add(wish.kernel_ids);
  if (!persistent_runs_.empty() && persistent_runs_.back().kernel_ids.size() + all.size() <= kMaxKernelIds)
    add(persistent_runs_.back().kernel_ids);
  compile_requests_.clear();
  try {
    compile_persistent(all);
  } catch (const Error& e) {
    if (backend_->lost()) throw;
    mark_unsupported(all, e.what());
  }
}

void CudaDevice::compile_persistent(const std::vector<uint32_t>& kernel_ids) {
  std::string list;
  if (!emulated())
    for (const uint32_t t : kernel_ids) list += (list.empty() ? "" : ", ") + std::to_string(t);
  const cuda::Backend::Kernel kernel = backend_->kernel({"persistent", "persistent<" + list + ">"});
  const uint32_t blocks = backend_->active_blocks(kernel, threads_, 0);
  if (blocks == 0) throw RuntimeError("no block of it fits on the device");
  persistent_runs_.push_back({kernel_ids, kernel, blocks});
}

bool CudaDevice::fits(PersistentKernel& walk, uint32_t blocks, size_t shared_bytes) {
  constexpr size_t kMost = 64;  // sizes
  for (const auto& [bytes, most] : walk.with_memory)
    if (bytes == shared_bytes) return most >= blocks;
  try {
    const uint32_t most = backend_->active_blocks(walk.kernel, threads_, static_cast<uint32_t>(shared_bytes));
    if (walk.with_memory.size() == kMost) walk.with_memory.clear();
    walk.with_memory.emplace_back(shared_bytes, most);
    return most >= blocks;
  } catch (const Error&) {  // less shared memory than the device told of
    if (backend_->lost()) throw;
    return false;
  }
}

void CudaDevice::mark_unsupported(const std::vector<uint32_t>& kernel_ids, const std::string& why) {
  unsupported_.push_back(kernel_ids);
  for (const PersistentKernel& w : persistent_runs_)
    if (contains(w.kernel_ids, kernel_ids)) unsupported_.back() = w.kernel_ids;
  std::erase_if(persistent_runs_,
                [&](const PersistentKernel& w) { return contains(w.kernel_ids, kernel_ids); });
  if (unsupported_.size() == 1)
    std::cerr << text("[dynet] WARNING: many launches as one do not work here, they run one by one: ", why,
                      "\n");
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
