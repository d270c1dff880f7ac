// Numbers that decide how threads wait for work, and how random numbers are drawn. Guesses, where no
// measurement stands beside them. Results do not depend on them.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace dyc::tuning {

// ---- threads
constexpr int kMaxThreads = 256;
constexpr auto kSpin = std::chrono::microseconds(40);       // that a thread looks for work before it sleeps
constexpr int kSpinChecks = 64;                             // between two readings of the clock
constexpr auto kMostSaved = std::chrono::milliseconds(20);  // by threads, that is set against later waits
constexpr auto kMostLost = std::chrono::milliseconds(1);    // before loops run on one thread
constexpr int kAlone = 16;                                  // for so many times as long
constexpr auto kMostAlone = std::chrono::seconds(1);
constexpr size_t kWorthWaking = 8;  // chunks for which sleeping threads are woken
constexpr uint32_t kMostLate = 4;   // threads that came too late n times are woken for one in 2^n loops

// ---- tables
constexpr uint32_t kSortedRows = 32;  // touched rows are sorted if they are one in so many, or fewer

// ---- buffers of parameters (base/lasting_memory.h), in bytes
constexpr size_t kLastingChunk = size_t{4} << 20;  // two huge pages of most systems
constexpr size_t kLeastLasting = 4096, kMostLasting = kLastingChunk / 4;
constexpr size_t kLastingShift =
    832;  // between buffers: those of one size begin in different sets of the cache

// ---- random numbers
constexpr size_t kDraws = 256;  // drawn at a time, so that the loops over them vectorise

}  // namespace dyc::tuning
