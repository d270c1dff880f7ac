#include "exec/cpu/autotune.h"

#include <algorithm>
#include <bit>
#include <ctime>
#include <memory>
#include <mutex>
#include <random>
#include <unordered_map>

#include "base/thread_pool.h"
#include "exec/profile_trace.h"
#include "graph/intern.h"

namespace dyc {

namespace {

constexpr const char* kKnobNames[kTuningKnobs] = {"block",      "pieces",  "chain",        "back_pieces",
                                                  "back_chain", "product", "back_product", "weight_gradient"};
constexpr const char* kVariantNames[kVariants] = {
    "rule",     "apart",     "alone",     "tile_16",   "tile_32",   "tile_64", "tile_256",
    "tile_512", "tile_1024", "tile_2048", "tile_4096", "tile_8192", "copy",    "direct"};
constexpr int kTiles[kVariants] = {0, 0, 0, 16, 32, 64, 256, 512, 1024, 2048, 4096, 8192, 0, 0};

constexpr size_t kMostRounds = 600;  // that are kept of one piece of work
constexpr size_t kFirstRounds = 1;   // that do not count: memory is touched for the first time
constexpr size_t kMostKeys = 20000;  // that are measured

template <class T, int N>
int number_of(const char* const (&names)[N], const T& name) {
  for (int i = 0; i < N; ++i)
    if (name == names[i]) return i;
  return -1;
}

// ---------------------------------------------------------------- the table

struct Table {
  std::unordered_map<uint64_t, Variant> variants;
  uint32_t knobs = 0;  // that it has lines for
  int threads = 1;
};

struct Entry {  // of what is measured
  TuningKey key;
  uint64_t runs = 0, rounds = 0;
  std::vector<Variant> turn;       // variants that have not run yet in this round
  double seconds[kVariants] = {};  // per node, in this round
  std::vector<float> rule;         // per node, of each round
  std::vector<float> ratios[kVariants];
  int64_t members = 0;  // in all rounds
};

struct State {
  std::mutex mutex;
  std::vector<std::unique_ptr<const Table>> tables;  // all: a thread may be looking into an old one
  std::atomic<const Table*> table{nullptr};
  std::atomic<bool> measuring{false};
  std::atomic<uint64_t> taken{0};
  std::unordered_map<uint64_t, Entry> entries;
  std::minstd_rand draw;
};

State& state() {
  static State& s = *new State;  // threads may outlive main()
  return s;
}

thread_local bool measuring_this_thread = false;  // this thread measures: work within it runs by the rule

constexpr uint32_t kAllKnobs = (1u << kTuningKnobs) - 1;

void note_use(State& s) {  // with the mutex
  const Table* table = s.table;
  tuned_knobs.store(s.measuring ? kAllKnobs : table ? table->knobs : 0, std::memory_order_release);
}

bool key_of(const TuningEntry& line, TuningKey* key, Variant* variant) {
  const int knob = number_of(kKnobNames, line.knob), w = number_of(kVariantNames, line.variant);
  if (knob < 0 || w < 0 || line.size < 0 || line.size > 62) return false;
  key->knob = static_cast<TuningKnob>(knob);
  *variant = static_cast<Variant>(w);
  const auto& variants = variants_of(key->knob);
  if (*variant == Variant::rule || std::find(variants.begin(), variants.end(), *variant) == variants.end())
    return false;
  if (line.ops.size() > TuningKey::kMostOps || line.extents.size() > TuningKey::kMostExtents) return false;
  for (const std::string& name : line.ops) {
    OpId op = 0;
    while (op < kOps && name != op_info(op).meta->name) ++op;
    if (op == kOps) return false;
    key->add_op(op);
  }
  for (const int64_t extent : line.extents) {
    if (extent < 0 || extent > 0x7fffffff) return false;
    key->add_extent(extent);
  }
  key->size = static_cast<uint8_t>(line.size);
  return true;
}

// ---------------------------------------------------------------- numbers

// Nanoseconds: of this thread where it works alone, so that others on the same computer do not count.
int64_t work_clock() {
  if (thread_pool().threads() > 1) return profile_clock();
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

double median(std::vector<float> v) {
  if (v.empty()) return 0;
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

double lowest_third(const std::vector<float>& v) {
  double low = median(v);
  for (size_t i = 0; i < 3; ++i)
    low = std::min(low, median({v.begin() + v.size() * i / 3, v.begin() + v.size() * (i + 1) / 3}));
  return low;
}

void end_round(Entry& e) {
  if (e.rounds++ < kFirstRounds || e.rule.size() >= kMostRounds) return;
  const double rule = e.seconds[0];
  e.rule.push_back(static_cast<float>(rule));
  for (const Variant w : variants_of(e.key.knob))
    e.ratios[static_cast<int>(w)].push_back(static_cast<float>(rule / e.seconds[static_cast<int>(w)]));
}

}  // namespace

const char* name_of(TuningKnob c) { return kKnobNames[static_cast<int>(c)]; }
const char* name_of(Variant w) { return kVariantNames[static_cast<int>(w)]; }

const std::vector<Variant>& variants_of(TuningKnob c) {
  using enum Variant;
  static const std::vector<Variant> columns{rule, separate, tile_16, tile_32, tile_64, tile_256};
  static const std::vector<Variant> floats{rule, separate, tile_512, tile_1024, tile_4096, tile_8192};
  static const std::vector<Variant> back_floats{rule, separate, tile_1024, tile_2048, tile_4096};
  static const std::vector<Variant> copies{rule, copy, direct, alone}, threads{rule, alone};
  switch (c) {
    case TuningKnob::block:
      return columns;
    case TuningKnob::product:
    case TuningKnob::weight_gradient:
      return copies;
    case TuningKnob::back_pieces:
      return back_floats;
    case TuningKnob::back_product:
      return threads;
    default:
      return floats;
  }
}

int64_t tile_of(Variant w, int64_t otherwise) {
  const int tile = kTiles[static_cast<int>(w)];
  return tile ? tile : otherwise;
}

void TuningKey::set_size(int64_t n) {
  members = std::max<int64_t>(n, 1);
  size = static_cast<uint8_t>(std::bit_width(static_cast<uint64_t>(members)) - 1);
}

uint64_t TuningKey::hash() const {
  uint64_t h = mix(static_cast<uint64_t>(knob) << 16 | size << 8 | n_ops, n_extents);
  for (int i = 0; i < n_ops; ++i) h = mix(h, ops[i]);
  for (int i = 0; i < n_extents; ++i) h = mix(h, extents[i]);
  return h;
}

size_t install_tuning_table(const std::vector<TuningEntry>& lines, int threads) {
  auto table = std::make_unique<Table>();
  table->threads = threads;
  size_t odd = 0;
  for (const TuningEntry& line : lines) {
    TuningKey key;
    Variant variant;
    if (!key_of(line, &key, &variant)) {
      ++odd;
      continue;
    }
    table->variants[key.hash()] = variant;
    table->knobs |= 1u << static_cast<int>(key.knob);
  }
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.table = table->variants.empty() ? nullptr : table.get();
  if (s.table) s.tables.push_back(std::move(table));
  note_use(s);
  return odd;
}

void measure_variants(bool on) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (on) s.entries.clear();
  s.measuring = on;
  note_use(s);
}

bool measuring_variants() { return state().measuring; }
uint64_t variants_taken() { return state().taken; }

std::vector<Measurement> measurements() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  std::vector<Measurement> all;
  for (const auto& [hash, e] : s.entries) {
    TuningEntry work;
    work.knob = name_of(e.key.knob);
    for (int i = 0; i < e.key.n_ops; ++i) work.ops.emplace_back(op_info(e.key.ops[i]).meta->name);
    work.extents.assign(e.key.extents, e.key.extents + e.key.n_extents);
    work.size = e.key.size;
    for (const Variant w : variants_of(e.key.knob)) {
      const std::vector<float>& ratios = e.ratios[static_cast<int>(w)];
      if (w == Variant::rule) continue;
      work.variant = name_of(w);
      const double seconds = median(e.rule) * static_cast<double>(e.members) / static_cast<double>(e.runs);
      all.push_back({work, e.runs, ratios.size(), seconds, median(ratios), lowest_third(ratios)});
    }
  }
  return all;
}

void Tuned::begin(const TuningKey& key) {
  State& s = state();
  if (!s.measuring.load(std::memory_order_relaxed)) {
    const Table* table = s.table.load(std::memory_order_acquire);
    if (!table || table->threads != thread_pool().threads()) return;
    const auto found = table->variants.find(key.hash());
    if (found == table->variants.end()) return;
    variant = found->second;
    s.taken.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (measuring_this_thread) return;
  {
    const std::lock_guard lock(s.mutex);
    hash_ = key.hash();
    if (s.entries.size() >= kMostKeys && !s.entries.count(hash_)) return;
    Entry& e = s.entries[hash_];
    if (e.runs++ == 0) e.key = key;
    e.members += key.members;
    if (key.knob == TuningKnob::block && e.runs % 2) return;  // what is within it has its turn
    if (e.turn.empty()) {
      e.turn = variants_of(key.knob);
      std::shuffle(e.turn.begin(), e.turn.end(), s.draw);
    }
    variant = e.turn.back();
  }
  measuring_this_thread = measures_ = true;
  members_ = key.members;
  start_ = work_clock();
}

void Tuned::end() {
  const int64_t stop = work_clock();
  measuring_this_thread = false;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.entries.find(hash_);
  if (found == s.entries.end()) return;
  Entry& e = found->second;
  const auto mine = std::find(e.turn.begin(), e.turn.end(), variant);
  if (mine == e.turn.end()) return;  // another thread was faster
  e.turn.erase(mine);
  e.seconds[static_cast<int>(variant)] =
      1e-9 * static_cast<double>(std::max<int64_t>(stop - start_, 1)) / static_cast<double>(members_);
  if (e.turn.empty()) end_round(e);
}

}  // namespace dyc
