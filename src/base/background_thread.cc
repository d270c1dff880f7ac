#include "base/background_thread.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <system_error>
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
  Queue* q;
  try {
    q = &queue();
  } catch (const std::system_error&) {
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    q->tasks.push_back(std::move(task));
    pending_.fetch_add(1, std::memory_order_relaxed);
  }
  q->changed.notify_one();
  return true;
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

BackgroundThread* BackgroundThread::renewed() {
  auto* other = new BackgroundThread;
  other->error_ = take_error();
  return other;
}

BackgroundThread& background_thread() {
  static BackgroundThread* thread = nullptr;
  static const int registered = pthread_atfork(
      [] {
        if (thread) thread->wait();
      },
      nullptr,
      [] {
        if (thread) thread = thread->renewed();
      });
  static_cast<void>(registered);
  if (!thread) thread = new BackgroundThread;
  return *thread;
}

}  // namespace dyc
