// Compiled persistent kernels, or chains, each for a set of steps, and which sets are worth one: a compiler
// takes seconds, so the same set must have been asked for often enough.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver/backend.h"
#include "exec/device_options.h"

namespace dyc {

class PersistentKernels {
 public:
  using Ids = std::vector<uint32_t>;  // kernel ids of the steps, ascending

  struct Kind {
    const char *name, *what;  // of kernels/persistent.cu; in messages
    bool cooperative;
  };
  PersistentKernels(Kind kind, cuda::Backend& backend, const DeviceOptions& options, uint32_t threads)
      : kind_(kind), backend_(backend), options_(options), threads_(threads) {}

  struct Kernel {
    Ids kernel_ids;
    cuda::Backend::Kernel kernel;
    uint32_t blocks;                                            // that fit on the device at the same time
    std::vector<std::pair<size_t, uint32_t>> with_memory = {};  // so many with so many bytes for each
    // On the device a step whose body is missing would be left out.
    void require(uint32_t kernel_id) const;
  };
  // Can a kernel with this id be a step?
  static bool can_run(uint32_t kernel_id);
  Kernel* find(const Ids& kernel_ids);  // null: there is none
  // Is there a kernel for these steps, or may one be compiled?
  bool is_possible(const Ids& kernel_ids);
  // Is it possible, and there or asked for often enough? Counts the request.
  bool is_wanted(const Ids& kernel_ids);
  // Compiles one kernel for all sets that have none, in the background unless DeviceOptions says after how
  // many requests: until it is there, launches go on one by one. Where it fails they are marked unsupported.
  void prepare(const std::vector<Ids>& sets);
  // Do so many blocks with so much dynamic shared memory fit on the device at the same time? Asks the driver
  // once for each size.
  bool fits(Kernel& kernel, uint32_t blocks, size_t shared_bytes);
  // The kernel cannot be compiled or launched: never again in this process. Warns on stderr, once.
  void mark_unsupported(const Ids& kernel_ids, const std::string& why);

 private:
  void compile(const Ids& kernel_ids);
  cuda::KernelName name_of(const Ids& kernel_ids) const;
  bool emulated() const { return backend_.limits().architecture == 0; }
  struct Request {
    Ids kernel_ids;
    uint32_t count = 0;
  };
  const Kind kind_;
  cuda::Backend& backend_;
  const DeviceOptions& options_;
  const uint32_t threads_;  // of a block
  std::vector<Kernel> kernels_;
  std::vector<Request> requests_;
  Ids compiling_;  // in the background
  std::vector<Ids> unsupported_;
};

}  // namespace dyc
