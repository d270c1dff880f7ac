// What an executor needs of a CUDA device: memory, and one ordered stream of copies and launches. Two
// backends have it: the driver (a GPU) and the emulation (the kernels' text, run on the host).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda/driver/matmul_variants.h"

namespace dyc::cuda {

// A kernel: file of kernels/ without ".cu", and the expression that names it there, inside dyc::cuda:
// {"elementwise", "unary_forward<Row<8>>"}.
struct KernelName {
  std::string file, expression;
  bool operator==(const KernelName&) const = default;
};

// What a device has.
struct Limits {
  std::string name;           // "NVIDIA H200"
  int architecture = 0;       // 90 for sm_90
  uint32_t processors = 1;    // multiprocessors
  uint32_t threads = 1024;    // most per block
  uint32_t shared_bytes = 0;  // most per block
  size_t memory = 0;          // bytes
  bool cooperative = true;    // can run all blocks of a grid at the same time
};

struct Grid {
  uint32_t blocks = 1, threads = 1;
  uint32_t shared_bytes = 0;  // dynamic shared memory
  bool cooperative = false;   // all blocks run at the same time, so that they may wait for each other
  bool operator==(const Grid&) const = default;
};

// C = A B, or C += A B, of float32. Columns are `stride` floats apart; transposed: the factor is the
// transpose of the stored matrix.
struct Gemm {
  struct Factor {
    uint64_t at;  // address of device memory
    int64_t stride;
    bool transposed;
  };
  Factor a, b;
  uint64_t c;
  int64_t c_stride;
  int64_t m, n, inner;
  bool add;
  Precision precision = Precision::float32;
};

// Gives memory of the device in the place of a backend: another library's pool.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual uint64_t allocate(size_t bytes) = 0;  // throws MemoryError
  virtual void release(uint64_t memory) noexcept = 0;
};

// 35 methods: all that is asked of a device, of which there are two, the driver and the emulation.
class Backend {
 public:
  using Address = uint64_t;  // of device memory; 0: none
  using Kernel = const void*;

  virtual ~Backend() = default;
  virtual const Limits& limits() const = 0;

  // ---- memory. Throws MemoryError, which says how much was asked for and is in use.
  virtual Address allocate(size_t bytes) = 0;
  // `shared`: with other streams, which may still read it.
  virtual void release(Address memory, bool shared = false) noexcept = 0;
  // Memory of an Allocator is used from now on, or no more: by other streams neither when disown() returns.
  virtual void adopt(Address, size_t) {}
  virtual void disown(Address memory, bool shared) noexcept = 0;
  // Throws ValueError unless all of it is memory of this device.
  virtual void check_memory(Address start, size_t bytes) = 0;

  // ---- on the stream, in this order. `from` may be written again when upload() returns.
  virtual void upload(Address to, const void* from, size_t bytes) = 0;
  virtual void copy(Address to, Address from, size_t bytes) = 0;
  virtual void clear(Address to, size_t bytes) = 0;
  virtual void download(void* to, Address from, size_t bytes) = 0;  // waits
  virtual void wait() = 0;  // throws RuntimeError for what a launch did wrong
  // Nothing can be done with the device any more, nor read from it.
  virtual bool lost() const = 0;

  // ---- streams of other libraries: CUDA's handles, 1 and 2 for the default streams
  virtual uint64_t stream() const = 0;         // this backend's
  virtual void wait_for(uint64_t other) = 0;   // what comes next waits for what is on the other stream
  virtual void make_wait(uint64_t other) = 0;  // the other stream waits for what is on this one

  // ---- kernels. Those of one call are compiled together, unless they are known or cached.
  virtual void prepare(std::span<const KernelName> names) = 0;
  virtual Kernel kernel(const KernelName& name) = 0;  // prepared if it is not
  // False: it is being compiled in the background, from the first question on.
  virtual bool is_ready(const KernelName&) { return true; }
  // A word of host memory that kernels write before they end with an error (cuda/abi/persistent.h).
  virtual uint32_t* fault() = 0;
  // Blocks of `kernel` that fit on the device at the same time.
  virtual uint32_t active_blocks(Kernel kernel, uint32_t threads, uint32_t shared_bytes) = 0;
  // args: addresses of the arguments, as the kernel's parameters are.
  virtual void launch(Kernel kernel, const Grid& grid, void** args) = 0;

  // ---- many at once
  struct Operation {
    enum Kind : uint32_t { launching, copying, clearing } kind;
    Kernel kernel;  // launching: with `to`, an address, as its only argument
    Grid grid;
    Address to, from;
    size_t bytes;
    bool operator==(const Operation&) const = default;
  };
  // One of them, by itself.
  void run(Operation o) {
    void* args[] = {&o.to};
    if (o.kind == Operation::launching) launch(o.kernel, o.grid, args);
    else if (o.kind == Operation::copying) copy(o.to, o.from, o.bytes);
    else clear(o.to, o.bytes);
  }
  // Runs them in this order, as one, where the same list has come often enough before. False: nothing has
  // been done, and each is to be run by itself.
  virtual bool run_as_graph(std::span<const Operation>) { return false; }
  // Would it? Counts the list as one that has come.
  virtual bool may_run_as_graph(std::span<const Operation>) { return false; }

  // ---- the time that the device takes for a span of its stream; one span at a time
  virtual bool tells_time() const { return false; }
  virtual bool begin_span() { return false; }  // false: not now
  virtual void end_span() {}
  virtual double span_seconds() { return 0; }  // of the last one; negative as long as it lasts

  // ---- what was found out about this device, for later processes; "": nothing is known
  virtual std::string recall(const std::string&) { return ""; }
  virtual void keep(const std::string&, const std::string&) {}

  // ---- large products by NVIDIA's library, if it is there: looked for at the first question
  virtual bool has_gemm() = 0;
  virtual void gemm(const Gemm& product) = 0;
  virtual std::string gemm_library() const = 0;  // which it is, or why there is none; "": nobody has asked

  // What was done so far, for benchmarks.
  struct Counters {
    uint64_t launches = 0, uploads = 0, downloads = 0, copies = 0, uploaded_bytes = 0, downloaded_bytes = 0;
    uint64_t persistent_products = 0;  // products whose weights were in shared memory
    uint64_t sliced_steps = 0;         // steps of persistent kernels that read what their block had made
    uint64_t links = 0;                // steps of chains, beyond the first of each
    uint64_t followers = 0;            // element-wise launches that products computed
    uint64_t grid_syncs = 0;           // steps of persistent kernels that waited for all blocks
    uint64_t waits_for_all = 0;        // for all streams, before an Allocator got its memory back
    uint64_t graph_launches = 0;       // the launches and copies of each are among those above
    double launch_seconds = 0, copy_seconds = 0;  // on the device, while measure(true) holds
    uint64_t products[kMatmulVariants] =
        {};  // launches, steps of persistent kernels and calls of the library
  };
  Counters counters;
  // Whether to time what the device does; costs a little for each launch. A backend may not be able to. An
  // operation's time begins when the one before it has ended; if the device waits for the host in between,
  // that wait is part of it.
  virtual void measure(bool) {}
  // While times are measured: waits for the stream and adds its times to the counters.
  virtual void read_times() {}
};

// All kernels of kernels/, as the emulation has them.
std::vector<KernelName> kernel_names();

// The kernels' text on the host: blocks one after the other, threads that wait for each other at barriers.
// Memory of its own, so that a forgotten copy shows.
std::unique_ptr<Backend> make_emulation();

// GPU number `device` through libcuda, found at run time. Throws RuntimeError that says what is missing.
std::unique_ptr<Backend> make_driver(int device);

}  // namespace dyc::cuda
