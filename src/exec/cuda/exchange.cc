#include "exec/cuda/exchange.h"

#include <algorithm>

#include "base/error.h"
#include "exec/cuda/device_floats.h"
#include "exec/device.h"

namespace dyc {

namespace {

size_t bytes_of(cuda::ElementType type) {
  switch (type) {
    case cuda::ElementType::boolean:
    case cuda::ElementType::int8:
    case cuda::ElementType::uint8:
      return 1;
    case cuda::ElementType::int16:
    case cuda::ElementType::uint16:
    case cuda::ElementType::float16:
    case cuda::ElementType::bfloat16:
      return 2;
    case cuda::ElementType::int64:
    case cuda::ElementType::uint64:
    case cuda::ElementType::float64:
      return 8;
    default:
      return 4;
  }
}

constexpr const char* kTooFarApart = "its strides lead out of all memory";

bool is_plain(const cuda::ForeignArray& a) {
  int64_t step = sizeof(float);
  for (uint32_t k = 0; k < a.axes; ++k) {
    if (a.sizes[k] != 1 && a.strides[k] != step) return false;
    step *= a.sizes[k];
  }
  return a.type == cuda::ElementType::float32 && a.scale == 1.f;
}

cuda::Backend::Address place_of(const void* p) { return reinterpret_cast<cuda::Backend::Address>(p); }

}  // namespace

Exchange::Exchange() : device_(used_device()) {}

template <class F>
auto Exchange::locked(F&& f) {
  const auto lock = device_.lock();
  try {
    return f();
  } catch (...) {
    device_.parameters().batch().discard();
    device_.rethrow();
  }
}

GivenArray Exchange::flat(const float* from, size_t floats) const {
  GivenArray given;
  given.array.type = cuda::ElementType::float32;
  given.array.from = from;
  given.array.axes = 1;
  given.array.sizes[0] = given.array.total = static_cast<int64_t>(floats);
  given.array.strides[0] = sizeof(float);
  given.stream = stream();
  return given;
}

void Exchange::check(const cuda::ForeignArray& a) const {
  if (a.total == 0) return;
  const int64_t item = static_cast<int64_t>(bytes_of(a.type));
  int64_t low = 0, high = item;
  bool aligned = place_of(a.from) % static_cast<uint64_t>(item) == 0;
  for (uint32_t k = 0; k < a.axes; ++k) {
    int64_t span;
    int64_t& end = a.strides[k] < 0 ? low : high;
    if (__builtin_mul_overflow(a.sizes[k] - 1, a.strides[k], &span) ||
        __builtin_add_overflow(end, span, &end))
      throw ValueError(kTooFarApart);
    aligned = aligned && (a.sizes[k] == 1 || a.strides[k] % item == 0);
  }
  if (!aligned)
    throw ValueError(text("its elements are not at multiples of ", item, " bytes; make a copy of it"));
  int64_t bytes;
  uint64_t start, end;
  if (__builtin_sub_overflow(high, low, &bytes) || __builtin_add_overflow(place_of(a.from), low, &start) ||
      __builtin_add_overflow(start, bytes, &end))
    throw ValueError(kTooFarApart);
  device_.backend().check_memory(start, static_cast<size_t>(bytes));
}

void Exchange::copy(const GivenArray& given, float* to, bool add) {
  cuda::ForeignArray array = given.array;
  cuda::Backend& backend = device_.backend();
  if (array.total == 0) return;
  const bool other = given.stream && given.stream != backend.stream();
  if (other) backend.wait_for(given.stream);
  if (is_plain(array) && !add) {
    backend.copy(place_of(to), place_of(array.from), static_cast<size_t>(array.total) * sizeof(float));
  } else {
    array.to = to;
    array.add = add;
    const uint32_t id = CudaDevice::kernel_id(cuda::kTakeArray);
    device_.prepare({id});  // first, as a compiler may release the interpreter lock
    CommandList& batch = device_.parameters().batch();
    cuda::LaunchArgs args;
    args.extra = batch.put(&array, 1);
    batch.launch(id, args, array.total);
    batch.submit();
  }
  if (other && given.ordered_after) backend.make_wait(given.stream);
  else if (given.stream != backend.stream()) backend.wait();
}

void Exchange::upload(const float* from, size_t floats, float* to, bool add) {
  if (floats == 0) return;
  if (!add) return device_.backend().upload(place_of(to), from, floats * sizeof(float));
  DeviceMemory memory(device_.backend(), "gradients of a function", 0);
  memory.reserve(floats * sizeof(float), 0);
  device_.backend().upload(memory.address(), from, floats * sizeof(float));
  copy(flat(memory.at<float>(), floats), to, true);
}

std::shared_ptr<DeviceMemory> Exchange::take(const GivenArray& given) {
  return locked([&] {
    auto memory = std::make_shared<DeviceMemory>(device_.backend(), "inputs", 0);
    memory->reserve(static_cast<size_t>(std::max<int64_t>(given.array.total, 1)) * sizeof(float), 0);
    copy(given, memory->at<float>(), false);
    return memory;
  });
}

bool Exchange::write(const StoragePtr& storage, size_t first, const GivenArray& given) {
  if (!storage->device_may_write() || device_.parameters().on_host()) return false;
  const size_t written = static_cast<size_t>(given.array.total);
  locked([&] {
    CudaParameters& parameters = device_.parameters();
    parameters.keep_for_loss(storage);
    const CudaParameters::Change change = parameters.prepare(storage);
    if (change.from != change.to && written < storage->size())
      device_.backend().copy(change.to->memory->address(), change.from->memory->address(),
                             storage->size() * sizeof(float));
    copy(given, change.to->at() + first, false);
    parameters.commit(change);
    parameters.launches_submitted();
    return true;
  });
  return true;
}

std::shared_ptr<DeviceMemory> Exchange::values(const StoragePtr& storage) {
  if (device_.parameters().on_host()) storage->values();  // are on the host
  return locked([&] {
    auto memory = device_.parameters().view(storage);
    device_.parameters().launches_submitted();
    return memory;
  });
}

std::shared_ptr<DeviceMemory> Exchange::gradient(const StoragePtr& storage) {
  DeviceFloats floats(storage->size());
  if (storage->has_grad()) floats.take({&storage, 1});
  floats.memory()->share();
  return floats.memory();
}

void Exchange::publish(uint64_t other) {
  locked([&] {
    device_.backend().make_wait(other);
    return true;
  });
}

void Exchange::download(uint64_t from, size_t floats, float* to) {
  locked([&] {
    device_.backend().download(to, from, floats * sizeof(float));
    return true;
  });
}

}  // namespace dyc
