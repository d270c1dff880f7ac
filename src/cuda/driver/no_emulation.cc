// In builds without the emulation (DYC_EMULATION=OFF).
#include "base/error.h"
#include "cuda/driver/backend.h"

namespace dyc::cuda {

std::vector<KernelName> kernel_names() { return {}; }

std::unique_ptr<Backend> make_emulation() {
  throw RuntimeError(
      "device emulation: this build of dynet_compat does not contain it; `make build` in the source tree "
      "makes one "
      "that does");
}

}  // namespace dyc::cuda
