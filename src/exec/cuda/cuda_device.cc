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

constexpr size_t kMostTasks = 96;   // of one walk: more take long to compile
constexpr uint32_t kWalkAfter = 3;  // launches one by one
constexpr size_t kMostWishes = 256;
constexpr size_t kMostRefusals = 3;  // of walks: then there are none in this process

// Of ascending tasks.
bool contains(const std::vector<uint32_t>& all, const std::vector<uint32_t>& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

// The kernel of a row in one of kernels/.
cuda::KernelName name_of_row(OpId op, uint32_t way) {
  const std::string row = "<Row<" + std::to_string(op) + ">";
  const bool forward = way == cuda::kForward;
  switch (op_info(op).meta->kind) {
    case OpKind::unary:
      return {"elementwise", (forward ? "unary_forward" : "unary_backward") + row + ">"};
    case OpKind::binary:
      if (forward) return {"elementwise", "binary_forward" + row + ">"};
      return {"elementwise", "binary_backward" + row + (way == cuda::kBackward ? ", 0>" : ", 1>")};
    case OpKind::per_node:
      return {"per_node", (forward ? "member_forward" : "member_backward") + row + ">"};
    case OpKind::custom:
      return {"custom", (forward ? "structured_forward" : "structured_backward") + row + ">"};
    default:
      throw RuntimeError(text("internal error: ", op_info(op).meta->name, " has no kernel of its own"));
  }
}

cuda::KernelName name_of(uint32_t task) {
  if (task < kOps * cuda::kWays)
    return name_of_row(static_cast<OpId>(task / cuda::kWays), task % cuda::kWays);
  switch (task - kOps * cuda::kWays) {
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
    case cuda::kResidentWx:
      return {"persistent_weights", "resident_product<true>"};
    case cuda::kResidentWdy:
      return {"persistent_weights", "resident_product<false>"};
    case cuda::kArgmax:
      return {"argmax", "argmax"};
    case cuda::kSumSquares:
      return {"updates", "squares"};
    case cuda::kTotalSquares:
      return {"updates", "total"};
    default: {
      const uint32_t rule = task - kOps * cuda::kWays - cuda::kUpdate;
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

bool CudaDevice::walks(uint32_t task) {
  if (task >= kOps * cuda::kWays) return task - kOps * cuda::kWays <= cuda::kLastWalking;
  return op_info(static_cast<OpId>(task / cuda::kWays)).meta->kind != OpKind::custom;
}

void CudaDevice::prepare(const std::vector<uint32_t>& tasks) {
  kernels_.resize(kOps * cuda::kWays + cuda::kTasks, nullptr);
  std::vector<cuda::KernelName> names;
  std::vector<uint32_t> fresh;
  for (const uint32_t t : tasks) {
    if (kernels_[t] || std::find(fresh.begin(), fresh.end(), t) != fresh.end()) continue;
    fresh.push_back(t);
    names.push_back(name_of(t));
  }
  if (names.empty()) return;
  backend_->prepare(names);
  for (size_t i = 0; i < fresh.size(); ++i) kernels_[fresh[i]] = backend_->kernel(names[i]);
}

// ---------------------------------------------------------------- walks

CudaDevice::WalkKernel* CudaDevice::walk_kernel(const std::vector<uint32_t>& tasks) {
  for (WalkKernel& w : walks_)
    if (contains(w.tasks, tasks)) return &w;
  return nullptr;
}

bool CudaDevice::walk_wanted(const std::vector<uint32_t>& tasks) {
  if (walk_kernel(tasks)) return true;
  // Which of its tasks was at fault is not known: neither a part of what failed, nor all of it with more.
  if (refused_.size() >= kMostRefusals || !backend_->limits().together) return false;
  for (const auto& r : refused_)
    if (contains(r, tasks) || contains(tasks, r)) return false;
  auto wish = std::find_if(wishes_.begin(), wishes_.end(), [&](const Wish& w) { return w.tasks == tasks; });
  if (wish == wishes_.end()) {
    if (wishes_.size() == kMostWishes) wishes_.clear();
    wish = wishes_.insert(wishes_.end(), {tasks, 0});
  }
  return ++wish->asked >= (walk_after ? walk_after : emulated() ? 1 : kWalkAfter);
}

void CudaDevice::prepare_walks(const std::vector<std::vector<uint32_t>>& walks) {
  std::vector<uint32_t> all;  // one kernel for what all these walks, those to come and the last one do
  const auto add = [&all](const std::vector<uint32_t>& tasks) {
    all.insert(all.end(), tasks.begin(), tasks.end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
  };
  for (const auto& walk : walks)
    if (!walk_kernel(walk)) add(walk);
  if (all.empty()) return;
  for (const Wish& wish : wishes_)
    if (all.size() + wish.tasks.size() <= kMostTasks) add(wish.tasks);
  if (!walks_.empty() && walks_.back().tasks.size() + all.size() <= kMostTasks) add(walks_.back().tasks);
  wishes_.clear();
  try {
    compile_walk(all);
  } catch (const Error& e) {
    if (backend_->lost()) throw;
    refuse_walk(all, e.what());
  }
}

void CudaDevice::compile_walk(const std::vector<uint32_t>& tasks) {
  std::string list;
  if (!emulated())
    for (const uint32_t t : tasks) list += (list.empty() ? "" : ", ") + std::to_string(t);
  const cuda::Backend::Kernel kernel = backend_->kernel({"persistent", "walk<" + list + ">"});
  const uint32_t blocks = backend_->resident_blocks(kernel, threads_, 0);
  if (blocks == 0) throw RuntimeError("no block of it fits on the device");
  walks_.push_back({tasks, kernel, blocks});
}

bool CudaDevice::fits(WalkKernel& walk, uint32_t blocks, size_t shared_bytes) {
  constexpr size_t kMost = 64;  // sizes
  for (const auto& [bytes, most] : walk.with_memory)
    if (bytes == shared_bytes) return most >= blocks;
  try {
    const uint32_t most =
        backend_->resident_blocks(walk.kernel, threads_, static_cast<uint32_t>(shared_bytes));
    if (walk.with_memory.size() == kMost) walk.with_memory.clear();
    walk.with_memory.emplace_back(shared_bytes, most);
    return most >= blocks;
  } catch (const Error&) {  // less shared memory than the device told of
    if (backend_->lost()) throw;
    return false;
  }
}

void CudaDevice::refuse_walk(const std::vector<uint32_t>& tasks, const std::string& why) {
  refused_.push_back(tasks);
  for (const WalkKernel& w : walks_)
    if (contains(w.tasks, tasks)) refused_.back() = w.tasks;
  std::erase_if(walks_, [&](const WalkKernel& w) { return contains(w.tasks, tasks); });
  if (refused_.size() == 1)
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
