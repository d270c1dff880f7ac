// What a profile records: spans of time, one buffer per thread.
//
// A thread attaches its trace to its own engine, so the executor asks a plain pointer whether anybody
// listens. The buffer has a lock: the thread that ends the profile drains it while its own thread may still
// add to it.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "plan/launch.h"

namespace dyc {

// The profile that is on; 0: none. Written under the interpreter lock.
inline std::atomic<uint32_t> profile_session{0};

// Nanoseconds of std::chrono::steady_clock.
int64_t profile_clock();

struct ProfileSpan {
  enum Kind : uint8_t { call, record, plan, forward, backward, launch, back_launch, weights, kernel };
  Kind kind = call;
  bool failed = false;     // it ended by an exception
  bool mixed = false;      // launches: nodes of several dimensions
  uint8_t n_operands = 0;  // operands described by `modes`
  const char* name = "";   // static
  int64_t begin = 0, end = 0;
  uint32_t graph = 0;            // which renewal
  uint32_t site = kNone;         // calls: line of the script
  uint32_t nodes = 0;            // recorded, planned, computed
  uint32_t ops = 0, n_ops = 0;   // launches that run together: ProfileTrace::ops()
  uint32_t shapes = kNone;       // ProfileTrace::texts()
  uint32_t m = 0, n = 0, k = 0;  // matrix kernels
  uint64_t modes = 0;            // Operand::Kind, four bits each
  double flops = 0, bytes = 0;   // estimates

  // Adds a product of {m,k} by {k,n}.
  void add_product(double rows, double columns, double inner) {
    flops += 2.0 * rows * columns * inner;
    bytes += 4.0 * (rows * inner + columns * inner + rows * columns);
  }
};

class ProfileTrace {
 public:
  // At most `most` spans are kept, the rest is counted.
  ProfileTrace(uint64_t thread, std::string thread_name, size_t most)
      : thread(thread), thread_name(std::move(thread_name)), most_(most), resumed_(profile_clock()) {}

  const uint64_t thread;  // Python's number of it
  const std::string thread_name;

  // Times something, also if it ends by an exception. A null trace: nothing happens.
  class Scope {
   public:
    Scope(ProfileTrace* trace, ProfileSpan::Kind kind, const char* name) : trace_(trace) {
      if (trace_) [[unlikely]]
        open(kind, name);
    }
    ~Scope() {
      if (trace_) [[unlikely]]
        close();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    void nodes(size_t n) {
      if (span_) span_->nodes = static_cast<uint32_t>(n);
    }
    // The kernel multiplies {m,k} by {k,n}, and nothing else.
    void product(int64_t m, int64_t n, int64_t k) {
      if (!span_) [[likely]]
        return;
      span_->m = static_cast<uint32_t>(m), span_->n = static_cast<uint32_t>(n);
      span_->k = static_cast<uint32_t>(k);
      add_product(m, n, k);
    }
    // One of several.
    void add_product(int64_t m, int64_t n, int64_t k) {
      if (span_) [[unlikely]]
        span_->add_product(static_cast<double>(m), static_cast<double>(n), static_cast<double>(k));
    }
    void site(uint32_t number) {
      if (span_) span_->site = number;
    }

   private:
    void open(ProfileSpan::Kind kind, const char* name);
    void close();
    ProfileTrace* trace_;
    std::optional<ProfileSpan> span_;
    int exceptions_ = 0;
  };

  // A launch: adds the names and sizes of what runs together and the dimensions of its first signature.
  void add_launch(ProfileSpan span, const Graph& graph, const Launch* launches,
                  const std::vector<int64_t>& sizes);
  // Node `id` was recorded. Stretches of recording become spans: see profile_trace.cc.
  void recorded(NodeId id, uint32_t leaf_floats);
  // Nodes up to `size` were recorded in bulk, without a call of recorded() for each.
  void recorded_until(NodeId size);
  // The graph has this number and size from now on.
  void renewed(uint32_t graph, NodeId size, bool signatures_forgotten);

  // Everything so far; what is added later is dropped.
  struct Contents {
    std::vector<ProfileSpan> spans;
    std::vector<OpId> ops;
    std::vector<int64_t>
        sizes;  // of each of `ops`: floats of its results or its arguments, whichever is more
    std::vector<std::string> texts;
    uint64_t dropped = 0;
  };
  Contents drain();

 private:
  void end_recording();
  void keep(const ProfileSpan& span);
  uint32_t shapes_of(const Graph& graph, uint32_t sig);

  std::mutex mutex_;
  const std::thread::id owner_ = std::this_thread::get_id();
  const size_t most_;
  bool closed_ = false;
  Contents contents_;
  std::vector<uint32_t> shapes_;  // by signature: text, or kNone
  uint32_t graph_ = 0;

  // ---- the current stretch of recording
  ProfileSpan stretch_;  // without nodes: there is none
  int64_t resumed_;      // end of what this thread did last: recording, or one of our functions
  NodeId next_ = 0;      // the number that the next node gets, if no builder records several
};

}  // namespace dyc
