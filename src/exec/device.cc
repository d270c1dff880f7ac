#include "exec/device.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "exec/cpu/cpu_executor.h"
#include "exec/cuda/cuda_executor.h"
#include "exec/cuda/parameters.h"

namespace dyc {

namespace {

// Written under the interpreter lock. The device lives as long as the process: threads that end later than
// this file's variables give memory back to it.
std::string& chosen() {
  static auto& name = *new std::string("cpu");
  return name;
}
CudaDevice* device = nullptr;
bool used = false;

std::unique_ptr<cuda::Backend> open_backend(const std::string& name) {
  if (name == "emulation") return cuda::make_emulation();
  const std::string number = name.rfind("cuda:", 0) == 0 ? name.substr(5) : "";
  if (number.empty() || number.size() > 3 || number.find_first_not_of("0123456789") != std::string::npos)
    throw ValueError(text("device: expected cpu, emulation or cuda:N, got '", name, "'"));
  return cuda::make_driver(std::atoi(number.c_str()));
}

DeviceOptions options_of_environment() {
  DeviceOptions o;
  const auto number = [](const char* name, uint64_t otherwise) {
    const char* const value = std::getenv(name);
    return value ? static_cast<uint64_t>(std::max(0, std::atoi(value))) : otherwise;
  };
  const auto is_off = [](const char* name) {
    const char* const value = std::getenv(name);
    return value && std::string(value) == "0";
  };
  o.persistent = !is_off("DYNET_COMPAT_PERSISTENT");
  o.persistent_after = static_cast<uint32_t>(number("DYNET_COMPAT_PERSISTENT", 0));
  o.chains = !is_off("DYNET_COMPAT_CHAINS");
  o.graphs = !is_off("DYNET_COMPAT_GRAPHS");
  o.measured = !is_off("DYNET_COMPAT_MEASURED");
  o.cublas = !is_off("DYNET_COMPAT_CUBLAS");
  o.snapshot_every = std::max<uint64_t>(1, number("DYNET_COMPAT_SNAPSHOT", o.snapshot_every));
  const char* const precision = std::getenv("DYNET_COMPAT_PRECISION");
  for (int i = 0; i < cuda::kPrecisions; ++i)
    if (precision && std::string(precision) == cuda::kPrecisionNames[i])
      o.precision = static_cast<cuda::Precision>(i);
  const char* const variant = std::getenv("DYNET_COMPAT_PRODUCTS");
  for (int i = 0; i < cuda::kMatmulVariants; ++i)
    if (variant && std::string(variant) == cuda::kMatmulVariantNames[i]) o.matmul_variant = i;
  return o;
}

// Only once: a process opens one device.
void check_precision(DeviceOptions& options, const cuda::Limits& limits) {
  const bool emulated = limits.architecture == 0;
  if (options.precision == cuda::Precision::float32 || emulated ||
      limits.architecture >= cuda::kTensorArchitecture)
    return;
  std::cerr << text("[dynet] WARNING: DYNET_COMPAT_PRECISION=",
                    cuda::kPrecisionNames[static_cast<size_t>(options.precision)], " has no effect on ",
                    limits.name, ": sm_", limits.architecture, " is older than sm_",
                    cuda::kTensorArchitecture, "; products are float32\n")
            << std::flush;
  options.precision = cuda::Precision::float32;
}

}  // namespace

void use_device(const std::string& name) {
  if (name == chosen()) return;
  if (used)
    throw RuntimeError(text("device ", name, ": this process has begun to compute on ", chosen(),
                            "; choose the device before anything is recorded"));
  CudaDevice* const opened = name == "cpu" ? nullptr : new CudaDevice(open_backend(name));
  if (opened) {
    opened->options = options_of_environment();
    check_precision(opened->options, opened->backend().limits());
  }
  delete device;
  device = opened;
  chosen() = name;
}

const std::string& device_name() { return chosen(); }

CudaDevice* cuda_device() { return device; }

CudaDevice& used_device() {
  if (device) return *device;
  throw RuntimeError("memory of a device: this process computes on the CPU; choose one by --dynet-gpu");
}

namespace {
DeviceLock forking;
}

void before_fork() {
  if (!device) return;
  forking = device->lock();
  try {
    device->parameters().before_fork();
  } catch (...) {
    device->rethrow();  // the child is to know that the device is lost
  }
}

void after_fork(bool child) {
  if (!forking.owns_lock()) return;
  device->parameters().after_fork(child);
  forking.unlock();
}

namespace {
void read_times() {
  try {
    device->backend().read_times();
  } catch (const RuntimeError&) {
    // A lost device, or that of a forked process, has no more of them; its counters remain.
  }
}
}  // namespace

const cuda::Backend::Counters* device_counters() {
  if (!device) return nullptr;
  read_times();
  return &device->backend().counters;
}

void reset_device_counters() {
  if (!device) return;
  read_times();
  device->backend().counters = {};
}

void measure_device(bool on) {
  if (device) device->backend().measure(on);
}

const LaunchChoices* launch_choices() { return device ? &device->choices() : nullptr; }

DeviceOptions* device_options() { return device ? &device->options : nullptr; }

std::string gemm_library() { return device ? device->backend().gemm_library() : ""; }

void set_device_lock(void (*lock)(std::mutex& mutex)) { DeviceMutex::take = lock; }

std::unique_ptr<Executor> make_executor(Graph& graph, Plan& plan) {
  used = true;
  if (device) return std::make_unique<CudaExecutor>(graph, plan, *device);
  return std::make_unique<CpuExecutor>(graph, plan);
}

}  // namespace dyc
