// A cache in front of the tables of signatures and sites. Both follow from the op, its attributes and, of
// each argument, the signature, the site and what identifies it as a weight; so an op on arguments of the
// same kinds needs one lookup here instead of one in each table. An entry stays valid as long as the tables.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>

namespace dyc {

// What decides a node but for its arguments. Not for nodes with a value number.
struct CachedSignature {
  uint32_t sig, site, size, requires_grad;
};

class RecordCache {
 public:
  static constexpr uint32_t kMostArgs = 3, kMostAttrs = 2;
  // {op, attrs.., per argument: signature * 2 + takes a gradient, site, value number of a weight}
  struct Key {
    uint32_t words[3 + 3 * kMostArgs] = {};
    void head(uint32_t op, uint32_t n_args, const uint32_t* attrs, uint32_t n_attrs) {
      words[0] = op << 8 | n_args << 4 | n_attrs;
      for (uint32_t i = 0; i < n_attrs; ++i) words[1 + i] = attrs[i];
    }
    void argument(uint32_t i, uint32_t signature, uint32_t site, uint32_t weight) {
      uint32_t* const to = words + 3 + 3 * i;
      to[0] = signature;
      to[1] = site;
      to[2] = weight;
    }
    bool operator==(const Key& o) const { return std::memcmp(words, o.words, sizeof words) == 0; }
  };
  struct alignas(64) Entry {  // a line of the processor's cache
    Key key;
    CachedSignature value;
  };

  // Where the key is kept if it is in the cache. No key of an op is all zeros.
  Entry& slot(const Key& key) {
    constexpr uint64_t odd[6] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb,
                                 0xd6e8feb86659fd93, 0xa0761d6478bd642f, 0xe7037ed1a0b428db};
    uint64_t h = 0;
    for (int i = 0; i < 6; ++i) {  // independent multiplications
      const uint64_t w = key.words[2 * i] | uint64_t{key.words[2 * i + 1]} << 32;
      h += (w ^ w >> 32) * odd[i];
    }
    return (*entries_)[h >> (64 - kBits)];
  }
  void clear() { *entries_ = {}; }

 private:
  static constexpr int kBits = 10;
  std::unique_ptr<std::array<Entry, 1u << kBits>> entries_ =
      std::make_unique<std::array<Entry, 1u << kBits>>();
};

}  // namespace dyc
