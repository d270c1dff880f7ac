#include "cuda/emulation/grid.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "base/error.h"
#include "cuda/emulation/races.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// What the assembler wants around a function: macOS has Mach-O, the others ELF.
#if defined(__APPLE__)
#define DYC_FUNCTION(name) ".text\n.p2align 4\n.globl _" name "\n.private_extern _" name "\n_" name ":\n"
#define DYC_FUNCTION_END(name) ""
#else
#define DYC_FUNCTION(name)                                                                              \
  ".pushsection .text\n.p2align 4\n.globl " name "\n.hidden " name "\n.type " name ", @function\n" name \
  ":"                                                                                                   \
  "\n"
#define DYC_FUNCTION_END(name) ".size " name ", .-" name "\n.popsection\n"
#endif

// dyc_switch_stack(&from, to): keeps the registers that a function must keep on this stack, stores its end in
// `from` and goes on where the stack `to` was left.
extern "C" __attribute__((visibility("hidden"))) void dyc_switch_stack(void** from, void* to);
#if defined(__x86_64__)
asm(DYC_FUNCTION("dyc_switch_stack") R"(
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)" DYC_FUNCTION_END("dyc_switch_stack"));
#elif defined(__aarch64__)
asm(DYC_FUNCTION("dyc_switch_stack") R"(
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)" DYC_FUNCTION_END("dyc_switch_stack"));
#else
extern "C" void dyc_switch_stack(void**, void*) { std::abort(); }  // run_grid() has thrown
#endif

namespace emulation {

Index3 thread_index, block_index, block_extent, grid_extent;

}  // namespace emulation

namespace dyc::cuda {

namespace {

using emulation::kWarpThreads;

#if defined(__x86_64__) || defined(__aarch64__)
constexpr bool kSwitches = true;
#else
constexpr bool kSwitches = false;
#endif

constexpr size_t kStackBytes = 256 << 10;
constexpr uint64_t kMostPauses = 1 << 20;  // of all threads, while nothing else happens

// Threads that meet: when all have arrived, the next turn begins.
struct Barrier {
  uint32_t threads = 0, arrived = 0;
  uint64_t turn = 0;
};

struct Warp {
  Barrier barrier;
  uint64_t slots[2][kWarpThreads];
};

// Threads that use a tensor core together.
struct TensorGroup {
  Barrier barrier{emulation::kTensorThreads};
  emulation::Fragments fragments[2][emulation::kTensorThreads];
};

struct Block {
  Barrier barrier;
  std::vector<Warp> warps;
  std::vector<TensorGroup> groups;  // none before they are used
  std::map<const void*, std::unique_ptr<char[]>> shared;
};

// A stack, and the thread that runs on it.
struct Fiber {
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  char* memory;
  void* end;                       // where it was left
  void* fake_stack = nullptr;      // the sanitizer's
  uint32_t block = 0, thread = 0;  // of the grid; of the block
  const Barrier* waits = nullptr;  // until its turn is over
  uint64_t turn = 0;
  uint64_t exchanges = 0;   // of its warp that this thread took part in
  uint64_t multiplied = 0;  // as often by a tensor core
  bool idle = true;         // no thread on it
  emulation::RaceThread race = {};
};

size_t page() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Fiber::Fiber(void (*entry)()) {
  void* const at =
      mmap(nullptr, kStackBytes + page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  memory = static_cast<char*>(at);
  mprotect(memory, page(), PROT_NONE);  // stacks grow down: too deep ends here
  void** top = reinterpret_cast<void**>(memory + page() + kStackBytes);
#if defined(__x86_64__)
  *--top = nullptr;  // where `entry` would return to
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
#else
  top -= 20;
  std::memset(top, 0, 160);
  top[11] = reinterpret_cast<void*>(entry);  // x30
#endif
  end = top;
}

Fiber::~Fiber() {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(memory + page(), kStackBytes);  // of frames that were never left
#endif
  munmap(memory, kStackBytes + page());
}

struct KernelCall {
  emulation::Run run;
  void** args;
  const Grid& grid;
};

// In which order blocks and threads begin and go on.
class StartOrder {
 public:
  explicit StartOrder(Order order) : kind_(order.kind), random_(order.seed) {}
  bool is_random() const { return kind_ == Order::random; }
  uint32_t of(uint32_t i, uint32_t n) const { return kind_ == Order::backward ? n - 1 - i : i; }
  std::vector<uint32_t> of_all(uint32_t n);
  template <class T>
  void shuffle(std::vector<T>& items) {
    if (is_random()) std::shuffle(items.begin(), items.end(), random_);
  }
  bool interrupts() { return is_random() && random_() % 64 == 0; }

 private:
  const Order::Kind kind_;
  std::minstd_rand random_;
};

std::vector<uint32_t> StartOrder::of_all(uint32_t n) {
  std::vector<uint32_t> order(n);
  for (uint32_t i = 0; i < n; ++i) order[i] = of(i, n);
  shuffle(order);
  return order;
}

// Blocks that are under way, and which of their threads have begun.
struct ActiveBlocks {
  std::vector<Block> blocks;
  uint32_t first = 0;
  uint64_t next = 0, threads = 0;  // of the threads of the blocks that have begun
};

// One launch.
class Runner {
 public:
  Runner(const KernelCall& call, Order order) : call_(call), order_(order), races_(call.grid.blocks) {}

  void run_all();
  void run_threads();  // on a fiber: threads to their end, one after the other
  void leave();        // a fiber that is idle comes back in another launch: `this` may be gone then
  void wait(Barrier& barrier);
  void pause() {
    fiber_->waits = nullptr;
    leave();
  }
  Block& block() { return active_.blocks[fiber_->block - active_.first]; }
  Warp& warp() { return block().warps[fiber_->thread / kWarpThreads]; }
  Fiber& fiber() { return *fiber_; }
  // Those of a thread that runs, or null.
  emulation::RaceThread* race_thread(const void* access);
  emulation::Races& races() { return races_; }
  void maybe_pause();
  void* shared(const void* key, size_t bytes);
  void* dynamic_shared() { return shared(&call_.grid, call_.grid.shared_bytes); }

 private:
  void run_blocks(uint32_t first, uint32_t count);
  void start(Block& block);
  void start_threads(size_t& used);
  bool advance(uint32_t block);
  bool next_thread(Fiber& fiber);
  bool ready(const Fiber& fiber) const { return !fiber.waits || fiber.waits->turn != fiber.turn; }
  void enter(Fiber& fiber);
  void look_for_progress();
  [[noreturn]] void stuck() const;

  const KernelCall& call_;
  StartOrder order_;
  emulation::Races races_;

  ActiveBlocks active_;
  std::vector<Fiber*> waiting_;
  Fiber* fiber_ = nullptr;  // that runs
  void* scheduler_ = nullptr;
  std::exception_ptr error_;
  bool progress_ = false;  // a barrier has opened, a thread has begun or ended
  uint64_t pauses_ = 0;
};

Runner* runner = nullptr;  // of the launch that runs
// Kept from launch to launch, with no thread on them in between. Never destroyed: daemon threads compute
// while the process ends.
auto& fibers = *new std::vector<std::unique_ptr<Fiber>>;
#if defined(__SANITIZE_ADDRESS__)
const void* scheduler_bottom = nullptr;
size_t scheduler_size = 0;
#endif

void fiber_entry() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom, &scheduler_size);
#endif
  for (;;) {
    runner->run_threads();
    runner->leave();
  }
}

// ---- switching

void Runner::enter(Fiber& fiber) {
  fiber_ = &fiber;
#if defined(__SANITIZE_ADDRESS__)
  void* fake;
  __sanitizer_start_switch_fiber(&fake, fiber.memory + page(), kStackBytes);
  dyc_switch_stack(&scheduler_, fiber.end);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
  dyc_switch_stack(&scheduler_, fiber.end);
#endif
  fiber_ = nullptr;
}

void Runner::leave() {
  Fiber& fiber = *fiber_;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fiber.fake_stack, scheduler_bottom, scheduler_size);
  dyc_switch_stack(&fiber.end, scheduler_);
  __sanitizer_finish_switch_fiber(fiber.fake_stack, &scheduler_bottom, &scheduler_size);
#else
  dyc_switch_stack(&fiber.end, scheduler_);
#endif
  emulation::thread_index.x = fiber.thread;
  emulation::block_index.x = fiber.block;
}

// ---- on a fiber

bool Runner::next_thread(Fiber& fiber) {
  if (active_.next == active_.threads || error_) return false;
  const auto n = static_cast<uint32_t>(active_.next++);
  const uint32_t threads = call_.grid.threads, block = n / threads, thread = n % threads;
  fiber.block = active_.first + order_.of(block, static_cast<uint32_t>(active_.blocks.size()));
  fiber.thread = order_.of(thread, threads);
  fiber.exchanges = fiber.multiplied = 0;
  fiber.race = {fiber.block, fiber.thread, fiber.thread / kWarpThreads};
  fiber.waits = nullptr;
  fiber.idle = false;
  progress_ = true;
  emulation::thread_index.x = fiber.thread;
  emulation::block_index.x = fiber.block;
  return true;
}

void Runner::run_threads() {
  try {
    while (next_thread(*fiber_)) {
      call_.run(call_.args);
      progress_ = true;
    }
  } catch (...) {
    if (!error_) error_ = std::current_exception();
  }
  fiber_->idle = true;
}

void Runner::wait(Barrier& barrier) {
  if (++barrier.arrived == barrier.threads) {
    barrier.arrived = 0;
    ++barrier.turn;
    progress_ = true;
    return;
  }
  fiber_->waits = &barrier;
  fiber_->turn = barrier.turn;
  leave();
}

void* Runner::shared(const void* key, size_t bytes) {
  std::unique_ptr<char[]>& memory = block().shared[key];
  if (!memory) {
    memory.reset(new char[bytes]);
    races_.forget(memory.get(), bytes);
    std::memset(memory.get(), 0xff, bytes);
  }
  return memory.get();
}

// ---- the scheduler

void Runner::start(Block& block) {
  const uint32_t threads = call_.grid.threads;
  block.barrier = {threads, 0, 0};
  block.warps.assign((threads + kWarpThreads - 1) / kWarpThreads, Warp{});
  for (uint32_t w = 0, left = threads; w < block.warps.size(); ++w, left -= kWarpThreads)
    block.warps[w].barrier.threads = left < kWarpThreads ? left : kWarpThreads;
  block.groups.clear();
  block.shared.clear();
}

void Runner::run_blocks(uint32_t first, uint32_t count) {
  active_.first = first;
  active_.blocks.resize(count);
  for (Block& block : active_.blocks) start(block);
  active_.next = active_.threads = 0;
  size_t used = 0;
  for (uint32_t b = 0; b < count; ++b) {
    active_.threads += call_.grid.threads;
    start_threads(used);
    if (!order_.is_random()) advance(first + order_.of(b, count));
  }
  while (!waiting_.empty() && !error_) {
    bool any = false;
    order_.shuffle(waiting_);
    for (const uint32_t b : order_.of_all(count)) any = advance(first + b) || any;
    if (any) pauses_ = 0;
    else if (!waiting_.empty() && !error_) look_for_progress();
  }
  if (error_) std::rethrow_exception(error_);
}

// Each up to where it waits.
void Runner::start_threads(size_t& used) {
  while (active_.next < active_.threads && !error_) {
    if (used == fibers.size()) fibers.push_back(std::make_unique<Fiber>(fiber_entry));
    Fiber& fiber = *fibers[used];
    enter(fiber);
    if (!fiber.idle) waiting_.push_back(&fiber), ++used;
  }
}

// The block runs until only other blocks can help it: what it does not wait for is not yet done. False: there
// was nothing to do.
bool Runner::advance(uint32_t block) {
  bool any = false;
  do {
    progress_ = false;
    size_t kept = 0;
    for (Fiber* fiber : waiting_) {
      if (!error_ && fiber->block == block && ready(*fiber)) enter(*fiber);
      if (!fiber->idle) waiting_[kept++] = fiber;
    }
    waiting_.resize(kept);
    any = any || progress_;
  } while (progress_ && !error_);
  return any;
}

void Runner::look_for_progress() {
  bool pausing = false;
  for (const Fiber* fiber : waiting_) pausing = pausing || ready(*fiber);
  if (!pausing || (pauses_ += waiting_.size()) > kMostPauses) stuck();
}

void Runner::stuck() const {
  const Fiber& f = *waiting_.front();
  throw RuntimeError(text("threads of a kernel wait for each other in vain: ", waiting_.size(), " of ",
                          active_.threads, ", thread ", f.thread, " of block ", f.block, " among them",
                          f.waits ? ", at a barrier that others have not reached" : ""));
}

void Runner::run_all() {
  const Grid& grid = call_.grid;
  emulation::block_extent = {grid.threads, 1, 1};
  emulation::grid_extent = {grid.blocks, 1, 1};
  if (grid.cooperative) return run_blocks(0, grid.blocks);
  for (const uint32_t b : order_.of_all(grid.blocks)) run_blocks(b, 1);
}

// ---- races

emulation::RaceThread* Runner::race_thread(const void* access) {
  if (!fiber_ || fiber_->idle) return nullptr;
  const char* const at = static_cast<const char*>(access);
  if (at >= fiber_->memory && at < fiber_->memory + page() + kStackBytes) return nullptr;  // its own
  return &fiber_->race;
}

// The kernel's threads are interrupted anywhere, not only where they wait.
void Runner::maybe_pause() {
  if (!order_.interrupts()) return;
  progress_ = true;
  pause();
}

}  // namespace

void run_grid(emulation::Run run, const Grid& grid, void** args, Order order) {
  if (!kSwitches) throw RuntimeError("the emulation of a GPU needs an x86-64 or 64-bit ARM processor");
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const KernelCall call{run, args, grid};
  Runner here(call, order);
  runner = &here;
  struct Ending {
    ~Ending() { runner = nullptr; }
  } ending;
  try {
    here.run_all();
    if (!here.races().found().empty()) throw RuntimeError(here.races().found());
  } catch (...) {  // threads that never ended are given up
    std::erase_if(fibers, [](const std::unique_ptr<Fiber>& fiber) { return !fiber->idle; });
    throw;
  }
}

}  // namespace dyc::cuda

namespace emulation {

using dyc::cuda::runner;

void wait_for_block() {
  RaceThread& thread = runner->fiber().race;
  runner->wait(runner->block().barrier);
  runner->races().met(thread);
}
void wait_for_warp() {
  RaceThread& thread = runner->fiber().race;
  runner->wait(runner->warp().barrier);
  ++thread.warp_meetings;
}
void fence() { runner->races().fence(runner->fiber().race); }
void note_atomic(const void* at) {
  runner->races().atomic(runner->fiber().race, reinterpret_cast<uintptr_t>(at));
}
// A copy may write until its thread has waited for it.
void note_copy(void* to, size_t bytes) {
  for (size_t i = 0; i < bytes / 4; ++i)
    runner->fiber().race.copies.push_back(static_cast<uint32_t*>(to) + i);
}
void note_copy_group() {
  RaceThread& thread = runner->fiber().race;
  thread.copy_groups.push_back(thread.copies.size());
}
void note_copies_ended() { runner->races().all_copied(runner->fiber().race); }
void note_copies_ended(size_t but_groups) { runner->races().copied(runner->fiber().race, but_groups); }
void pause() { runner->pause(); }
void trap() { throw dyc::RuntimeError("a trap"); }

// A thread is at most one exchange ahead of the others of its warp: two sets of slots are enough.
void exchange(const void* mine, void* theirs, uint32_t bytes, uint32_t lane) {
  auto& warp = runner->warp();
  uint64_t* const slots = warp.slots[runner->fiber().exchanges++ % 2];
  std::memcpy(&slots[thread_index.x % kWarpThreads], mine, bytes);
  runner->wait(warp.barrier);
  std::memcpy(theirs, &slots[lane % kWarpThreads], bytes);
}

// Two sets of fragments are enough here, too. It orders no other accesses, as mma.sync does not.
const Fragments* share_fragments(const Fragments& mine) {
  auto& groups = runner->block().groups;
  if (block_extent.x % kTensorThreads)
    throw dyc::RuntimeError("tensor cores: threads are not in groups of 32");
  groups.resize(block_extent.x / kTensorThreads);
  auto& group = groups[thread_index.x / kTensorThreads];
  Fragments* const all = group.fragments[runner->fiber().multiplied++ % 2];
  all[thread_index.x % kTensorThreads] = mine;
  runner->wait(group.barrier);
  return all;
}

void* shared_memory(const void* key, size_t bytes) { return runner->shared(key, bytes); }
void* dynamic_shared_memory() { return runner->dynamic_shared(); }

}  // namespace emulation

#ifdef DYC_RACES

namespace {

void note(void* at, size_t bytes, bool writes) {
  using emulation::runner;
  if (!runner) return;
  if (emulation::RaceThread* const thread = runner->race_thread(at)) {
    runner->maybe_pause();
    runner->races().access(*thread, reinterpret_cast<uintptr_t>(at), bytes, writes);
  }
}

void note_volatile(void* at) {
  using emulation::runner;
  emulation::RaceThread* const thread = runner ? runner->race_thread(at) : nullptr;
  if (thread) runner->races().read_volatile(*thread, reinterpret_cast<uintptr_t>(at));
}

}  // namespace

// What -fsanitize=thread calls.
#define DYC_CALL extern "C" __attribute__((visibility("default"))) void
#define DYC_ACCESS(bytes)                                                     \
  DYC_CALL __tsan_read##bytes(void* at) { note(at, bytes, false); }           \
  DYC_CALL __tsan_write##bytes(void* at) { note(at, bytes, true); }           \
  DYC_CALL __tsan_unaligned_read##bytes(void* at) { note(at, bytes, false); } \
  DYC_CALL __tsan_unaligned_write##bytes(void* at) { note(at, bytes, true); } \
  DYC_CALL __tsan_volatile_read##bytes(void* at) { note_volatile(at); }       \
  DYC_CALL __tsan_volatile_write##bytes(void*) {}
DYC_ACCESS(1)
DYC_ACCESS(2)
DYC_ACCESS(4)
DYC_ACCESS(8)
DYC_ACCESS(16)
DYC_CALL __tsan_read_range(void* at, size_t bytes) { note(at, bytes, false); }
DYC_CALL __tsan_write_range(void* at, size_t bytes) { note(at, bytes, true); }
DYC_CALL __tsan_init() {}
DYC_CALL __tsan_func_entry(void*) {}
DYC_CALL __tsan_func_exit() {}
DYC_CALL __tsan_vptr_update(void*, void*) {}

#endif
