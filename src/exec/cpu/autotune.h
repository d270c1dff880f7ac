// Work that the CPU executor may do in several variants, with the same bits: which variant runs.
//
// Without a tuning table the executor's heuristics choose. A table, which a profile has measured and a hints
// file contains (batching.md 3.6), names other variants for work of some kind and size. It only ever changes
// how fast a launch runs: a product's sums, and what adds to one gradient, keep their order in every variant,
// so a wrong or hostile table costs time and nothing else.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/table.h"

namespace dyc {

// Work that can be done in several variants.
enum class TuningKnob : uint8_t {
  block,            // forward, a fused group with products: how many columns go through all of it at once
  pieces,           // forward, a fused group without: how many floats do
  chain,            // forward, element-wise launches: the same
  back_pieces,      // backward, launches of a fused group between its products
  back_chain,       // backward, element-wise launches
  product,          // W x: W copied or not, shared by threads or not
  back_product,     // W' dy: shared by threads or not
  weight_gradient,  // dy x': dy copied or not, shared by threads or not
  count,
};
inline constexpr int kTuningKnobs = static_cast<int>(TuningKnob::count);

// Ways to do it. A variant that a knob does not have is never taken.
enum class Variant : uint8_t {
  rule,      // as without a table
  separate,  // launch by launch
  alone,     // by one thread, in one go
  tile_16,
  tile_32,
  tile_64,
  tile_256,  // columns of products that go through a fused group at once
  tile_512,
  tile_1024,
  tile_2048,
  tile_4096,
  tile_8192,  // floats that go through a group at once
  copy,
  direct,  // operands of a product that are read many times: copied first, or read in place
  count,
};
inline constexpr int kVariants = static_cast<int>(Variant::count);

const char* name_of(TuningKnob c);
const char* name_of(Variant w);
// The variants that a knob has, the rule first.
const std::vector<Variant>& variants_of(TuningKnob c);
// Columns or floats of a tile; `otherwise` for variants that are no tiles.
int64_t tile_of(Variant w, int64_t otherwise);

// What distinguishes work: the ops of its launches, some dimensions, and the size: nodes
// (of products: columns), by powers of two.
struct TuningKey {
  static constexpr int kMostOps = 24, kMostExtents = 24;
  TuningKnob knob = TuningKnob::block;
  uint8_t n_ops = 0, n_extents = 0, size = 0;
  OpId ops[kMostOps];
  uint32_t extents[kMostExtents];
  int64_t members = 0;  // exactly

  void add_op(OpId op) {
    if (n_ops < kMostOps) ops[n_ops++] = op;
  }
  void add_extent(int64_t extent) {
    if (n_extents < kMostExtents)
      extents[n_extents++] = extent > 0x7fffffff ? 0x7fffffffu : static_cast<uint32_t>(extent);
  }
  void set_size(int64_t n);
  uint64_t hash() const;
};

// One line of a tuning table.
struct TuningEntry {
  std::string knob;
  std::vector<std::string> ops;
  std::vector<int64_t> extents;
  int64_t size = 0;
  std::string variant;
};

// Uses these variants from now on, in loops that so many threads share; returns how many lines were not
// understood and are left out. An empty table: all as the rules say.
size_t install_tuning_table(const std::vector<TuningEntry>& lines, int threads);

// What was measured of one variant, compared with the rule.
struct Measurement {
  TuningEntry work;
  uint64_t runs = 0;    // of the work, in any variant
  uint64_t rounds = 0;  // of all variants, each once
  double seconds = 0;   // of the rule, per run: the median
  double ratio = 0;     // time of the rule / of this variant: the median over the rounds
  double low = 0;       // the smallest of the medians over each third of the rounds
};

// Runs work in all of its variants by turns and times it, in the order of the program; a table is not used
// meanwhile. Off: measuring ends.
void measure_variants(bool on);
// How often a table's variant was taken that is not the rule.
uint64_t variants_taken();
// All work met so far, and what was measured of it.
std::vector<Measurement> measurements();

// Bit c: choice c has a table, or is measured. Read by every thread that computes.
inline std::atomic<uint32_t> tuned_knobs{0};

// Chooses the variant of some work, and times it if that is measured. `describe(key)` describes the
// work.
class Tuned {
 public:
  template <class F>
  Tuned(TuningKnob knob, F&& describe) {
    if (tuned_knobs.load(std::memory_order_acquire) >> static_cast<int>(knob) & 1) [[unlikely]] {
      TuningKey key;
      key.knob = knob;
      describe(key);
      begin(key);
    }
  }
  ~Tuned() {
    if (measures_) [[unlikely]]
      end();
  }
  Tuned(const Tuned&) = delete;
  Tuned& operator=(const Tuned&) = delete;

  Variant variant = Variant::rule;

 private:
  void begin(const TuningKey& key);
  void end();
  bool measures_ = false;
  uint64_t hash_ = 0;
  int64_t members_ = 0, start_ = 0;
};

// Is work being measured? What usually runs together then runs launch by launch.
bool measuring_variants();

}  // namespace dyc
