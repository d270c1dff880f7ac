// A thread that runs tasks one after the other, beside the one that starts them. It begins with the first
// task. A process that forks waits until it is idle; the child's begins again.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

namespace dyc {

class BackgroundThread {
 public:
  // Runs the task after those started before, unless one of these throws. False: the system gives no thread,
  // or no memory.
  bool start(std::function<void()> task);
  // Have all tasks ended?
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }
  void wait() const;
  // What a task has thrown; null: none has. To be called when idle; tasks that are started later run.
  std::exception_ptr take_error();
  // Around a fork: waits, and then holds the lock that the thread takes before it sleeps.
  void before_fork();
  void after_fork() { mutex_.unlock(); }
  // In a forked child, which has no such thread any more: another one with the same error.
  BackgroundThread* for_child() const;

 private:
  struct Queue;  // the thread and what it shares with the one that starts tasks
  void work();
  Queue& queue();

  std::atomic<uint32_t> pending_{0};
  std::mutex mutex_;
  std::exception_ptr error_;
  Queue* queue_ = nullptr;  // never destroyed: the thread waits for tasks until the process ends
};

// That of the process.
BackgroundThread& background_thread();

}  // namespace dyc
