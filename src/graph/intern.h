// Interning of short word sequences: equal keys get equal small numbers, for ever. Full keys are
// compared; the hash only finds the slot.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dyc {

inline uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

class InternTable {
 public:
  // `slots`: at first, a power of two.
  explicit InternTable(uint32_t slots = 256) : slots_(slots, kNone), mask_(slots - 1) {}
  static constexpr uint32_t kNone = 0xffffffffu;

  // Number of the key, or kNone; `hash` is kept for add().
  uint32_t find(const uint32_t* key, uint32_t n, uint64_t* hash) const {
    const uint64_t h = *hash = hash_of(key, n);
    for (uint64_t s = h;; ++s) {
      const uint32_t id = slots_[s & mask_];
      if (id == kNone) return kNone;
      const InternedKey& e = entries_[id];
      if (e.hash == h && e.n == n && equal(words_.data() + e.begin, key, n)) return id;
    }
  }
  uint32_t add(const uint32_t* key, uint32_t n, uint64_t hash) {
    const uint32_t id = static_cast<uint32_t>(entries_.size());
    entries_.push_back({hash, static_cast<uint32_t>(words_.size()), n});
    words_.insert(words_.end(), key, key + n);
    if (entries_.size() * 2 > slots_.size()) grow();
    else place(hash, id);
    return id;
  }
  uint32_t intern(const uint32_t* key, uint32_t n, bool* fresh = nullptr) {
    uint64_t hash;
    uint32_t id = find(key, n, &hash);
    if (fresh) *fresh = id == kNone;
    return id == kNone ? add(key, n, hash) : id;
  }
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }
  size_t bytes() const {
    return slots_.capacity() * sizeof(uint32_t) + entries_.capacity() * sizeof(InternedKey) +
           words_.capacity() * sizeof(uint32_t);
  }
  // Numbers begin at 0 again; the memory is kept.
  void clear() {
    if (entries_.empty()) return;
    slots_.assign(slots_.size(), kNone);
    entries_.clear();
    words_.clear();
  }

 private:
  // Two independent chains of multiplications, as each multiplication waits for the one before it.
  static uint64_t hash_of(const uint32_t* key, uint32_t n) {
    uint64_t a = n, b = ~uint64_t{n};
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) {
      a = mix(a, key[i] | uint64_t{key[i + 1]} << 32);
      b = mix(b, key[i + 2] | uint64_t{key[i + 3]} << 32);
    }
    for (; i < n; ++i) a = mix(a, key[i]);
    return mix(a, b);
  }
  static bool equal(const uint32_t* a, const uint32_t* b, uint32_t n) {  // keys are short: no call
    for (uint32_t i = 0; i < n; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }
  struct InternedKey {
    uint64_t hash;
    uint32_t begin, n;
  };
  void place(uint64_t hash, uint32_t id) {
    uint64_t s = hash;
    while (slots_[s & mask_] != kNone) ++s;
    slots_[s & mask_] = id;
  }
  void grow() {
    slots_.assign(slots_.size() * 2, kNone);
    mask_ = slots_.size() - 1;
    for (uint32_t i = 0; i < entries_.size(); ++i) place(entries_[i].hash, i);
  }
  std::vector<uint32_t> slots_;
  uint64_t mask_;
  std::vector<InternedKey> entries_;
  std::vector<uint32_t> words_;
};

}  // namespace dyc
