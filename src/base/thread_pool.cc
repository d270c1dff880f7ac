#include "base/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/platform.h"
#include "base/spin.h"
#include "base/tuning.h"

namespace dyc {

namespace {

using Clock = SharingPayoff::Clock;

using tuning::kMaxThreads, tuning::kSpin;

thread_local bool inside_loop = false;

}  // namespace

// A worker enters a loop by raising `inside` and then looking whether the loop is still open; the caller
// closes the loop and then waits for `inside` to fall to 0. So a worker that wakes late misses the loop, and
// nobody waits for it. 13 fields, as caller and workers share one another's counters.
struct ThreadPool::Workers {
  struct Loop {
    size_t n, grain, chunks, threads;
    Body fn;
    void* context;
  };

  // Chunks of the loop that belong to one thread.
  struct alignas(64) Share {
    std::atomic<size_t> next{0};
    size_t end = 0;
  };

  Workers(int count, SharingPayoff& payoff, std::atomic<int>& awake)
      : spin_time(count > usable_cpus() ? std::chrono::nanoseconds(0) : kSpin),
        shares(static_cast<size_t>(count)),
        payoff(payoff),
        awake(awake) {
    try {
      for (int i = 1; i < count; i++) {
        awake.fetch_add(1);
        workers.emplace_back([this, i] { work(static_cast<size_t>(i)); });
      }
    } catch (const std::system_error&) {
      // The system gives no more threads: those that started, or the caller alone, do the work.
      awake.fetch_sub(1);
    }
  }

  void work(size_t number) {
    inside_loop = true;
    uint32_t seen = 0;
    for (;;) {
      const auto changed = [&] { return state.load() != seen; };
      if (!spin_until(changed, spin_time)) {
        awake.fetch_sub(1);
        state.wait(seen);
        awake.fetch_add(1);
      }
      seen = state.load();
      if (stopping.load()) return;
      if (!(seen & 1)) continue;
      inside.fetch_add(1);
      if (state.load() == seen && number < loop.threads) take_chunks(number);
      inside.fetch_sub(1);
    }
  }

  // First its own share, then what others have not begun. The same chunks fall to the same thread in every
  // loop of so many, so that what it writes in one loop and reads in the next is in the cache of its core.
  // How many it took.
  size_t take_chunks(size_t number) {
    size_t taken = 0;
    for (size_t k = 0; k < loop.threads; k++) {
      Share& share = shares[(number + k) % loop.threads];
      for (size_t i; (i = share.next.fetch_add(1)) < share.end; taken++) {
        try {
          loop.fn(loop.context, i * loop.grain, std::min(loop.n, (i + 1) * loop.grain));
        } catch (...) {
          const std::lock_guard lock(error_mutex);
          if (!error || i < error_chunk) error = std::current_exception(), error_chunk = i;
          for (Share& other : shares) other.next.store(other.end);
        }
      }
    }
    return taken;
  }

  void run(const Loop& new_loop) {
    const auto start = Clock::now();
    loop = new_loop;
    for (size_t t = 0; t < loop.threads; t++) {
      shares[t].next.store(loop.chunks * t / loop.threads, std::memory_order_relaxed);
      shares[t].end = loop.chunks * (t + 1) / loop.threads;
    }
    state.fetch_add(1);  // odd: open
    wake(loop.chunks - 1);
    const auto woken = Clock::now();
    inside_loop = true;
    const int64_t own = static_cast<int64_t>(take_chunks(0));
    inside_loop = false;
    state.fetch_add(1);
    const auto finished = Clock::now();
    while (!spin_until([this] { return inside.load() == 0; }, kSpin)) std::this_thread::yield();
    const int64_t others = static_cast<int64_t>(loop.chunks) - own;
    const auto end = Clock::now();
    payoff.judge(others > 0, (finished - woken) * others / std::max<int64_t>(own, 1),
                 woken - start + (end - finished), end);
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }

  void wake(size_t useful) {
    const size_t asleep = workers.size() - std::min(static_cast<size_t>(awake.load()), workers.size());
    if (asleep == 0) return;
    if (asleep == workers.size()) payoff.wake();
    if (useful >= asleep) state.notify_all();
    else
      for (size_t i = 0; i < useful; i++) state.notify_one();
  }

  void join() {
    stopping.store(true);
    state.fetch_add(2);
    state.notify_all();
    for (auto& worker : workers) worker.join();
  }

  std::chrono::nanoseconds spin_time;
  Loop loop{};
  // Odd while a loop is open; changes with every opening and closing.
  alignas(64) std::atomic<uint32_t> state{0};
  std::atomic<bool> stopping{false};
  std::vector<Share> shares;  // by thread, the caller's first
  alignas(64) std::atomic<int> inside{0};
  std::mutex error_mutex;
  std::exception_ptr error;
  size_t error_chunk = 0;
  SharingPayoff& payoff;    // the pool's
  std::atomic<int>& awake;  // the pool's
  std::vector<std::thread> workers;
};

ThreadPool::ThreadPool(int threads) : threads_(std::clamp(threads, 1, kMaxThreads)) {}
ThreadPool::~ThreadPool() { stop(); }

bool ThreadPool::acquire() { return !busy_.exchange(true); }

void ThreadPool::stop() {
  if (workers_) workers_->join();
  workers_.reset();
  awake_ = 0;
}

void ThreadPool::set_threads(int count) {
  if (count < 1) throw ValueError(text("set_threads(): got ", count, ", wants at least 1"));
  if (inside_loop) throw RuntimeError("set_threads(): called inside a parallel loop");
  count = std::min(count, kMaxThreads);
  while (!acquire()) std::this_thread::yield();
  if (count != threads_) stop();
  threads_ = count;
  busy_ = false;
}

int ThreadPool::threads_for(size_t small_chunks) const {
  const int threads = threads_ - script_busy_;
  if (threads <= 1 || small_chunks <= 1 || inside_loop) return 1;
  return payoff_.pays(small_chunks, awake_.load() == 0, Clock::now()) ? threads : 1;
}

void ThreadPool::run(size_t n, size_t grain, Body fn, void* context, size_t small_chunks) {
  if (n == 0) return;
  grain = std::max<size_t>(grain, 1);
  const size_t chunks = n / grain + (n % grain != 0);
  small_chunks = std::max(chunks, small_chunks);
  const auto alone = [&] {
    for (size_t begin = 0; begin < n; begin += std::min(grain, n - begin))
      fn(context, begin, begin + std::min(grain, n - begin));
  };
  if (threads_ - script_busy_ <= 1 || inside_loop || !acquire()) return alone();
  struct Release {
    std::atomic<bool>& busy;
    ~Release() { busy = false; }
  } release{busy_};
  const int threads = threads_for(small_chunks);
  if (threads == 1 || chunks == 1) {
    if (awake_.load() > 0) return alone();
    const auto begin = Clock::now();
    alone();
    payoff_.count(small_chunks, begin, Clock::now());
    return;
  }
  if (!workers_) workers_ = std::make_unique<Workers>(threads_, payoff_, awake_);
  const size_t most = workers_->shares.size() - static_cast<size_t>(threads_ - threads);
  workers_->run({n, grain, chunks, most, fn, context});
}

void ThreadPool::forget_threads() {
  // Leaked on purpose: destroying a std::thread whose thread is gone would end the process.
  static_cast<void>(workers_.release());
  awake_ = 0;
  busy_ = false;
}

int default_threads() {
  if (const char* value = std::getenv("DYNET_COMPAT_THREADS")) {
    char* end = nullptr;
    const long count = std::strtol(value, &end, 10);
    if (end != value && *end == '\0' && count >= 1)
      return static_cast<int>(std::min<long>(count, kMaxThreads));
  }
  return std::min(usable_cpus(), kMaxThreads);
}

ThreadPool& thread_pool() {
  static ThreadPool pool(default_threads());
  static const int registered = pthread_atfork(nullptr, nullptr, [] { thread_pool().forget_threads(); });
  static_cast<void>(registered);
  return pool;
}

}  // namespace dyc
