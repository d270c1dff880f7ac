// The backend that runs the kernels' text on the host.
#include "cuda/emulation/emulation.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "base/error.h"
#include "cuda/driver/backend.h"
#include "cuda/emulation/grid.h"
#include "cuda/emulation/heap.h"
#include "cuda/driver/graph_cache.h"

namespace dyc::cuda {

namespace {

using emulation::Run;

// What DYNET_COMPAT_EMULATION asks for:
// "memory=1000000,order=backward,fail=20,cooperative=1,shared=40000,processors=4,times=4:2:9".
struct Settings {
  size_t memory = size_t{64} << 30;
  uint32_t shared = 96 << 10;  // bytes of a block
  uint32_t processors = 2;
  Order order;
  int64_t fail = -1;         // the launch (from 1) that loses the device
  int64_t cooperative = -1;  // launches of blocks that run at the same time are refused from this one on
  // Seconds, made up: of a launch, of one in a graph, and of blocks that run at the same time. 0: no time is
  // told.
  double plain = 0, graph = 0, together = 0;
  Settings() {
    const char* const given = std::getenv("DYNET_COMPAT_EMULATION");
    for (std::string rest = given ? given : ""; !rest.empty();) {
      const std::string word = rest.substr(0, rest.find(','));
      rest.erase(0, word.size() + 1);
      set(word);
    }
  }

 private:
  void set(const std::string& word) {
    const size_t sign = word.find('=');
    const std::string key = word.substr(0, sign), value = sign < word.size() ? word.substr(sign + 1) : "";
    if (key == "memory") memory = std::strtoull(value.c_str(), nullptr, 10);
    else if (key == "shared") shared = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    else if (key == "fail") fail = std::strtoll(value.c_str(), nullptr, 10);
    else if (key == "cooperative") cooperative = std::strtoll(value.c_str(), nullptr, 10);
    else if (key == "processors")
      processors = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    else if (key == "seed") order.seed = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    else if (key == "order" && (value == "forward" || value == "backward" || value == "random"))
      order.kind = value == "forward"    ? Order::forward
                   : value == "backward" ? Order::backward
                                         : Order::random;
    else if (key != "times" || std::sscanf(value.c_str(), "%lf:%lf:%lf", &plain, &graph, &together) != 3)
      throw ValueError(
          text("DYNET_COMPAT_EMULATION: expected memory=BYTES, order=forward|backward|random, seed=NUMBER, "
               "fail=LAUNCH, cooperative=LAUNCH, processors=NUMBER, shared=BYTES or "
               "times=SECONDS:SECONDS:SECONDS, got ",
               word));
  }
};

using LookupArgs = std::unordered_map<std::string, Run>;

std::string key_of(const std::string& file, const std::string& expression) {
  return file + ": " + expression;
}

std::vector<void (*)(emulation::Kernels&)>& sources() {
  static std::vector<void (*)(emulation::Kernels&)> all;
  return all;
}

emulation::Kernels all_kernels() {
  emulation::Kernels all;
  for (const auto add : sources()) add(all);
  return all;
}

// Never destroyed: daemon threads compute while the process ends.
const LookupArgs& table() {
  static const LookupArgs& made = *[] {
    const emulation::Kernels all = all_kernels();
    auto* const t = new LookupArgs;
    for (const emulation::Kernel& k : all) t->emplace(key_of(k.file, k.expression), k.run);
    return t;
  }();
  return made;
}

// 28 methods: those of Backend.
class Emulation : public Backend {
 public:
  Emulation() {
    limits_.name = "emulation";
    limits_.architecture = 0;
    limits_.processors = settings_.processors;
    limits_.threads = emulation::kBlockThreads;
    limits_.shared_bytes = settings_.shared;
    limits_.memory = settings_.memory;
  }
  const Limits& limits() const override { return limits_; }

  Address allocate(size_t bytes) override {
    check_device();
    return heap_.allocate(bytes);
  }
  void release(Address memory, bool) noexcept override { heap_.release(memory); }
  void adopt(Address memory, size_t bytes) override { heap_.adopt(memory, bytes); }
  void disown(Address memory, bool shared) noexcept override {
    heap_.disown(memory);
    counters.waits_for_all += shared;
  }
  void check_memory(Address start, size_t bytes) override {
    try {
      at(start, bytes, "read");
    } catch (const RuntimeError& e) {
      throw ValueError(e.what());
    }
  }

  void upload(Address to, const void* from, size_t bytes) override {
    std::memcpy(at(to, bytes, "upload to"), from, bytes);
    ++counters.uploads;
    counters.uploaded_bytes += bytes;
  }
  void copy(Address to, Address from, size_t bytes) override {
    std::memmove(at(to, bytes, "copy to"), at(from, bytes, "copy from"), bytes);
    ++counters.copies;
  }
  void clear(Address to, size_t bytes) override { std::memset(at(to, bytes, "clear"), 0, bytes); }
  void download(void* to, Address from, size_t bytes) override {
    wait();
    std::memcpy(to, at(from, bytes, "download from"), bytes);
    ++counters.downloads;
    counters.downloaded_bytes += bytes;
  }
  void wait() override {
    const std::exception_ptr error = error_;
    if (!lost_) error_ = nullptr;
    if (error) std::rethrow_exception(error);
  }

  bool lost() const override { return lost_; }

  // There is one stream, and what is put on it is done.
  uint64_t stream() const override { return reinterpret_cast<uint64_t>(this); }
  void wait_for(uint64_t) override { check_device(); }
  void make_wait(uint64_t) override { check_device(); }

  void prepare(std::span<const KernelName> names) override {
    for (const KernelName& name : names) kernel(name);
  }
  Kernel kernel(const KernelName& name) override {
    const auto found = table().find(key_of(name.file, name.expression));
    if (found == table().end())
      throw RuntimeError(text("the emulation has no kernel ", name.expression, " of ", name.file, ".cu"));
    return &*found;
  }
  uint32_t* fault() override { return &fault_; }
  uint32_t active_blocks(Kernel, uint32_t threads, uint32_t shared_bytes) override {
    return threads > limits_.threads || shared_bytes > limits_.shared_bytes ? 0 : limits_.processors;
  }

  void launch(Kernel kernel, const Grid& grid, void** args) override {
    check_device();
    const auto& [name, run] = *static_cast<const LookupArgs::value_type*>(kernel);
    if (grid.blocks == 0 || grid.threads == 0 || grid.threads > limits_.threads ||
        grid.shared_bytes > limits_.shared_bytes || (grid.cooperative && grid.blocks > limits_.processors))
      throw RuntimeError(text(name, ": cannot be launched with ", grid.blocks, " blocks of ", grid.threads,
                              " threads and ", grid.shared_bytes, " bytes of shared memory",
                              grid.cooperative ? ", all at once" : ""));
    if (grid.cooperative && ++together_ == settings_.cooperative) {
      --together_;  // from now on
      throw RuntimeError(text(name, ": launches of blocks that run at the same time are refused"));
    }
    if (static_cast<int64_t>(++counters.launches) == settings_.fail) return lose(name);
    seconds_ += grid.cooperative ? settings_.together : in_graph_ ? settings_.graph : settings_.plain;
    if (error_) return;  // nothing runs after a launch that failed, until wait()
    try {
      run_grid(run, grid, args, settings_.order);
      heap_.check_margins();
    } catch (const std::exception& e) {
      const std::string where =
          fault_ ? text(", blocks wait in vain for the others before step ", fault_ - 1) : "";
      fault_ = 0;
      error_ = std::make_exception_ptr(RuntimeError(name + ": " + e.what() + where));
    }
  }

  // As a driver does: what runs is the list that was kept.
  bool run_as_graph(std::span<const Operation> list) override {
    check_device();
    for (const Operation& o : list)
      if (o.grid.cooperative && settings_.cooperative > 0) return false;  // launch() may refuse it
    const auto* const kept = static_cast<std::vector<Operation>*>(cache_.find(list));
    if (!kept) return false;
    in_graph_ = true;
    for (const Operation& o : *kept) run(o);
    in_graph_ = false;
    ++counters.graph_launches;
    return true;
  }
  bool may_run_as_graph(std::span<const Operation> list) override { return cache_.is_worth(list); }
  bool tells_time() const override { return settings_.plain > 0; }
  bool begin_span() override {
    seconds_ = 0;
    return true;
  }
  double span_seconds() override { return seconds_; }
  bool has_gemm() override { return true; }
  std::string gemm_library() const override { return "emulation"; }
  void gemm(const Gemm& g) override {
    check_device();
    if (static_cast<int64_t>(++counters.launches) == settings_.fail) return lose("gemm");
    if (error_) return;
    const float *const a = factor(g.a, g.m, g.inner), *const b = factor(g.b, g.inner, g.n);
    float* const c = static_cast<float*>(
        at(g.c, static_cast<size_t>((g.n - 1) * g.c_stride + g.m) * sizeof(float), "write a product to"));
    for (int64_t j = 0; j < g.n; ++j)
      for (int64_t i = 0; i < g.m; ++i) {
        float sum = 0.f;
        for (int64_t k = 0; k < g.inner; ++k)
          sum += round_to(g.precision, a[g.a.transposed ? i * g.a.stride + k : k * g.a.stride + i]) *
                 round_to(g.precision, b[g.b.transposed ? k * g.b.stride + j : j * g.b.stride + k]);
        float& to = c[j * g.c_stride + i];
        to = g.add ? to + sum : sum;
      }
  }

 private:
  static float round_to(Precision precision, float x) {
    if (precision == Precision::tf32) return emulation::round_to_tf32(x);
    if (precision == Precision::bf16) return std::bit_cast<float>(emulation::pair_of_bf16(0.f, x));
    return x;
  }
  // A factor of a product, all of which must be device memory.
  const float* factor(const Gemm::Factor& f, int64_t rows, int64_t columns) const {
    const int64_t high = f.transposed ? columns : rows, wide = f.transposed ? rows : columns;
    if (f.stride < high) throw RuntimeError(text("gemm: columns of ", high, " floats, ", f.stride, " apart"));
    const size_t floats = static_cast<size_t>((wide - 1) * f.stride + high);
    return static_cast<const float*>(at(f.at, floats * sizeof(float), "read a factor of"));
  }
  void* at(Address start, size_t bytes, const char* what) const {
    check_device();
    return heap_.at(start, bytes, what);
  }
  void lose(const std::string& name) {
    lost_ = true;
    error_ = std::make_exception_ptr(RuntimeError(name + ": the device was lost"));
  }
  void check_device() const {
    if (lost_) std::rethrow_exception(error_);
  }

  const Settings settings_;
  Limits limits_;
  uint32_t fault_ = 0;
  DeviceHeap heap_{settings_.memory};
  std::exception_ptr error_;  // of the first launch that failed
  bool lost_ = false;
  int64_t together_ = 0;  // launches of blocks that run at the same time
  bool in_graph_ = false;
  double seconds_ = 0;  // since begin_span()
  GraphCache cache_{
      [](GraphCache::List list) { return new std::vector<Operation>(list.begin(), list.end()); },
      [](GraphCache::Graph graph) { delete static_cast<std::vector<Operation>*>(graph); }};
};

}  // namespace

std::vector<KernelName> kernel_names() {
  std::vector<KernelName> names;
  for (emulation::Kernel& k : all_kernels()) names.push_back({std::move(k.file), std::move(k.expression)});
  return names;
}

std::unique_ptr<Backend> make_emulation() { return std::make_unique<Emulation>(); }

}  // namespace dyc::cuda

namespace emulation {

Registration::Registration(void (*add)(Kernels& to)) { dyc::cuda::sources().push_back(add); }

}  // namespace emulation
