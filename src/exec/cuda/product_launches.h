// Launches of matrix products in a command list. Those that read nothing of each other can be one launch, of
// the list of all their products: a level of a tree has several. Persistent kernels do without, as their
// steps are cheap and keep the weights of single products.
#pragma once
#include <vector>

#include "cuda/abi/products.h"
#include "cuda/driver/matmul_variants.h"
#include "exec/cuda/persistent_pass.h"

namespace dyc {

struct ProductLaunch {
  uint32_t kernel_id;
  cuda::MatmulVariant variant;
  std::vector<cuda::Product> products;  // each with the number of tiles before it
  std::vector<cuda::Term> terms;
  uint32_t tiles;
};

class ProductLaunches {
 public:
  explicit ProductLaunches(CommandList& list) : list_(list) {}

  Command command_of(const ProductLaunch& launch, bool needs_grid_sync);
  // Command number `command` is this launch.
  void add(size_t command, ProductLaunch launch) { all_.push_back({command, std::move(launch)}); }
  // The commands, where launches of one kernel between which nobody waits for others are one: none of them
  // reads what another makes.
  std::vector<Command> joined(const std::vector<Command>& commands);
  // The list runs so: counts what is made, not what was planned.
  void count(cuda::Backend::Counters& counters, bool joined) const;
  void clear();

 private:
  struct Numbered {
    size_t command;
    ProductLaunch launch;
    bool joined = false;
  };
  CommandList& list_;
  std::vector<Numbered> all_;
  uint64_t spared_[cuda::kMatmulVariants] = {};  // launches, by joined()
};

}  // namespace dyc
