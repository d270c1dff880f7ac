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

constexpr const char* kChoiceNames[kChoices] = {"block",      "pieces",  "chain",        "back_pieces",
                                                "back_chain", "product", "back_product", "weight_gradient"};
constexpr const char* kWayNames[kWays] = {"rule",      "apart",     "alone",    "tile_16",   "tile_32",
                                          "tile_64",   "tile_256",  "tile_512", "tile_1024", "tile_2048",
                                          "tile_4096", "tile_8192", "copy",     "direct"};
constexpr int kTiles[kWays] = {0, 0, 0, 16, 32, 64, 256, 512, 1024, 2048, 4096, 8192, 0, 0};

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
  std::unordered_map<uint64_t, Way> ways;
  uint32_t choices = 0;  // that it has lines for
  int threads = 1;
};

struct Entry {  // of what is measured
  WorkKey key;
  uint64_t runs = 0, rounds = 0;
  std::vector<Way> turn;       // ways that have not run yet in this round
  double seconds[kWays] = {};  // per member, in this round
  std::vector<float> rule;     // per member, of each round
  std::vector<float> ratios[kWays];
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

thread_local bool in_hand = false;  // this thread measures: work within it runs by the rule

constexpr uint32_t kAllChoices = (1u << kChoices) - 1;

void note_use(State& s) {  // with the mutex
  const Table* table = s.table;
  choices_on.store(s.measuring ? kAllChoices : table ? table->choices : 0, std::memory_order_release);
}

bool key_of(const ChosenWay& line, WorkKey* key, Way* way) {
  const int choice = number_of(kChoiceNames, line.choice), w = number_of(kWayNames, line.way);
  if (choice < 0 || w < 0 || line.size < 0 || line.size > 62) return false;
  key->choice = static_cast<Choice>(choice);
  *way = static_cast<Way>(w);
  const auto& ways = ways_of(key->choice);
  if (*way == Way::rule || std::find(ways.begin(), ways.end(), *way) == ways.end()) return false;
  if (line.ops.size() > WorkKey::kMostOps || line.extents.size() > WorkKey::kMostExtents) return false;
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
  for (const Way w : ways_of(e.key.choice))
    e.ratios[static_cast<int>(w)].push_back(static_cast<float>(rule / e.seconds[static_cast<int>(w)]));
}

}  // namespace

const char* name_of(Choice c) { return kChoiceNames[static_cast<int>(c)]; }
const char* name_of(Way w) { return kWayNames[static_cast<int>(w)]; }

const std::vector<Way>& ways_of(Choice c) {
  using enum Way;
  static const std::vector<Way> columns{rule, apart, tile_16, tile_32, tile_64, tile_256};
  static const std::vector<Way> floats{rule, apart, tile_512, tile_1024, tile_4096, tile_8192};
  static const std::vector<Way> back_floats{rule, apart, tile_1024, tile_2048, tile_4096};
  static const std::vector<Way> copies{rule, copy, direct, alone}, threads{rule, alone};
  switch (c) {
    case Choice::block:
      return columns;
    case Choice::product:
    case Choice::weight_gradient:
      return copies;
    case Choice::back_pieces:
      return back_floats;
    case Choice::back_product:
      return threads;
    default:
      return floats;
  }
}

int64_t tile_of(Way w, int64_t otherwise) {
  const int tile = kTiles[static_cast<int>(w)];
  return tile ? tile : otherwise;
}

void WorkKey::set_size(int64_t n) {
  members = std::max<int64_t>(n, 1);
  size = static_cast<uint8_t>(std::bit_width(static_cast<uint64_t>(members)) - 1);
}

uint64_t WorkKey::hash() const {
  uint64_t h = mix(static_cast<uint64_t>(choice) << 16 | size << 8 | n_ops, n_extents);
  for (int i = 0; i < n_ops; ++i) h = mix(h, ops[i]);
  for (int i = 0; i < n_extents; ++i) h = mix(h, extents[i]);
  return h;
}

size_t install_choices(const std::vector<ChosenWay>& lines, int threads) {
  auto table = std::make_unique<Table>();
  table->threads = threads;
  size_t odd = 0;
  for (const ChosenWay& line : lines) {
    WorkKey key;
    Way way;
    if (!key_of(line, &key, &way)) {
      ++odd;
      continue;
    }
    table->ways[key.hash()] = way;
    table->choices |= 1u << static_cast<int>(key.choice);
  }
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.table = table->ways.empty() ? nullptr : table.get();
  if (s.table) s.tables.push_back(std::move(table));
  note_use(s);
  return odd;
}

void measure_choices(bool on) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (on) s.entries.clear();
  s.measuring = on;
  note_use(s);
}

bool measuring_choices() { return state().measuring; }
uint64_t choices_taken() { return state().taken; }

std::vector<MeasuredWay> measured_choices() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  std::vector<MeasuredWay> all;
  for (const auto& [hash, e] : s.entries) {
    ChosenWay work;
    work.choice = name_of(e.key.choice);
    for (int i = 0; i < e.key.n_ops; ++i) work.ops.emplace_back(op_info(e.key.ops[i]).meta->name);
    work.extents.assign(e.key.extents, e.key.extents + e.key.n_extents);
    work.size = e.key.size;
    for (const Way w : ways_of(e.key.choice)) {
      const std::vector<float>& ratios = e.ratios[static_cast<int>(w)];
      if (w == Way::rule) continue;
      work.way = name_of(w);
      const double seconds = median(e.rule) * static_cast<double>(e.members) / static_cast<double>(e.runs);
      all.push_back({work, e.runs, ratios.size(), seconds, median(ratios), lowest_third(ratios)});
    }
  }
  return all;
}

void Choosing::begin(const WorkKey& key) {
  State& s = state();
  if (!s.measuring.load(std::memory_order_relaxed)) {
    const Table* table = s.table.load(std::memory_order_acquire);
    if (!table || table->threads != thread_pool().threads()) return;
    const auto found = table->ways.find(key.hash());
    if (found == table->ways.end()) return;
    way = found->second;
    s.taken.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (in_hand) return;
  {
    const std::lock_guard lock(s.mutex);
    hash_ = key.hash();
    if (s.entries.size() >= kMostKeys && !s.entries.count(hash_)) return;
    Entry& e = s.entries[hash_];
    if (e.runs++ == 0) e.key = key;
    e.members += key.members;
    if (key.choice == Choice::block && e.runs % 2) return;  // what is within it has its turn
    if (e.turn.empty()) {
      e.turn = ways_of(key.choice);
      std::shuffle(e.turn.begin(), e.turn.end(), s.draw);
    }
    way = e.turn.back();
  }
  in_hand = measures_ = true;
  members_ = key.members;
  start_ = work_clock();
}

void Choosing::end() {
  const int64_t stop = work_clock();
  in_hand = false;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.entries.find(hash_);
  if (found == s.entries.end()) return;
  Entry& e = found->second;
  const auto mine = std::find(e.turn.begin(), e.turn.end(), way);
  if (mine == e.turn.end()) return;  // another thread was faster
  e.turn.erase(mine);
  e.seconds[static_cast<int>(way)] =
      1e-9 * static_cast<double>(std::max<int64_t>(stop - start_, 1)) / static_cast<double>(members_);
  if (e.turn.empty()) end_round(e);
}

}  // namespace dyc
