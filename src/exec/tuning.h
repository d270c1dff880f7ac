// Numbers that decide what is computed before the script asks for it, what a profile counts as recording, and
// how often a device's parameters are copied to the host. Guesses: chosen by reasoning, and not measured
// since. Results do not depend on them.
#pragma once
#include <cstdint>

namespace dyc::tuning {

// ---- reads
constexpr uint32_t kArgmaxRun = 32;  // values compared at once with the largest so far, which seldom changes
constexpr uint32_t kFirstWindow = 32;     // values of one site that are computed together when one is read
constexpr uint32_t kWindowGrowth = 4;     // times as many when they are read, too
constexpr uint32_t kMostAhead = 1 << 20;  // values of one site, at most
constexpr uint32_t kMostMisses = 10;      // a site that guesses wrong n times is left alone for 2^n - 1 reads

// ---- profiles: nanoseconds. Recording a node takes less than kPerNode, the Python around it included, and
// making an input of n numbers less than n * kPerNumber. After a longer pause the script did something else.
constexpr int64_t kPause = 20000, kPerNode = 1000, kPerNumber = 100;
// What they take at least: the first node of a stretch began so long before it was there.
constexpr int64_t kLeastPerNode = 50, kLeastPerNumber = 1;

// ---- copies: floats of a copy worth handing to a thread, and of a row whose elements threads share
constexpr int64_t kCopiedFloats = 128 * 1024;
constexpr size_t kSharedRow = 2048;

// ---- devices
constexpr uint64_t kSnapshotEvery = 256;  // updates between host snapshots of a device's parameters

}  // namespace dyc::tuning
