#include "exec/cuda_device.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace dyc {

namespace {

constexpr uint32_t kUnknown = 0xffffffffu;
constexpr uint32_t kThreads = 256;            // of a block
constexpr uint32_t kBlocksPerProcessor = 16;  // more than fit at once, so that none waits long for the last

double megabytes(size_t bytes) { return std::round(static_cast<double>(bytes) / 104857.6) / 10; }

// The kernel of a row in one of kernels/.
cuda::KernelName name_of(OpId op, CudaDevice::Way way) {
  const std::string row = "<Row<" + std::to_string(op) + ">";
  const bool forward = way == CudaDevice::forward;
  switch (op_row(op).meta->form) {
    case Form::unary:
      return {"elementwise", (forward ? "unary_forward" : "unary_backward") + row + ">"};
    case Form::binary:
      if (forward) return {"elementwise", "binary_forward" + row + ">"};
      return {"elementwise", "binary_backward" + row + (way == CudaDevice::backward ? ", 0>" : ", 1>")};
    case Form::member:
      return {"members", (forward ? "member_forward" : "member_backward") + row + ">"};
    case Form::structured:
      return {"structured", (forward ? "structured_forward" : "structured_backward") + row + ">"};
    default:
      throw RuntimeError(text("internal error: ", op_row(op).meta->name, " has no kernel of its own"));
  }
}

}  // namespace

void DeviceMemory::reserve(size_t bytes, size_t kept) {
  if (bytes <= bytes_) return;
  const size_t wish = std::max({bytes, 2 * bytes_, size_t{1} << 16});
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
      most_blocks_(backend_->limits().processors * kBlocksPerProcessor) {}

uint32_t CudaDevice::number_of(const cuda::KernelName& name) {
  for (uint32_t i = 0; i < kernels_.size(); ++i)
    if (kernels_[i].name == name) return i;
  kernels_.push_back({name, nullptr});
  return static_cast<uint32_t>(kernels_.size() - 1);
}

uint32_t CudaDevice::number_of(OpId op, Way way) {
  if (rows_.empty()) rows_.assign(kOps, {kUnknown, kUnknown, kUnknown});
  uint32_t& number = rows_[op][way];
  if (number == kUnknown) number = number_of(name_of(op, way));
  return number;
}

void CudaDevice::prepare(const std::vector<uint32_t>& kernels) {
  std::vector<cuda::KernelName> names;
  for (const uint32_t k : kernels)
    if (!kernels_[k].kernel && std::find(names.begin(), names.end(), kernels_[k].name) == names.end())
      names.push_back(kernels_[k].name);
  if (names.empty()) return;
  backend_->prepare(names);
  for (const uint32_t k : kernels)
    if (!kernels_[k].kernel) kernels_[k].kernel = backend_->kernel(kernels_[k].name);
}

// Launches that wait to be submitted read what was asked for since the last ones were: that is not written
// over.
const float* CudaDevice::parameter(const std::shared_ptr<Storage>& storage, const float* values,
                                   uint64_t stamp, float factor) {
  Copies& copies = copies_[storage->uid];
  copies.storage = storage;
  Copy* copy = nullptr;
  for (Copy& c : copies.list) {
    const bool busy = c.turn == turn_;
    if (c.stamp == stamp && c.factor == factor && (stamp || busy)) {
      c.turn = turn_;
      return c.memory->at<float>();
    }
    if (!busy) copy = &c;
  }
  if (!copy) {
    copy = &copies.list.emplace_back();
    copy->memory = std::make_unique<DeviceMemory>(*backend_, "parameters");
  }
  const size_t bytes = storage->size() * sizeof(float);
  copy->stamp = 0;
  copy->turn = 0;
  copy->memory->reserve(bytes, 0);
  backend_->upload(copy->memory->address(), values, bytes);
  copy->stamp = stamp;
  copy->factor = factor;
  copy->turn = turn_;
  return copy->memory->at<float>();
}

void CudaDevice::forget_parameters() {
  if (copies_.size() < copies_expected_) return;
  std::erase_if(copies_, [](const auto& entry) { return entry.second.storage.expired(); });
  copies_expected_ = 2 * copies_.size() + 64;
}

}  // namespace dyc
