// A cache in front of the tables of signatures and sites. Both follow from the op, its attributes and, of
// each argument, the signature, the site and what identifies it as a weight; so an op on arguments of the
// same kinds needs one lookup here instead of one in each table. An entry stays valid as long as the tables.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "graph/intern.h"
#include "graph/tuning.h"

namespace dyc {

// What decides a node but for its arguments. Not for nodes with a value number.
struct CachedSignature {
  uint32_t sig, site, size, requires_grad;
};

class RecordCache {
 public:
  static constexpr uint32_t kMostArgs = 3, kMostAttrs = 2;
  // Only as many arguments as the op has are set, hashed and compared.
  struct Key {
    uint64_t head[2] = {};
    uint64_t args[kMostArgs];
    uint64_t hash = 0;
    // `words`: the attributes or, of a product, the value numbers of its weights.
    void set_head(uint32_t op, uint32_t n_args, uint32_t n_attrs, const uint32_t (&words)[kMostAttrs]) {
      head[0] = op << 8 | n_args << 4 | n_attrs | uint64_t{words[0]} << 32;
      head[1] = words[1];
      hash += head[0] * kOdd[0] + head[1] * kOdd[1];
    }
    // `signature`: twice its number, and 1 where the argument takes a gradient.
    void set_argument(uint32_t i, uint32_t signature, uint32_t site) {
      args[i] = signature | uint64_t{site} << 32;
      hash += args[i] * kOdd[2 + i];
    }
  };
  struct alignas(64) Entry {  // a line of the processor's cache
    uint64_t head[2] = {};    // of no op all zeros
    uint64_t args[kMostArgs] = {};
    CachedSignature value = {};
    bool holds(const Key& key, uint32_t n_args) const {
      bool equal = head[0] == key.head[0] && head[1] == key.head[1];
      for (uint32_t i = 0; i < n_args; ++i) equal = equal && args[i] == key.args[i];
      return equal;
    }
    void set(const Key& key, uint32_t n_args, const CachedSignature& of) {
      std::copy_n(key.head, 2, head);
      std::copy_n(key.args, n_args, args);
      value = of;
    }
  };

  // Where the key is kept if it is in the cache.
  Entry& slot(const Key& key) { return (*entries_)[key.hash >> (64 - tuning::kCachedSignatures)]; }

  // Ops of more arguments or attributes, up to these numbers: their keys are lists of words, in a table.
  static constexpr uint32_t kMostListed = 16, kMostListedAttrs = 8;
  struct ListKey {
    uint32_t words[2 + kMostListedAttrs + 3 * kMostListed];
    uint32_t n = 0;
    uint64_t hash = 0;
    void add(uint32_t word) { words[n++] = word; }
  };
  const CachedSignature* find(ListKey& key) const {
    const uint32_t known = lists_.find(key.words, key.n, &key.hash);
    return known == InternTable::kNone ? nullptr : &of_lists_[known];
  }
  // After find() of this key found none.
  void set(const ListKey& key, const CachedSignature& of) {
    if (of_lists_.size() == tuning::kMostListKeys) clear_lists();
    lists_.add(key.words, key.n, key.hash);
    of_lists_.push_back(of);
  }

  void clear() {
    *entries_ = {};
    clear_lists();
  }

 private:
  void clear_lists() {
    lists_.clear();
    of_lists_.clear();
  }
  static constexpr uint64_t kOdd[2 + kMostArgs] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb,
                                                   0xd6e8feb86659fd93, 0xa0761d6478bd642f};
  std::unique_ptr<std::array<Entry, 1u << tuning::kCachedSignatures>> entries_ =
      std::make_unique<std::array<Entry, 1u << tuning::kCachedSignatures>>();
  InternTable lists_;
  std::vector<CachedSignature> of_lists_;  // by number in lists_
};

}  // namespace dyc
