#include <cstdlib>
#include <string>

#include "cpu/kernel_table.h"

namespace dyc {

namespace {

#ifdef DYC_ISA_ONLY_BASELINE
const KernelTable& best(const std::string&) { return kernels_baseline(); }
#else
const KernelTable& best(const std::string& wanted) {
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx512 && (wanted.empty() || wanted == "avx512")) return kernels_avx512();
  if (avx2 && wanted != "baseline") return kernels_avx2();
  return kernels_baseline();
}
#endif

}  // namespace

const char* best_isa() { return best("").isa; }

const KernelTable& kernels() {
  static const KernelTable& table = []() -> const KernelTable& {
    const char* wanted = std::getenv("DYNET_COMPAT_ISA");
    return best(wanted ? wanted : "");
  }();
  return table;
}

}  // namespace dyc
