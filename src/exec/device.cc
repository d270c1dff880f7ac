#include "exec/device.h"

#include <algorithm>
#include <cstdlib>
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

}  // namespace

void use_device(const std::string& name) {
  if (name == chosen()) return;
  if (used)
    throw RuntimeError(text("device ", name, ": this process has begun to compute on ", chosen(),
                            "; choose the device before anything is recorded"));
  const char* const walk = std::getenv("DYNET_COMPAT_WALK");
  if (walk && std::string(walk) == "0") join_launches(false);
  else if (walk) CudaDevice::persistent_after = static_cast<uint32_t>(std::max(0, std::atoi(walk)));
  const char* const graphs = std::getenv("DYNET_COMPAT_GRAPHS");
  if (graphs && std::string(graphs) == "0") use_graphs(false);
  const char* const library = std::getenv("DYNET_COMPAT_CUBLAS");
  CudaExecutor::library = !library || std::string(library) != "0";
  const char* const variants = std::getenv("DYNET_COMPAT_PRODUCTS");
  if (variants) force_products(variants);
  const char* const keep = std::getenv("DYNET_COMPAT_KEEP");
  if (keep) CudaParameters::snapshot_every = static_cast<uint64_t>(std::max(1, std::atoi(keep)));
  CudaDevice* const opened = name == "cpu" ? nullptr : new CudaDevice(open_backend(name));
  delete device;
  device = opened;
  chosen() = name;
}

const std::string& device_name() { return chosen(); }

CudaDevice* cuda_device() { return device; }

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

const cuda::Backend::Counters* device_counters() { return device ? &device->backend().counters : nullptr; }

void reset_device_counters() {
  if (device) device->backend().counters = {};
}

void measure_device(bool on) {
  if (device) device->backend().measure(on);
}

void compute_like_dynet(bool on) { CudaExecutor::like_dynet = CommandList::one_by_one = on; }

void force_products(const std::string& variant) {
  for (int i = 0; i < cuda::kMatmulVariants; ++i)
    if (variant == cuda::kMatmulVariantNames[i]) cuda::forced_variant = i;
  if (variant.empty()) cuda::forced_variant = -1;
}

std::string gemm_library() { return device ? device->backend().gemm_library() : ""; }

void join_launches(bool on) { CommandList::persistent = on; }

void use_graphs(bool on) { CommandList::using_graphs = on; }

void keep_weights(bool on) { CommandList::keeping_weights = on; }
void skip_barriers(bool on) { CommandList::skipping_barriers = on; }

void set_device_lock(void (*lock)(std::mutex& mutex)) { DeviceMutex::take = lock; }

std::unique_ptr<Executor> make_executor(Graph& graph, Plan& plan) {
  used = true;
  if (device) return std::make_unique<CudaExecutor>(graph, plan, *device);
  return std::make_unique<CpuExecutor>(graph, plan);
}

}  // namespace dyc
