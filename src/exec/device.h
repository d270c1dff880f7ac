// The device that the process computes on.
#pragma once
#include <string>

namespace dyc {

// "cpu", "emulation" (the CUDA kernels, run on the host) or "cuda:0". Throws ValueError for other names, and
// RuntimeError where there is no such device or where a graph has been made for another one.
void use_device(const std::string& name);
const std::string& device_name();

}  // namespace dyc
