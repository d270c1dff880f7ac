// Op definitions by OpId, as in the names of kernels: unary_forward<OpById<8>>.
#pragma once
#include "ops/table.h"

namespace dyc::cuda {

template <uint32_t Id, class List>
struct OpAt;
template <uint32_t Id, class First, class... Rest>
struct OpAt<Id, OpList<First, Rest...>> : OpAt<Id - 1, OpList<Rest...>> {};
template <class First, class... Rest>
struct OpAt<0, OpList<First, Rest...>> {
  using Op = First;
};
template <uint32_t Id>
using OpById = typename OpAt<Id, AllOps>::Op;

// Attribute words of a row, copied: through a pointer every store to the result might change them.
template <class Op>
struct Attrs {
  static constexpr int count() {
    int n = 0;
    for (const Param& p : Op::params)
      n += p.kind == Param::real || p.kind == Param::uint || p.kind == Param::flag;
    return n;
  }
  float words[count() > 0 ? count() : 1];
  DYC_INLINE explicit Attrs(const uint32_t* from) {
    if constexpr (count() > 0) __builtin_memcpy(words, from, sizeof words);
  }
  DYC_INLINE operator const float*() const { return words; }
};

}  // namespace dyc::cuda
