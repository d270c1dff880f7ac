// The pass over a command list that makes chains: launches next to each other that read nothing of each other
// but what belongs to the same slice (of instances, or of elements). A chain is one launch, whose blocks make
// their slice of each of its steps.
#pragma once
#include <vector>

#include "cuda/driver/backend.h"
#include "exec/cuda/persistent_pass.h"

namespace dyc {

class ChainPass {
 public:
  ChainPass(CommandList& list, CudaDevice& device) : list_(list), device_(device) {}

  // The commands with chains in them, if there is a kernel for these.
  std::vector<Command> joined(std::vector<Command> commands);
  // The kernel is being compiled: other lists will have chains.
  bool is_to_come() const { return to_come_; }
  // The list runs as joined() has it.
  void use();
  cuda::Backend::Operation operation(const Command& chain) const;
  void clear();

 private:
  bool find_kernel(const std::vector<Command>& commands);
  Command chain_of(const Command* begin, const Command* end);

  CommandList& list_;
  CudaDevice& device_;
  const PersistentKernels::Kernel* kernel_ = nullptr;
  bool to_come_ = false;
  std::vector<Link> links_;  // of all chains
  size_t chains_ = 0;
};

}  // namespace dyc
