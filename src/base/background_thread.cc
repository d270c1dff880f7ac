#include "base/background_thread.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include "base/spin.h"

namespace dyc {

struct BackgroundThread::Queue {
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
};

BackgroundThread::Queue& BackgroundThread::queue() {
  if (queue_) return *queue_;
  auto made = std::make_unique<Queue>();
  queue_ = made.get();
  try {
    std::thread([this] { work(); }).detach();
  } catch (...) {
    queue_ = nullptr;
    throw;
  }
  return *made.release();
}

bool BackgroundThread::start(std::function<void()> task) {
  try {
    Queue& q = queue();
    {
      const std::lock_guard lock(mutex_);
      q.tasks.push_back(std::move(task));
      pending_.fetch_add(1, std::memory_order_relaxed);
    }
    q.changed.notify_one();
    return true;
  } catch (const std::exception&) {  // no memory, or no more threads
    return false;
  }
}

void BackgroundThread::work() {
  Queue& q = *queue_;
  for (;;) {
    spin_until([this] { return pending_.load() != 0; }, tuning::kSpin);
    std::unique_lock lock(mutex_);
    q.changed.wait(lock, [&q] { return !q.tasks.empty(); });
    std::function<void()> task = std::move(q.tasks.front());
    q.tasks.pop_front();
    const bool skipped = error_ != nullptr;
    lock.unlock();
    if (!skipped) {
      try {
        task();
      } catch (...) {
        const std::lock_guard relock(mutex_);
        error_ = std::current_exception();
      }
    }
    task = nullptr;
    if (pending_.fetch_sub(1, std::memory_order_release) == 1) pending_.notify_all();
  }
}

void BackgroundThread::wait() const {
  if (spin_until([this] { return idle(); }, tuning::kSpin)) return;
  for (uint32_t left = pending_.load(std::memory_order_acquire); left != 0;
       left = pending_.load(std::memory_order_acquire))
    pending_.wait(left, std::memory_order_acquire);
}

std::exception_ptr BackgroundThread::take_error() {
  const std::lock_guard lock(mutex_);
  return std::exchange(error_, nullptr);
}

void BackgroundThread::before_fork() {
  wait();
  mutex_.lock();
}

BackgroundThread* BackgroundThread::for_child() const {
  auto* other = new BackgroundThread;
  other->error_ = error_;
  return other;
}

BackgroundThread& background_thread() {
  static BackgroundThread& first = *new BackgroundThread;
  static BackgroundThread* thread = &first;
  static const int registered =
      pthread_atfork([] { thread->before_fork(); }, [] { thread->after_fork(); },
                     [] { thread = thread->for_child(); });  // the lock of the parent's is left
  static_cast<void>(registered);
  return *thread;
}

}  // namespace dyc
