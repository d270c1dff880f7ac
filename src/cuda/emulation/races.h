// Finds accesses of a kernel that nothing orders: two threads, the same word, one of them writes. Kernels are
// compiled with -fsanitize=thread, whose calls before each access come here (DYC_RACES): no library of the
// sanitizer is linked.
// Threads of a warp may write the same value to a word.
//
// Threads of a block are ordered by __syncthreads(), those of a warp also by __syncwarp(); not by shuffles.
// What a block wrote before such a barrier is known to another block if a thread of the first fences, then
// changes a counter by an atomic; and a thread of the other reads that, fences, and its block meets.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace emulation {

// Where a thread is.
struct RaceThread {
  uint32_t block = 0, thread = 0, warp = 0;
  uint32_t block_meetings = 0, warp_meetings = 0;  // that it has been to
  std::vector<uint32_t*> copies = {};              // words that are being copied to shared memory
  std::vector<size_t> copy_groups = {};            // numbers of them at the ends of groups
};

class Races {
 public:
  explicit Races(uint32_t blocks) : blocks_(blocks) {}
  void access(const RaceThread& t, uintptr_t at, size_t bytes, bool writes, bool atomic = false);
  void atomic(const RaceThread& t, uintptr_t at);
  void read_volatile(const RaceThread& t, uintptr_t at);
  void fence(const RaceThread& t);
  void met(RaceThread& t);  // with its block
  // The thread has waited for its copies, or for those before the last groups.
  void all_copied(RaceThread& thread);
  void copied(RaceThread& thread, size_t but_groups);
  // Memory that is another's from now on.
  void forget(const void* from, size_t bytes);
  const std::string& found() const { return found_; }  // the first; "": none

 private:
  struct Access {
    uint32_t block, thread, warp, block_meetings, warp_meetings;
    bool atomic;
  };
  struct Word {
    bool written = false;
    Access write = {};
    std::vector<Access> reads = {};
  };
  using Clock = std::unordered_map<uint32_t, uint32_t>;  // meetings of a block, all before which are known
  struct BlockClock {
    Clock known, acquired, fenced;
    uint32_t released = 0;
  };
  static void join(Clock& to, const Clock& from);
  void end_copies(RaceThread& thread, size_t count);
  bool ordered(const Access& before, const Access& now);
  void report(const Access& before, bool wrote, const Access& now, bool writes, uintptr_t at);

  std::unordered_map<uintptr_t, Word> words_;
  std::unordered_map<uintptr_t, Clock> counters_;
  std::vector<BlockClock> blocks_;
  struct Alike {
    uintptr_t at = 0;
    uint32_t value = 0;
    Access before = {}, now = {};
  };
  void check_alike();

  Alike alike_;  // a write that was about to be: of the value that was there?
  std::string found_;
};

}  // namespace emulation
