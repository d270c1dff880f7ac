// The backend of a GPU: one stream, kernels compiled when they are first asked for.
#include "cuda/driver/driver.h"

#include <pthread.h>

#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "cuda/driver/cublas.h"

namespace dyc::cuda {

namespace {

Compiler& compiler() {
  static Compiler one;
  return one;
}

IsCompiled& is_compiled() {
  static IsCompiled one;
  return one;
}

LibraryFinder& library_finder() {
  static LibraryFinder one;
  return one;
}

Waiter& waiter() {
  static Waiter one;
  return one;
}

Notes& notes() {
  static Notes one;
  return one;
}

// A context does not survive fork(): the child's calls would fail in strange ways, or hang.
bool is_forked = false;
void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { is_forked = true; }); });
}

}  // namespace

void set_compiler(Compiler one, IsCompiled question) {
  compiler() = std::move(one);
  is_compiled() = std::move(question);
}
void set_waiter(Waiter one) { waiter() = std::move(one); }
void set_notes(Notes one) { notes() = std::move(one); }
void set_library_finder(LibraryFinder one) { library_finder() = std::move(one); }

// ---- Calls

bool Calls::forked() { return is_forked; }

void Calls::enter(Context context) const {
  if (is_forked)
    throw RuntimeError(
        text(device_,
             ": this process was forked from one that uses the GPU, which CUDA does not allow; start "
             "processes with multiprocessing's method \"spawn\", or use the GPU in the children only"));
  if (is_lost_) fail(kContextDestroyed, "");
  // Every time: other libraries of this process set contexts of theirs. It costs some nanoseconds.
  check(cuda.set_current(context), "choosing the device");
}

void Calls::fail(Result result, const char* what) const {
  if (!loses_context(result)) {
    const std::string message = text(device_, ", while ", what, ": ", describe(cuda, result));
    if (result == kOutOfMemory) throw MemoryError(message);
    throw RuntimeError(message);
  }
  const std::lock_guard lock(mutex_);
  if (!is_lost_) lost_ = text("while ", what, ": ", describe(cuda, result));
  if (!is_lost_ && fault && *fault)
    lost_ += text(", as blocks of a persistent kernel waited in vain for the others before its step ",
                  *fault - 1, " (run without such kernels: DYNET_COMPAT_PERSISTENT=0)");
  is_lost_ = true;
  throw RuntimeError(
      text(device_, " is lost to this process: ", lost_,
           "; what was computed on it is gone: save the model and restart the program, on the CPU with "
           "DYNET_COMPAT_DEVICE=cpu"));
}

Result Calls::wait_for_all() const {
  Result result{};
  const auto wait = [&] { result = cuda.wait_for_all(); };
  if (waiter()) waiter()(wait);
  else wait();
  return result;
}

namespace {

struct LoadedKernel {
  std::string name;
  Function function = nullptr;
  uint32_t shared_allowed = kSharedWithoutAsking;
};

// What all threads of the process have in common: the context, and the kernels loaded into it.
class Device {
 public:
  explicit Device(int number)
      : facts(device_facts(libcuda(), number)),
        calls(libcuda(), text("GPU:", number, " (", facts.name, ")")) {
    calls.check(calls.cuda.device_get(&id_, number), "choosing the device");
    calls.check(calls.cuda.retain(&context, id_), "starting the device");
    watch_forks();
  }
  Device(const Device&) = delete;

  LoadedKernel* find(const KernelName& name) {
    const std::lock_guard lock(mutex_);
    const auto file = kernels_.find(name.file);
    if (file == kernels_.end()) return nullptr;
    const auto found = file->second.find(name.expression);
    return found == file->second.end() ? nullptr : found->second.get();
  }
  // No lock is held while Python compiles: it may need the interpreter, which another thread has that waits
  // for us.
  void load(const std::vector<KernelName>& kernels) {
    if (!compiler()) throw RuntimeError("no compiler of kernels: import dynet_compat first");
    for (const Cubin& cubin : compiler()(kernels, facts.architecture, calls.cuda.version)) {
      calls.enter(context);
      add(cubin);
    }
  }

  const Found::Device facts;
  const Calls calls;
  Context context = nullptr;

 private:
  void add(const Cubin& cubin) {
    Module module = nullptr;
    calls.check(calls.cuda.module_load(&module, cubin.image.data()), "loading kernels");
    const std::lock_guard lock(mutex_);
    auto& kernels = kernels_[cubin.file];
    for (const auto& [expression, name] : cubin.lowered) {
      auto kernel = std::make_unique<LoadedKernel>();
      kernel->name = text(cubin.file, ".cu: ", expression);
      calls.check(calls.cuda.function_get(&kernel->function, module, name.c_str()), kernel->name.c_str());
      kernels.try_emplace(expression, std::move(kernel));  // another thread's may be there already
    }
  }

  DeviceId id_ = 0;
  std::mutex mutex_;
  std::unordered_map<std::string, std::unordered_map<std::string, std::unique_ptr<LoadedKernel>>> kernels_;
};

// Devices stay until the process ends: kernels loaded once serve every graph of every thread.
Device& device_of(int number) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, std::unique_ptr<Device>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Device>& device = devices[number];
  if (!device) device = std::make_unique<Device>(number);
  return *device;
}

// Times on the device: a pair of events around each operation, read when the stream is empty; and around one
// span of it, read when somebody asks.
class Stopwatch {
 public:
  explicit Stopwatch(const Calls& calls) : calls_(calls) {}
  ~Stopwatch() {
    if (Calls::forked()) return;
    for (const Event event : {span_.start, span_.stop})
      if (event) calls_.cuda.event_destroy(event);
    for (const Event event : free_) calls_.cuda.event_destroy(event);
    for (const Span& span : spans_) {
      calls_.cuda.event_destroy(span.start);
      calls_.cuda.event_destroy(span.stop);
    }
  }
  bool on = false;
  void start(Stream stream, double* seconds) {
    if (on) spans_.push_back({mark(stream), nullptr, seconds});
  }
  void stop(Stream stream) {
    if (on && !spans_.empty() && !spans_.back().stop) spans_.back().stop = mark(stream);
  }
  void read() {
    for (const Span& span : spans_) {
      float milliseconds = 0;
      if (span.stop && calls_.cuda.event_elapsed(&milliseconds, span.start, span.stop) == 0)
        *span.seconds += 1e-3 * milliseconds;
      free_.push_back(span.start);
      if (span.stop) free_.push_back(span.stop);
    }
    spans_.clear();
  }

  void begin_span(Stream stream) {
    give_back(span_);
    span_.start = mark(stream);
  }
  void end_span(Stream stream) { span_.stop = mark(stream); }
  double span_seconds() {
    // cuEventElapsedTime would tell, too: compute-sanitizer takes that for an error.
    const Result ended = calls_.cuda.event_query(span_.stop);
    if (ended == kNotReady) return -1;
    float milliseconds = 0;
    const Result r = ended ? ended : calls_.cuda.event_elapsed(&milliseconds, span_.start, span_.stop);
    calls_.check(r, "reading the time");
    return 1e-3 * milliseconds;
  }

 private:
  struct Span {
    Event start, stop;
    double* seconds;
  };
  Event mark(Stream stream) {
    Event event = nullptr;
    if (free_.empty()) {
      calls_.check(calls_.cuda.event_create(&event, kEventTimed), "making an event");
    } else {
      event = free_.back();
      free_.pop_back();
    }
    calls_.check(calls_.cuda.event_record(event, stream), "recording an event");
    return event;
  }
  void give_back(Span& span) {
    for (Event* event : {&span.start, &span.stop})
      if (*event) free_.push_back(std::exchange(*event, nullptr));
  }
  const Calls& calls_;
  std::vector<Span> spans_;
  Span span_{};
  std::vector<Event> free_;
};

// 38 methods, of which Backend asks for 34, and 14 fields, its parts: what needs state of its own is a class
// (Calls, Pool, Staging, Stopwatch, Graphs).
class Driver final : public Backend {
 public:
  explicit Driver(int number)
      : number_(number),
        device_(device_of(number)),
        calls_(device_.calls),
        pool_(calls_),
        staging_(calls_),
        stopwatch_(calls_),
        graphs_(calls_, [this](const Operation& o) { issue(o); }) {
    const auto lock = enter();
    calls_.check(calls_.cuda.stream_create(&stream_, kStreamApart), "making a stream");
  }
  ~Driver() override {
    if (is_forked || calls_.cuda.set_current(device_.context)) {  // nothing can be given back
      (void)cublas_.release();
      return;
    }
    calls_.cuda.stream_wait(stream_);
    graphs_.clear();
    cublas_.reset();
    if (order_) calls_.cuda.event_destroy(order_);
    calls_.cuda.stream_destroy(stream_);
  }

  const Limits& limits() const override { return device_.facts; }

  Address allocate(size_t bytes) override {
    std::vector<Pool::Block> shared;
    {
      const auto lock = enter();
      shared = pool_.take_shared(bytes);
    }
    const Result r = shared.empty() ? Result{} : calls_.wait_for_all();
    const auto lock = enter();
    pool_.give_back(shared, r == 0);
    calls_.check(r, "waiting for other streams");
    return pool_.allocate(bytes);
  }
  void release(Address memory, bool shared) noexcept override {
    const std::lock_guard lock(mutex_);
    pool_.release(memory, shared);
  }
  void disown(Address, bool shared) noexcept override {
    if (!shared || is_forked || calls_.cuda.set_current(device_.context)) return;
    (void)calls_.wait_for_all();  // fails only where the device is lost, and nobody reads any more
    const std::lock_guard lock(mutex_);
    ++counters.waits_for_all;
  }
  void check_memory(Address start, size_t bytes) override {
    const auto lock = enter();
    for (const Address at : {start, start + (bytes ? bytes - 1 : 0)}) {
      unsigned type = 0;
      int device = -1;
      if (calls_.cuda.pointer_fact(&type, kPointerMemoryType, at) || type != kMemoryOfDevice)
        throw ValueError(text("its memory is not that of a GPU"));
      calls_.check(calls_.cuda.pointer_fact(&device, kPointerDevice, at), "looking at an array");
      if (device != number_)
        throw ValueError(text("it is on GPU:", device, ", and this program computes on GPU:", number_));
    }
  }

  void upload(Address to, const void* from, size_t bytes) override {
    if (!bytes) return;
    transfer(counters.uploads, [&] { staging_.upload(to, from, bytes, stream_); });
    counters.uploaded_bytes += bytes;
  }
  void copy(Address to, Address from, size_t bytes) override {
    if (!bytes) return;
    transfer(counters.copies, [&] {
      calls_.check(calls_.cuda.copy_across(to, from, bytes, stream_), "copying on the device");
    });
  }
  void clear(Address to, size_t bytes) override {
    if (!bytes) return;
    transfer(counters.copies,
             [&] { calls_.check(calls_.cuda.fill(to, 0, bytes, stream_), "clearing memory"); });
  }
  void download(void* to, Address from, size_t bytes) override {
    if (!bytes) return;
    transfer(counters.downloads, [&] { staging_.download(to, from, bytes, stream_); });
    counters.downloaded_bytes += bytes;
  }
  void wait() override {
    const auto lock = enter();
    calls_.check(calls_.cuda.stream_wait(stream_), "running kernels");
    stopwatch_.read();
  }

  bool lost() const override { return calls_.lost(); }

  uint64_t stream() const override { return reinterpret_cast<uint64_t>(stream_); }
  void wait_for(uint64_t other) override { order(reinterpret_cast<Stream>(other), stream_); }
  void make_wait(uint64_t other) override { order(stream_, reinterpret_cast<Stream>(other)); }

  void prepare(std::span<const KernelName> names) override {
    std::vector<KernelName> missing;
    for (const KernelName& name : names)
      if (!device_.find(name)) missing.push_back(name);
    if (!missing.empty()) device_.load(missing);
  }
  bool is_ready(const KernelName& name) override {
    return device_.find(name) || !is_compiled() ||
           is_compiled()(name.file, {name.expression}, device_.facts.architecture, calls_.cuda.version);
  }
  Kernel kernel(const KernelName& name) override {
    LoadedKernel* found = device_.find(name);
    if (!found) {
      prepare({&name, 1});
      found = device_.find(name);
    }
    if (!found) throw RuntimeError(text("the compiled kernels lack ", name.file, ".cu: ", name.expression));
    return found;
  }
  uint32_t* fault() override {
    const auto lock = enter();
    void* memory = calls_.fault;
    if (!memory) {  // the same address on the host and the device
      calls_.check(calls_.cuda.allocate_host(&memory, sizeof *calls_.fault, 0),
                   "allocating memory of the host");
      *(calls_.fault = static_cast<uint32_t*>(memory)) = 0;
    }
    return calls_.fault;
  }
  uint32_t active_blocks(Kernel kernel, uint32_t threads, uint32_t shared_bytes) override {
    const auto lock = enter();
    LoadedKernel& k = allowed(kernel, shared_bytes);
    int blocks = 0;
    calls_.check(calls_.cuda.resident(&blocks, k.function, static_cast<int>(threads), shared_bytes),
                 k.name.c_str());
    return static_cast<uint32_t>(blocks) * device_.facts.processors;
  }
  void launch(Kernel kernel, const Grid& grid, void** args) override {
    if (!grid.blocks || !grid.threads) return;
    const auto lock = enter();
    LoadedKernel& k = allowed(kernel, grid.shared_bytes);
    stopwatch_.start(stream_, &counters.launch_seconds);
    issue(k, grid, args);
    stopwatch_.stop(stream_);
    ++counters.launches;
  }
  bool run_as_graph(std::span<const Operation> list) override {
    const auto lock = enter();
    if (stopwatch_.on) return false;               // each is to be timed
    if (trims_ != pool_.trims()) graphs_.clear();  // they may copy from or to memory that is gone
    trims_ = pool_.trims();
    if (!graphs_.launch(list, stream_)) return false;
    for (const Operation& o : list) ++(o.kind == Operation::launching ? counters.launches : counters.copies);
    ++counters.graph_launches;
    return true;
  }
  bool may_run_as_graph(std::span<const Operation> list) override {
    const auto lock = enter();
    return !stopwatch_.on && graphs_.is_worth(list);
  }
  bool tells_time() const override { return true; }
  bool begin_span() override {
    const auto lock = enter();
    if (stopwatch_.on) return false;
    stopwatch_.begin_span(stream_);
    return true;
  }
  void end_span() override {
    const auto lock = enter();
    stopwatch_.end_span(stream_);
  }
  double span_seconds() override {
    const auto lock = enter();
    return stopwatch_.span_seconds();
  }
  std::string recall(const std::string& what) override {
    return notes().recall ? notes().recall(facts_text(), what) : "";
  }
  void keep(const std::string& what, const std::string& found) override {
    if (notes().keep) notes().keep(facts_text(), what, found);
  }
  bool has_gemm() override {
    if (gemm_library_.empty()) find_gemm();
    return cublas_ != nullptr;
  }
  std::string gemm_library() const override {
    const std::lock_guard lock(mutex_);
    return gemm_library_;
  }
  void gemm(const Gemm& product) override {
    const auto lock = enter();
    stopwatch_.start(stream_, &counters.launch_seconds);
    cublas_->gemm(product);
    stopwatch_.stop(stream_);
    ++counters.launches;
  }
  void measure(bool on) override {
    wait();
    stopwatch_.on = on;
  }
  void read_times() override {
    if (stopwatch_.on) wait();
  }

 private:
  std::string facts_text() const {
    const Limits& l = device_.facts;
    return text(l.name, " sm_", l.architecture, " ", l.processors, " CUDA ", calls_.cuda.version);
  }
  // Threads take turns: they share the stream, and what is counted of it.
  std::lock_guard<std::mutex> enter() {
    calls_.enter(device_.context);
    return std::lock_guard(mutex_);
  }
  // One counted and timed movement of memory, in the stream's order.
  template <class Move>
  void transfer(uint64_t& count, Move&& move) {
    const auto lock = enter();
    stopwatch_.start(stream_, &counters.copy_seconds);
    move();
    stopwatch_.stop(stream_);
    ++count;
  }
  // What comes next on `second` waits for what is on `first`.
  void order(Stream first, Stream second) {
    const auto lock = enter();
    if (!order_) calls_.check(calls_.cuda.event_create(&order_, kEventUntimed), "making an event");
    calls_.check(calls_.cuda.event_record(order_, first), "recording an event");
    calls_.check(calls_.cuda.stream_wait_event(second, order_, 0), "ordering streams");
  }
  void issue(LoadedKernel& k, const Grid& grid, void** args) {
    const Result r = grid.cooperative
                         ? calls_.cuda.launch_together(k.function, grid.blocks, 1, 1, grid.threads, 1, 1,
                                                       grid.shared_bytes, stream_, args)
                         : calls_.cuda.launch(k.function, grid.blocks, 1, 1, grid.threads, 1, 1,
                                              grid.shared_bytes, stream_, args, nullptr);
    calls_.check(r, k.name.c_str());
  }
  void issue(const Operation& o) {
    if (o.kind == Operation::launching ? !o.grid.blocks : !o.bytes) return;
    Address argument = o.to;
    void* args[] = {&argument};
    if (o.kind == Operation::launching) issue(allowed(o.kernel, o.grid.shared_bytes), o.grid, args);
    else if (o.kind == Operation::copying)
      calls_.check(calls_.cuda.copy_across(o.to, o.from, o.bytes, stream_), "copying on the device");
    else calls_.check(calls_.cuda.fill(o.to, 0, o.bytes, stream_), "clearing memory");
  }
  LoadedKernel& allowed(Kernel kernel, uint32_t shared_bytes) {
    LoadedKernel& k = *static_cast<LoadedKernel*>(const_cast<void*>(kernel));
    if (shared_bytes > k.shared_allowed) {
      calls_.check(calls_.cuda.function_set(k.function, kFunctionSharedBytes, static_cast<int>(shared_bytes)),
                   k.name.c_str());
      k.shared_allowed = shared_bytes;
    }
    return k;
  }

  // The first library that can be used. No lock is held while Python looks for them, as for kernels.
  void find_gemm() {
    std::string reasons;
    for (const std::string& path :
         library_finder() ? library_finder()(calls_.cuda.version) : std::vector<std::string>()) {
      const auto lock = enter();
      try {
        cublas_ = std::make_unique<Cublas>(path, calls_, pool_, stream_, device_.facts.architecture);
        gemm_library_ = cublas_->name();
        return;
      } catch (const Error& e) {
        reasons += text(reasons.empty() ? "" : "; ", e.what());
      }
    }
    const std::lock_guard lock(mutex_);
    gemm_library_ = text("none: ", reasons.empty() ? "no libcublas was found" : reasons);
  }

  const int number_;
  Device& device_;
  const Calls& calls_;
  mutable std::mutex mutex_;
  Stream stream_ = nullptr;
  Event order_ = nullptr;  // of streams
  Pool pool_;
  std::unique_ptr<Cublas> cublas_;
  std::string gemm_library_;
  Staging staging_;
  Stopwatch stopwatch_;
  uint64_t trims_ = 0;
  Graphs graphs_;
};

}  // namespace

std::unique_ptr<Backend> make_driver(int number) {
  if (is_forked)
    throw RuntimeError("the GPU cannot be used in a process that was forked from one that uses it");
  const Libcuda& cuda = libcuda();
  int count = 0;
  const Result r = cuda.device_count(&count);
  if (r || count == 0) throw RuntimeError(no_device(cuda, r));
  if (number < 0 || number >= count)
    throw RuntimeError(text("there is no GPU:", number, ": this machine has ", count,
                            count == 1 ? " GPU, GPU:0" : text(" GPUs, GPU:0 to GPU:", count - 1),
                            "; CUDA_VISIBLE_DEVICES hides those it does not name"));
  return std::make_unique<Driver>(number);
}

}  // namespace dyc::cuda
