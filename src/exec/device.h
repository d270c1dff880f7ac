// The device that the process computes on.
#pragma once
#include <mutex>
#include <string>

#include "cuda/backend.h"

namespace dyc {

// "cpu", "emulation" (the CUDA kernels, run on the host) or "cuda:0". Throws ValueError for other names, and
// RuntimeError where there is no such device or where a graph has been made for another one.
void use_device(const std::string& name);
const std::string& device_name();
// What the device has done so far; null on the CPU.
const cuda::Backend::Counters* device_counters();
// Whether the device is to time its work, for those counters.
void measure_device(bool on);
// How a thread locks the device, which waits for the interpreter now and then: `lock` must not keep that from
// other threads meanwhile.
void set_device_lock(void (*lock)(std::mutex& mutex));

}  // namespace dyc
