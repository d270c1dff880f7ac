// What Python supplies to the driver backend, and its parts.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver/graph_cache.h"
#include "cuda/driver/libcuda.h"
#include "cuda/driver/tuning.h"

namespace dyc::cuda {

// A compiled module of kernels of a file, and the names in it of those that were asked for by expression.
struct Cubin {
  std::string file, image;
  std::vector<std::pair<std::string, std::string>> lowered;  // expression, name
};

// Compiles kernels for an architecture and a driver (12040 for CUDA 12.4), at the same time: several cubins
// of each file. Python has it (dynet_compat.cuda); called without locks held.
using Compiler =
    std::function<std::vector<Cubin>(const std::vector<KernelName>& kernels, int architecture, int driver)>;
// Whether such kernels are compiled; the first question begins to do it in the background.
using IsCompiled = std::function<bool(const std::string& file, const std::vector<std::string>& expressions,
                                      int architecture, int driver)>;
void set_compiler(Compiler compiler, IsCompiled is_compiled = {});

// Paths of cuBLAS libraries to try, in this order, for a driver. Python has it, too, and it is called
// likewise.
using LibraryFinder = std::function<std::vector<std::string>(int driver)>;
void set_library_finder(LibraryFinder finder);

// What was found out about a device, by name: kept for later processes. Python has it, too.
struct Notes {
  std::function<std::string(const std::string& device, const std::string& what)> recall;
  std::function<void(const std::string& device, const std::string& what, const std::string& found)> keep;
};
void set_notes(Notes notes);

// Runs what waits for work of others, which may want the interpreter, without its lock. Python has it.
using Waiter = std::function<void(const std::function<void()>& wait)>;
void set_waiter(Waiter waiter);

// Calls of one device's driver: errors become exceptions, and a lost context stays lost.
class Calls {
 public:
  Calls(const Libcuda& cuda, std::string device) : cuda(cuda), device_(std::move(device)) {}
  const Libcuda& cuda;

  // Makes `context` that of this thread. Throws RuntimeError if it is lost, or if this process was forked
  // from the one that made it.
  void enter(Context context) const;
  // Throws RuntimeError, or MemoryError, that names the device and what was to be done.
  void check(Result result, const char* what) const {
    if (result) [[unlikely]]
      fail(result, what);
  }
  [[noreturn]] void fail(Result result, const char* what) const;
  // For all streams of the context, also those of other libraries. Called without locks held.
  Result wait_for_all() const;
  const std::string& device() const { return device_; }
  bool lost() const { return is_lost_; }
  mutable uint32_t* fault = nullptr;  // as Backend::fault(); lives as long as the context
  // Whether this process was forked: the device's things are not its own, and cannot be given back.
  static bool forked();

 private:
  std::string device_;
  mutable std::mutex mutex_;
  mutable std::atomic<bool> is_lost_ = false;
  mutable std::string lost_;  // the error that lost the context
};

// Device memory in blocks that are kept for the next request. One stream uses all of it, so that a block may
// be given away again while launches that read it are still to run.
class Pool {
 public:
  struct Block {
    Address memory;
    size_t bytes;
  };
  explicit Pool(const Calls& calls) : calls_(calls) {}
  ~Pool();
  Address allocate(size_t bytes);
  // Blocks that other streams may still read, where it takes them to allocate so much; they are given back
  // after a wait for all streams, or without one.
  std::vector<Block> take_shared(size_t bytes);
  void give_back(const std::vector<Block>& shared, bool waited);
  // `shared`: other streams may still read it. It is given away again when all streams have been waited for.
  void release(Address memory, bool shared = false) noexcept;
  // Changes when memory goes back to the driver.
  uint64_t trims() const { return trims_; }

 private:
  void trim() noexcept;
  std::vector<Block>::iterator find_kept(size_t wanted);
  [[noreturn]] void fail(size_t bytes) const;

  const Calls& calls_;
  std::vector<Block> used_, kept_, shared_;
  size_t used_bytes_ = 0, kept_bytes_ = 0;
  uint64_t trims_ = 0;
};

// Pinned host memory that copies go through, in chunks, so that neither side waits for the other.
class Staging {
 public:
  explicit Staging(const Calls& calls) : calls_(calls) {}
  ~Staging();
  void upload(Address to, const void* from, size_t bytes, Stream stream);
  void download(void* to, Address from, size_t bytes, Stream stream);

 private:
  struct Piece {
    char* memory = nullptr;
    Event left = nullptr;  // recorded after the last copy from or to it
    bool busy = false;
  };
  Piece& next(Piece* pieces, int* at);
  void wait(Piece& piece);
  void make(Piece& piece);

  const Calls& calls_;
  Piece up_[tuning::kStagingPieces], down_[2];
  int up_at_ = 0;
  size_t filled_ = 0;  // bytes of up_[up_at_]
};

// Lists of operations, captured from the stream and launched whole. What goes wrong with that goes wrong
// once: then every list is left to run one by one.
class Graphs {
 public:
  // issue: puts an operation on the stream.
  Graphs(const Calls& calls, std::function<void(const Backend::Operation&)> issue);
  // False: nothing has been done.
  bool launch(GraphCache::List list, Stream stream);
  bool is_worth(GraphCache::List list) { return usable_ && cache_.is_worth(list); }
  void clear() { cache_.clear(); }

 private:
  GraphCache::Graph capture(GraphCache::List list);
  GraphCache::Graph give_up(Result result, const char* what);

  const Calls& calls_;
  const std::function<void(const Backend::Operation&)> issue_;
  bool usable_;
  Stream stream_ = nullptr;
  GraphCache cache_;
};

}  // namespace dyc::cuda
