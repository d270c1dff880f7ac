// Arrays of other libraries in memory of the device: their elements are copied to this package's memory, on
// the device.
#pragma once
#include <functional>
#include <memory>

#include "cuda/abi/exchange.h"
#include "exec/cuda/cuda_device.h"
#include "exec/cuda/parameters.h"

namespace dyc {

struct GivenArray {
  cuda::ForeignArray array{};
  uint64_t stream = 0;         // on which the elements are written; 0: they are there
  bool ordered_after = false;  // the owner's later writes come after what is on `stream`
};

class Exchange {
 public:
  // Floats of our own, one after the other.
  GivenArray flat(const float* from, size_t floats) const;
  // Of the device of this process; throws RuntimeError on the CPU.
  Exchange();
  uint64_t stream() const { return device_.backend().stream(); }
  // Throws ValueError unless all of it is memory of this device.
  void check(const cuda::ForeignArray& array) const;

  // ---- the array may be changed, or its memory be given back, when these return
  // Its elements, the first axis the fastest.
  std::shared_ptr<DeviceMemory> take(const GivenArray& given);
  // Replaces values, from the float `first` on. False: the host must do it.
  bool write(const StoragePtr& storage, size_t first, const GivenArray& given);
  // The same while this thread has the device's lock.
  void copy(const GivenArray& given, float* to, bool add);
  void upload(const float* from, size_t floats, float* to, bool add);

  // ---- for others to read
  std::shared_ptr<DeviceMemory> values(const StoragePtr& storage);    // read-only
  std::shared_ptr<DeviceMemory> gradient(const StoragePtr& storage);  // a copy, zeros where there is none
  // What comes next on the other stream finds the memory as it is now.
  void publish(uint64_t other);
  void download(uint64_t from, size_t floats, float* to);
  bool emulated() const { return device_.emulated(); }

 private:
  template <class F>
  auto locked(F&& f);

  CudaDevice& device_;
};

}  // namespace dyc
