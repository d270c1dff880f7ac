#include "exec/device.h"

#include "exec/cpu_executor.h"

namespace dyc {

std::unique_ptr<Executor> make_executor(Graph& graph, Plan& plan) {
  return std::make_unique<CpuExecutor>(graph, plan);
}

}  // namespace dyc
