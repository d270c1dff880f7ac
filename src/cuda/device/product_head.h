// What a block knows of a launch of products. All of a short description comes by one load, to shared memory,
// instead of one dependent load after the other: arguments, products, product, terms. For kernels only.
#pragma once
#include "cuda/abi/products.h"
#include "cuda/device/grid.h"

namespace dyc::cuda {

template <class T>
constexpr uint32_t kWords = sizeof(T) / sizeof(uint64_t);
// A copy by all threads of the block.
DYC_INLINE void copy_words(uint64_t* to, const void* from, uint32_t words) {
  const auto* const all = static_cast<const uint64_t*>(from);
  for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) copy_async(to + i, all + i);
}

constexpr uint32_t kHeadWords = kHeadBytes / sizeof(uint64_t);
constexpr uint32_t kHeadProducts = (kHeadWords - kWords<Products>) / kWords<Product>;

struct ProductHead {
  uint64_t words[kHeadWords];                                 // Products and what follows
  uint64_t own_product[kWords<Product>];                      // of the tile, where it is beyond these
  uint64_t own_term[kWords<Term>];                            // likewise
  uint64_t own_followers[kMostFollowers * kWords<Follower>];  // of the tile's product

  DYC_INLINE const Products& all() const { return *reinterpret_cast<const Products*>(words); }
  DYC_INLINE const Product* products() const {
    return reinterpret_cast<const Product*>(words + kWords<Products>);
  }

  // Term k of the launch, for all threads.
  DYC_INLINE const Term& term(uint32_t k) {
    const uint32_t at = kWords<Products> + all().count * kWords<Product> + k * kWords<Term>;
    if (at + kWords<Term> <= kHeadWords) return *reinterpret_cast<const Term*>(words + at);
    return copied(own_term, in_device_memory(all().terms) + k);
  }

  // The product that a tile belongs to, for all threads. A search reads one product after the other, which
  // takes as long as a small tile where there are many of them.
  DYC_INLINE const Product& product(uint32_t tile) {
    if (all().count == 1) return *products();
    uint32_t low = 0, high = all().count;  // products[low].tile <= tile < products[high].tile
    if (all().each) low = tile / all().each;
    while (!all().each && high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      const uint32_t first =
          middle < kHeadProducts ? products()[middle].tile : in_device_memory(all().products)[middle].tile;
      if (first <= tile) low = middle;
      else high = middle;
    }
    return at(low);
  }

  // What follows a product begins to come.
  DYC_INLINE void fetch_followers(const Product& p) {
    if (!p.follower_count) return;
    __syncthreads();  // those before have been read
    copy_words(own_followers, in_device_memory(p.followers), p.follower_count * kWords<Follower>);
  }
  DYC_INLINE const Follower* wait_for_followers() const {
    wait_for_copies();
    __syncthreads();
    return reinterpret_cast<const Follower*>(own_followers);
  }

 private:
  DYC_INLINE const Product& at(uint32_t number) {
    if (number < kHeadProducts) return products()[number];
    return copied(own_product, in_device_memory(all().products) + number);
  }
  template <class T>
  static DYC_INLINE const T& copied(uint64_t (&to)[kWords<T>], const T* from) {
    __syncthreads();  // the one before has been read
    copy_words(to, from, kWords<T>);
    wait_for_copies();
    __syncthreads();
    return *reinterpret_cast<const T*>(to);
  }
};

// Of the launch that the block begins with.
DYC_INLINE ProductHead& read_head(const Products* record) {
  DYC_SHARED(ProductHead, head, 1);
  copy_words(head->words, in_device_memory(record), kHeadWords);
  wait_for_copies();
  __syncthreads();
  return *head;
}

}  // namespace dyc::cuda
