// A small pool of threads that share the chunks of one loop at a time.
//
// Chunk boundaries depend on n and grain only, so a loop whose chunks are independent gives the same result
// with any number of threads. Threads start at the first loop that can use them, spin shortly after each loop
// and then sleep. A forked child starts threads of its own when it needs them.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <type_traits>

#include "base/sharing_payoff.h"

namespace dyc {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  // Threads that work on a loop, the caller included; at least 1. Waits for a running loop; not inside one.
  void set_threads(int count);

  // True: the thread of the script does something else meanwhile, so that loops get one thread less. For
  // speed only.
  void set_script_busy(bool busy) { script_busy_ = busy; }

  // Threads that a loop would be shared by if it were cut, 1 if that does not pay; `small_chunks` as below.
  // To be asked where loops are cut in other ways for several threads, which one thread is slower with.
  int threads_for(size_t small_chunks) const;

  // fn(context, begin, end) for the chunks [0, grain), [grain, 2 grain) ... of [0, n), the caller taking
  // part. If chunks throw, rethrows the exception of the first of those that ran; others may not run any
  // more. Inside a loop, and while another thread runs a loop, all chunks run on the caller. `small_chunks`:
  // how many chunks there would be if each were just large enough for a thread.
  using Body = void (*)(void* context, size_t begin, size_t end);
  void run(size_t n, size_t grain, Body fn, void* context, size_t small_chunks);

  // In a forked child: forgets the threads, which exist in the parent only.
  void forget_threads();

 private:
  struct Workers;  // the threads and what they share
  bool acquire();
  void stop();

  std::atomic<int> threads_;
  std::atomic<bool> script_busy_{false};
  std::atomic<bool> busy_{false};
  std::atomic<int> awake_{0};  // workers that run, or look for work
  SharingPayoff payoff_;
  std::unique_ptr<Workers> workers_;
};

// The pool of the process.
ThreadPool& thread_pool();
inline void set_threads(int count) { thread_pool().set_threads(count); }
// DYNET_COMPAT_THREADS, or the number of CPUs that this process may run on.
int default_threads();

// f(begin, end) for each chunk. Loops of fewer and larger chunks than their work could be cut into say how
// many these were: threads that sleep are woken for enough work only.
template <class F>
void parallel_for(size_t n, size_t grain, F&& f, size_t small_chunks = 0) {
  if (n == 0) return;
  if (n <= grain && small_chunks <= 1) {
    f(size_t{0}, n);
    return;
  }
  using Fn = std::remove_reference_t<F>;
  const ThreadPool::Body body = [](void* context, size_t begin, size_t end) {
    (*static_cast<Fn*>(context))(begin, end);
  };
  thread_pool().run(n, grain, body, const_cast<void*>(static_cast<const void*>(&f)), small_chunks);
}

}  // namespace dyc
