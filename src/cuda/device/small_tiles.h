// Tiles of kSmallTile x kSmallTile elements, for kernels/matmul.cu: where there are few tiles, four times as
// many of them keep more multiprocessors busy. A group's inner indices, and their order, are those of a tile
// of kTile.
//
// A stage is what all groups multiply of both factors at once. While one is multiplied, the next ones come.
// For kernels only.
#pragma once
#include "cuda/device/product_head.h"
#include "cuda/device/product_tiles.h"

namespace dyc::cuda {

constexpr int kSmallSide = 8, kSmallGroup = kSmallSide * kSmallSide;  // threads of a group; each makes 2 x 2
constexpr int kStageInner = kDepth * static_cast<int>(kBlock) / kSmallGroup;
// Floats from one of a factor's rows to the next in shared memory: rows of 16 elements at one inner index, or
// all inner indices of a row.
template <bool Inner>
constexpr int small_step() {
  return Inner ? kSmallTile : kStageInner + 4;
}
constexpr int kSmallPart = kSmallTile * small_step<false>();  // floats of one factor
constexpr int kSmallFloats = kSmallStages * 2 * kSmallPart;
static_assert(kSmallPart >= kStageInner * small_step<true>());
static_assert(kStageInner * kSmallTile == 4 * static_cast<int>(kBlock));  // a thread copies four of a part

// A thread's share of one factor: four elements of each stage. Inner: as in Loader.
template <bool Inner>
class SmallStream {
 public:
  DYC_INLINE SmallStream(int thread, int64_t first, int64_t count)
      : across_(thread / kAlong), along_(thread % kAlong * 4) {
    if constexpr (Inner) {
      left_ = count - first - along_;
      from_ = first + along_;
    } else {
      left_ = count - first - across_;
      from_ = first + (left_ > 0 ? across_ : 0);
    }
  }
  DYC_INLINE void begin(const Matrix<const float>& m, int64_t inner) {
    matrix_ = m;
    if constexpr (Inner) look_up(0, inner);
    else column_ = column(m, from_) + along_;
  }
  // Begins to copy the stage from inner index k0 on; zero beyond the factor's ends.
  DYC_INLINE void fetch(int64_t k0, int64_t inner, float* part) {
    float* const to = part + across_ * small_step<Inner>() + along_;
    if constexpr (Inner) {
      copy(to, in_device_memory(matrix_.base) + at_ + from_, k0 + across_ < inner ? left_ : 0);
      look_up(k0 + kStageInner, inner);
    } else {
      copy(to, column_ + k0, left_ > 0 ? inner - k0 - along_ : 0);
    }
  }

 private:
  static constexpr int kAlong = (Inner ? kSmallTile : kStageInner) / 4;
  // The column of the stage from k0 on, before it is copied: an index takes as long as what it is for.
  DYC_INLINE void look_up(int64_t k0, int64_t inner) {
    const int64_t k = k0 + across_;
    if (!matrix_.index) at_ = k * matrix_.stride;
    else if (k < inner) at_ = in_device_memory(matrix_.index)[k];
  }
  static DYC_INLINE void copy(float* to, const float* from, int64_t left) {
    if (left >= 4 && aligned(from)) {
      copy_async(reinterpret_cast<Four*>(to), reinterpret_cast<const Four*>(from));
    } else {
      DYC_UNROLL(1)
      for (int u = 0; u < 4; ++u)
        if (u < left) copy_async(to + u, from + u);
        else to[u] = 0.f;
    }
  }

  const int across_, along_;
  int64_t from_, left_;
  int64_t at_ = 0;
  const float* column_ = nullptr;
  Matrix<const float> matrix_{};
};

// Both factors of some terms, stage by stage.
template <bool AInner, bool BInner>
class SmallStages {
 public:
  DYC_INLINE SmallStages(ProductHead& head, const Product& p, int64_t i0, int64_t j0, float* memory)
      : head_(head),
        memory_(memory),
        a_(static_cast<int>(thread_now()), i0, p.m),
        b_(static_cast<int>(thread_now()), j0, p.n) {}

  // Adds terms [first, end): add(part of A, part of B) for each stage.
  template <class Add>
  DYC_INLINE void run(uint32_t first, uint32_t end, Add add) {
    next_ = first;
    end_ = end;
    k0_ = inner_ = 0;
    int left = 0;     // stages that have begun to come, and were not multiplied
    __syncthreads();  // what was there has been read
    DYC_UNROLL(1)
    for (int s = 1 - kSmallStages; s < 0 || left > 0; ++s) {
      if (s >= 0) {
        wait_for_copies_but<kSmallStages - 2>();
        __syncthreads();  // this stage is there, the one before has been multiplied
      }
      left += fetch();
      if (s < 0) continue;
      add(memory_ + now_, memory_ + now_ + kSmallPart);
      now_ = after(now_);
      --left;
    }
  }

 private:
  static DYC_INLINE int after(int buffer) {
    return buffer + 2 * kSmallPart < kSmallFloats ? buffer + 2 * kSmallPart : 0;
  }
  // Begins to copy the next stage. 0: there is none.
  DYC_INLINE int fetch() {
    while (k0_ >= inner_ && next_ < end_) {
      const Term& term = head_.term(next_++);
      k0_ = 0;
      inner_ = term.inner;
      if (inner_ == 0) continue;
      a_.begin(term.a, inner_);
      b_.begin(term.b, inner_);
    }
    const bool more = k0_ < inner_;
    if (more) {
      float* const to = memory_ + to_;
      a_.fetch(k0_, inner_, to);
      b_.fetch(k0_, inner_, to + kSmallPart);
      k0_ += kStageInner;
      to_ = after(to_);
    }
    end_copy_group();
    return more;
  }

  ProductHead& head_;
  float* const memory_;
  SmallStream<AInner> a_;
  SmallStream<BInner> b_;
  uint32_t next_ = 0, end_ = 0;
  int64_t k0_ = 0, inner_ = 0;
  int now_ = 0, to_ = 0;  // buffers: that is multiplied, that comes
};

struct alignas(8) Two {
  float at[2];
};
// A thread has two rows: of factors counted by the inner index neighbours, else the same ones of both halves.
template <bool Inner>
DYC_INLINE int small_row(int thread, int u) {
  return Inner ? 2 * thread + u : thread + kSmallSide * u;
}
// Their elements at inner indices k to k + 3.
template <bool Inner>
DYC_INLINE void read_small(const float* part, int thread, int k, float (&to)[2][4]) {
  if constexpr (Inner) {
    for (int q = 0; q < 4; ++q) {
      const Two two = *reinterpret_cast<const Two*>(part + (k + q) * small_step<true>() + 2 * thread);
      to[0][q] = two.at[0];
      to[1][q] = two.at[1];
    }
  } else {
    for (int u = 0; u < 2; ++u) {
      const Four row = four(part + small_row<false>(thread, u) * small_step<false>() + k);
      for (int q = 0; q < 4; ++q) to[u][q] = row.at[q];
    }
  }
}

// Adds the group's share of a stage to the thread's elements.
template <bool AInner, bool BInner>
DYC_INLINE void multiply_small(const float* a, const float* b, Two (&sum)[2]) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int x = thread % kSmallSide, y = thread / kSmallSide % kSmallSide, group = thread / kSmallGroup;
  DYC_UNROLL(2)
  for (int k = kDepth * group; k < kDepth * group + kDepth; k += 4) {
    float row[2][4], column[2][4];
    read_small<AInner>(a, x, k, row);
    read_small<BInner>(b, y, k, column);
    for (int q = 0; q < 4; ++q)
      for (int v = 0; v < 2; ++v)
        for (int u = 0; u < 2; ++u) sum[v].at[u] = vfma(row[u][q], column[v][q], sum[v].at[u]);
  }
}

// Where the thread's sums are while those of all groups are added up, and which elements these are.
DYC_INLINE void put_small(float* memory, const Two (&sum)[2]) {
  const auto thread = static_cast<int>(threadIdx.x);
  float* const mine = memory + thread / kSmallGroup * kSmallTile * kSmallTile + thread % kSmallGroup * 2;
  for (int v = 0; v < 2; ++v) *reinterpret_cast<Two*>(mine + v * 2 * kSmallGroup) = sum[v];
}
template <bool AInner, bool BInner>
DYC_INLINE void small_element(int e, int& row, int& column) {
  const int thread = e / 2 % kSmallGroup;
  row = small_row<AInner>(thread % kSmallSide, e % 2);
  column = small_row<BInner>(thread / kSmallSide, e / (2 * kSmallGroup));
}

}  // namespace dyc::cuda
