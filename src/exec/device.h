// The device that the process computes on.
#pragma once
#include <mutex>
#include <string>

#include "cuda/driver/backend.h"
#include "exec/device_options.h"

namespace dyc {

// "cpu", "emulation" (the CUDA kernels, run on the host) or "cuda:0". Throws ValueError for other names, and
// RuntimeError where there is no such device or where a graph has been made for another one.
void use_device(const std::string& name);
const std::string& device_name();
class CudaDevice;
CudaDevice* cuda_device();  // null on the CPU
CudaDevice& used_device();  // throws RuntimeError there
// To be called before and after a fork. Before it, parameters are downloaded, as the child cannot use the
// device, and the device is locked, so that no thread uses it during the fork.
void before_fork();
void after_fork(bool child);
// What the device has done so far; null on the CPU. While its time is measured, both wait for the device.
const cuda::Backend::Counters* device_counters();
void reset_device_counters();
// Whether the device's own time is measured; costs a little.
void measure_device(bool on);
// How lists of launches run; null on the CPU.
class LaunchChoices;
const LaunchChoices* launch_choices();
// What it may do to be fast; null on the CPU.
DeviceOptions* device_options();
// The library for large products, or why there is none; "": nothing has asked for it.
std::string gemm_library();
// How a thread locks the device. `lock` must release the interpreter lock while it waits, because the thread
// that has the device may be waiting for the interpreter.
void set_device_lock(void (*lock)(std::mutex& mutex));

}  // namespace dyc
