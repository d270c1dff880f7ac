// Numbers that decide what is computed ahead of being asked for. Guesses: chosen by reasoning, and not
// measured since. Results do not depend on them.
#pragma once
#include <cstdint>

namespace dyc::tuning {

constexpr uint32_t kArgmaxRun = 32;  // values compared at once with the largest so far, which seldom changes
constexpr uint32_t kFirstWindow = 32;     // values of one site that are computed together when one is read
constexpr uint32_t kWindowGrowth = 4;     // times as many when they are read, too
constexpr uint32_t kMostAhead = 1 << 20;  // values of one site, at most
constexpr uint32_t kMostMisses = 10;      // a site that guesses wrong n times is left alone for 2^n - 1 reads

}  // namespace dyc::tuning
