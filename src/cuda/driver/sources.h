// Kernel sources and the headers they include, embedded when the module is built (cmake/DycEmbed.cmake).
#pragma once
#include <span>

namespace dyc::cuda {

struct KernelSource {
  const char* name;  // as #include has it: "ops/kernel_args.h", "cuda/kernels/elementwise.cu"
  const char* text;
};
std::span<const KernelSource> sources();

}  // namespace dyc::cuda
