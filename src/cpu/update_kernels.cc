#include "cpu/update_kernels.h"

#include "cpu/kernel_table.h"

namespace dyc {

UpdateKernels update_kernels(UpdateRule rule) { return kernels().updates->rules[static_cast<int>(rule)]; }

double sum_of_squares(const float* x, size_t n) {
  static const auto squares = kernels().updates->sum_of_squares;
  return squares(x, n);
}

}  // namespace dyc
