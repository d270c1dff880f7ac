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
constexpr auto kLongWait = std::chrono::microseconds(300);  // for a thread that was taken off its processor
constexpr uint32_t kMostAlone = 4096;                       // loops that run on one thread after such waits
constexpr size_t kWorthWaking = 8;                          // chunks for which sleeping threads are woken

// ---- random numbers
constexpr size_t kDraws = 256;  // drawn at a time, so that the loops over them vectorise

}  // namespace dyc::tuning
