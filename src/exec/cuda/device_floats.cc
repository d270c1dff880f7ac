#include "exec/cuda/device_floats.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "exec/cuda/parameters.h"
#include "exec/device.h"

namespace dyc {

DeviceFloats::DeviceFloats(size_t n)
    : device_(used_device()),
      n_(n),
      memory_(std::make_shared<DeviceMemory>(device_.backend(), "gradients of a job", 0)) {
  const auto lock = device_.lock();
  memory_->reserve(std::max<size_t>(n, 1) * sizeof(float), 0);
  device_.backend().clear(address(), n * sizeof(float));
  device_.backend().wait();
}

void DeviceFloats::check_size(std::span<const StoragePtr> storages) const {
  size_t floats = 0;
  for (const StoragePtr& s : storages) floats += s->size();
  if (floats > n_) throw ValueError(text("gradients of ", floats, " values; there is memory for ", n_));
}

void DeviceFloats::take(std::span<const StoragePtr> storages) {
  check_size(storages);
  const auto lock = device_.lock();
  CudaParameters& parameters = device_.parameters();
  cuda::Backend& backend = device_.backend();
  try {
    cuda::Backend::Address to = address();
    for (const StoragePtr& s : storages) {
      const size_t bytes = s->size() * sizeof(float), width = s->row_size() * sizeof(float);
      if (s->dense_grad()) {
        backend.copy(to, reinterpret_cast<uintptr_t>(parameters.grad(s)), bytes);
      } else {
        backend.clear(to, bytes);
        const std::vector<uint32_t>& rows = s->touched_rows();
        const auto found = parameters.memory_for_rows(s, rows);
        for (size_t i = 0; i < rows.size(); ++i)
          backend.copy(to + rows[i] * width, reinterpret_cast<uintptr_t>(found[i].at), width);
      }
      to += bytes;
    }
    backend.wait();
  } catch (...) {
    device_.rethrow();
  }
}

void DeviceFloats::put(std::span<const StoragePtr> storages) const {
  check_size(storages);
  cuda::Backend::Address from = address();
  for (const StoragePtr& s : storages) {
    const size_t bytes = s->size() * sizeof(float);
    s->clear_grad();
    std::vector<float> values;  // for the host, where it adds up gradients
    {
      const auto lock = device_.lock();
      CudaParameters& parameters = device_.parameters();
      try {
        if (parameters.on_host() || !s->device_may_add_grad()) {
          values.resize(s->size());
          device_.backend().download(values.data(), from, bytes);
        } else {
          bool fresh = false;
          float* const to = parameters.memory_for_grad(s, fresh);
          device_.backend().copy(reinterpret_cast<uintptr_t>(to), from, bytes);
          s->grad_added_on_device(parameters);
        }
      } catch (...) {
        device_.rethrow();
      }
    }
    if (!values.empty()) std::copy(values.begin(), values.end(), s->grad());
    from += bytes;
  }
}

}  // namespace dyc
