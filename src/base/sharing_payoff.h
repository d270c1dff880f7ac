// Does it take less time to share a loop with the other threads of the pool?
//
// Threads that sleep are woken for enough work only, as that takes tens of microseconds: loops that follow
// one another at once are counted together, and a pause in which threads would fall asleep again begins a new
// count. Where they came too late, as other processes have the processors, ever fewer loops wake them until
// one does that they took part in.
//
// A thread may also lose its processor in the middle of a chunk, for which the caller then waits. When waking
// and waiting have cost more time than the threads saved, the caller runs loops alone for a while, and for
// twice as long if that soon happens again.
//
// Any thread may ask; one at a time tells how loops went.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/tuning.h"

namespace dyc {

class SharingPayoff {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::duration;

  // A loop of so many chunks, with threads that sleep or not.
  bool pays(size_t chunks, bool asleep, Clock::time_point now) const {
    if (now < at(alone_until_)) return false;
    return !asleep || (skipped_.load(kRelaxed) == 0 && counted(now) + chunks >= tuning::kWorthWaking);
  }

  // The caller ran a loop alone while the threads slept.
  void count(size_t chunks, Clock::time_point begin, Clock::time_point end) {
    size_t sum = counted(begin) + chunks;
    if (sum >= tuning::kWorthWaking) {
      if (const uint32_t left = skipped_.load(kRelaxed)) skipped_.store(left - 1, kRelaxed);
      sum = 0;
    }
    counted_.store(sum, kRelaxed);
    set(counted_until_, end + tuning::kSpin);
  }

  // Threads are woken: in vain, until they take part.
  void wake() {
    counted_.store(0, kRelaxed);
    late_ = std::min(late_ + 1, tuning::kMostLate);
    skipped_.store((1U << late_) - 1, kRelaxed);
  }

  // A loop was shared, of which other threads did some chunks or none.
  void judge(bool took_part, Time saved, Time lost, Clock::time_point now) {
    if (took_part) {
      late_ = 0;
      skipped_.store(0, kRelaxed);
    }
    balance_ = std::min(balance_ + saved - lost, Time(tuning::kMostSaved));
    if (balance_ > -Time(tuning::kMostLost)) return;
    const bool again = now < at(alone_until_) + alone_for_;
    alone_for_ = std::max(again ? 2 * alone_for_ : Time{}, -tuning::kAlone * balance_);
    alone_for_ = std::min(alone_for_, Time(tuning::kMostAlone));
    set(alone_until_, now + alone_for_);
    balance_ = {};
  }

 private:
  using Moment = std::atomic<Clock::rep>;
  static constexpr auto kRelaxed = std::memory_order_relaxed;

  static Clock::time_point at(const Moment& m) { return Clock::time_point(Time(m.load(kRelaxed))); }
  static void set(Moment& m, Clock::time_point time) { m.store(time.time_since_epoch().count(), kRelaxed); }
  size_t counted(Clock::time_point now) const {
    return now < at(counted_until_) ? counted_.load(kRelaxed) : 0;
  }

  std::atomic<size_t> counted_{0};    // chunks that the caller ran alone, one loop soon after the other
  Moment counted_until_{0};           // later ones begin a new count
  std::atomic<uint32_t> skipped_{0};  // loops that could wake threads, until one does
  uint32_t late_ = 0;                 // how often they came too late since they took part
  Time balance_{}, alone_for_{};      // saved less lost; how long loops are left to the caller
  Moment alone_until_{0};
};

}  // namespace dyc
