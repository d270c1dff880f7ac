// The pieces of a custom launch as the kernels see them: items (m, b), batch item b of the result of one
// node.
#pragma once
#include "cpu/isa/gemm_common.h"
#include "ops/conv.h"

namespace dyc::DYC_ISA {

// A node with an input, a filter and perhaps a bias; each with batch 1 or that of the result.
struct Item {
  const KernelArgs* m;
  int64_t b;
  const float* x() const { return at(0); }
  const float* f() const { return at(1); }
  const float* bias() const { return m->n > 2 ? at(2) : nullptr; }
  float* y() const { return m->out() + b * static_cast<int64_t>(m->ys()); }
  const float* dy() const { return m->dy + b * static_cast<int64_t>(m->ys()); }
  float* dx() const { return m->dx + place(0); }
  float* df() const { return m->dx + place(1); }
  float* dbias() const { return m->dx + place(2); }

 private:
  int64_t place(uint32_t i) const { return m->xd[i]->bd > 1 ? b * static_cast<int64_t>(m->xs(i)) : 0; }
  const float* at(uint32_t i) const { return m->x[i] + place(i); }
};

template <class T> DYC_INLINE T* room(Scratch& scratch, int64_t n) {
  return reinterpret_cast<T*>(scratch.get((n * static_cast<int64_t>(sizeof(T)) + 3) / 4));
}

// Runs of neighbours. Most are shorter than a vector, and stores under a mask are slow.
DYC_INLINE void copy_run(float* to, const float* from, int64_t n) {
  for (; n >= kLanes; n -= kLanes, to += kLanes, from += kLanes) store(to, load<V>(from));
  for (; n >= 4; n -= 4, to += 4, from += 4)
    *reinterpret_cast<V4Loose*>(to) = *reinterpret_cast<const V4Loose*>(from);
  for (int64_t i = 0; i < n && i < 3; i++) to[i] = from[i];
}
DYC_INLINE void add_run(float* to, const float* from, int64_t n) {
  for (; n >= kLanes; n -= kLanes, to += kLanes, from += kLanes) store(to, load<V>(to) + load<V>(from));
  for (; n >= 4; n -= 4, to += 4, from += 4)
    *reinterpret_cast<V4Loose*>(to) += *reinterpret_cast<const V4Loose*>(from);
  for (int64_t i = 0; i < n && i < 3; i++) to[i] += from[i];
}

// Collects items in memory that stays with the thread until its next list.
class ItemList {
 public:
  explicit ItemList(int64_t most) {
    static thread_local Scratch scratch;
    items_ = room<Item>(scratch, most);
  }
  void add(const KernelArgs& m, Range items) {
    for (int64_t b = items.begin; b < items.end; b++) items_[n_++] = {&m, b};
  }
  const Item* items() const { return items_; }
  int64_t size() const { return n_; }

 private:
  Item* items_;
  int64_t n_ = 0;
};

DYC_INLINE int64_t total_items(const KernelArgs* m, int64_t n) {
  int64_t total = 0;
  for (int64_t i = 0; i < n; i++) total += m[i].yd->bd;
  return total;
}

// The part of `pieces` in [begin, begin + count), counted from begin.
DYC_INLINE Range part_of(Range pieces, int64_t begin, int64_t count) {
  const int64_t from = pieces.begin - begin, to = pieces.end - begin;
  return {from < 0 ? 0 : from, min_of(to, count)};
}

// Pieces of the results: batch items.
inline const Item* result_items(const KernelArgs* m, int64_t n, Range pieces, int64_t* count) {
  ItemList list(total_items(m, n));
  for (int64_t i = 0, begin = 0; i < n; begin += m[i].yd->bd, i++)
    list.add(m[i], part_of(pieces, begin, m[i].yd->bd));
  *count = list.size();
  return list.items();
}

// Pieces of the gradient of argument `arg` that are its batch items: all items that add to them.
inline const Item* gradient_items(const KernelArgs* m, int64_t n, uint32_t arg, bool shared, Range pieces,
                                  int64_t* count) {
  ItemList list(total_items(m, n));
  for (int64_t i = 0, begin = 0; i < n; i++) {
    const int64_t batch = m[i].xd[arg]->bd;
    const Range part = part_of(pieces, begin, batch);
    if (part.begin < part.end) list.add(m[i], batch > 1 ? part : Range{0, m[i].yd->bd});
    if (!shared) begin += batch;
  }
  *count = list.size();
  return list.items();
}

// f(items, count, filters) for pieces of the gradient of the filters (argument 1), which are blocks of
// kFilterPiece filters, batch item by batch item.
template <class F>
DYC_INLINE void each_filter_range(const KernelArgs* m, int64_t n, int64_t filters, bool shared, Range pieces,
                                  F f) {
  const int64_t step = shared ? n : 1, blocks = filter_pieces(static_cast<uint32_t>(filters));
  for (int64_t i = 0, begin = 0; i < n; i += step) {
    const int64_t batch = m[i].xd[1]->bd;
    for (int64_t fb = 0; fb < batch; fb++, begin += blocks) {
      const Range part = part_of(pieces, begin, blocks);
      if (part.begin >= part.end) continue;
      ItemList list(total_items(m + i, step));
      for (int64_t j = i; j < i + step; j++)
        list.add(m[j], batch > 1 ? Range{fb, fb + 1} : Range{0, m[j].yd->bd});
      f(list.items(), list.size(),
        Range{part.begin * kFilterPiece, min_of(filters, part.end * kFilterPiece)});
    }
  }
}

}  // namespace dyc::DYC_ISA
