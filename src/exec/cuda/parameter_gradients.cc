// Gradients of parameters on the device.
#include <algorithm>

#include "exec/cuda/parameters.h"

namespace dyc {

DeviceMemory& CudaParameters::grad_memory(DeviceParameter& r) {
  if (!r.grad) r.grad = std::make_unique<DeviceMemory>(device_.backend(), "gradients of parameters", 0);
  return *r.grad;
}

const float* CudaParameters::grad(const StoragePtr& storage) {
  DeviceParameter& r = device_parameter(storage);
  const Storage::GradLocation place = storage->grad_location();
  if (place == Storage::GradLocation::host || (place == Storage::GradLocation::both && !r.grad))
    send_grad(*storage, r);
  return grad_memory(device_parameter(storage)).at<float>();
}

// Uploads the host's.
void CudaParameters::send_grad(Storage& storage, DeviceParameter& r) {
  DeviceMemory& memory = grad_memory(r);
  const float* const host = storage.raw_grad();
  if (storage.dense_grad()) {
    memory.reserve(storage.size() * sizeof(float), 0);
    device_.backend().upload(memory.address(), host, storage.size() * sizeof(float));
    return storage.grad_mirrored(*this);
  }
  const std::vector<uint32_t>& rows = storage.touched_rows();
  const size_t width = storage.row_size();
  std::vector<float> cooperative;
  cooperative.reserve(storage.grad_size());
  r.slots.resize(storage.rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    r.slots[rows[i]] = static_cast<uint32_t>(i);
    cooperative.insert(cooperative.end(), host + rows[i] * width, host + (rows[i] + 1) * width);
  }
  memory.reserve(cooperative.size() * sizeof(float), 0);
  device_.backend().upload(memory.address(), cooperative.data(), cooperative.size() * sizeof(float));
  storage.grad_mirrored(*this);
}

void CudaParameters::fetch_grad(Storage& storage) {
  const cuda::Backend::Address from = grad_memory(all_.at(storage.uid)).address();
  float* const to = storage.grad_host_buffer();
  if (storage.dense_grad()) {
    device_.backend().download(to, from, storage.size() * sizeof(float));
    return storage.grad_fetched();
  }
  std::vector<float> cooperative(storage.grad_size());
  device_.backend().download(cooperative.data(), from, cooperative.size() * sizeof(float));
  const float* row_from = cooperative.data();
  for (const uint32_t row : storage.touched_rows()) {
    std::copy_n(row_from, storage.row_size(), to + row * storage.row_size());
    row_from += storage.row_size();
  }
  storage.grad_fetched();
}

float* CudaParameters::memory_for_grad(const StoragePtr& storage, bool& fresh) {
  fresh = !storage->has_grad();
  if (!fresh) return const_cast<float*>(grad(storage));
  DeviceMemory& memory = grad_memory(device_parameter(storage));
  memory.reserve(storage->size() * sizeof(float), 0);
  return memory.at<float>();
}

std::vector<CudaParameters::RowMemory> CudaParameters::memory_for_rows(const StoragePtr& owner,
                                                                       const std::vector<uint32_t>& rows) {
  DeviceParameter& r = device_parameter(owner);
  const Storage& storage = *owner;
  const size_t width = storage.row_size();
  if (storage.has_grad()) grad(owner);
  std::vector<RowMemory> found;
  if (storage.dense_grad()) {
    for (const uint32_t row : rows) found.push_back({grad_memory(r).at<float>() + row * width, false});
    return found;
  }
  // A slot counts if the row there names it, so that what earlier gradients left need not be cleared.
  const std::vector<uint32_t>& touched = storage.touched_rows();
  std::vector<uint32_t> fresh;
  r.slots.resize(storage.rows);
  const auto has_slot = [&](uint32_t row) {
    const size_t slot = r.slots[row];
    if (slot < touched.size()) return touched[slot] == row;
    return slot - touched.size() < fresh.size() && fresh[slot - touched.size()] == row;
  };
  for (const uint32_t row : rows) {
    if (has_slot(row)) continue;
    r.slots[row] = static_cast<uint32_t>(touched.size() + fresh.size());
    fresh.push_back(row);
  }
  DeviceMemory& memory = grad_memory(r);
  memory.reserve((touched.size() + fresh.size()) * width * sizeof(float),
                 storage.grad_size() * sizeof(float));
  for (const uint32_t row : rows)
    found.push_back({memory.at<float>() + r.slots[row] * width, r.slots[row] >= touched.size()});
  return found;
}

}  // namespace dyc
