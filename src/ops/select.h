// Ops that pick parts of a tensor. Indices are kept per node (KernelArgs::ids) and checked when computed.
#pragma once
#include "ops/op.h"
#include "ops/shape.h"

namespace dyc {

// x seen from one axis: elements before it, along it, after it (within one batch item).
struct AxisView {
  size_t inner = 1, size, outer = 1;
  DYC_INLINE AxisView(const Dim& x, uint32_t axis) : size(x[axis]) {
    for (uint32_t i = 0; i < x.nd; ++i)
      if (i != axis) (i < axis ? inner : outer) *= x.d[i];
  }
};

inline void check_ids(const KernelArgs& m, const char* op, uint32_t limit, const char* what) {
  for (uint32_t i = 0; i < m.n_ids; ++i)
    if (m.ids[i] >= limit)
      throw ValueError(text(op, "(): expected ", what, " < ", limit, ", got ", m.ids[i]));
}

// attrs {dim, number of indices}: the number is 0 (or left out) for pick, where one index serves all batch
// items, and the length of the list for pick_batch, which is recorded as this op. {..,k,..}xB -> {..,..}xB.
// With one index the result is a contiguous part of x if dim is the last dimension that is not 1 and x has
// batch 1: it starts at index * (product of the dimensions before dim).
struct Pick : Moves<Pick> {
  static constexpr Meta meta = Meta::per_node("pick", "pick(x, index)", Reads::none).shared_by_warps();
  static constexpr ColumnRole column_role = ColumnRole::picks;
  static constexpr Param params[] = {{"e"}, {"index", Param::index, 0}, {"dim", Param::uint, 0}};
  static Dim shape(const ShapeArgs& s) {
    const Dim& x = s[0];
    const uint32_t axis = s.attrs[0], n = s.n_attrs > 1 ? s.attrs[1] : 0;
    if (axis >= x.nd) shape_error(s, text("dim ", axis, " to be a dimension of the argument"));
    if (n && x.bd != 1 && x.bd != n) shape_error(s, text("batch size 1 or as many as the ", n, " indices"));
    Dim r;
    for (uint32_t i = 0; i < x.nd; ++i)
      if (i != axis) r.d[r.nd++] = x.d[i];
    if (r.nd == 0) r.d[r.nd++] = 1;
    r.bd = n ? n : x.bd;
    return r;
  }
  static void check(const KernelArgs& m, const char* op) {
    check_ids(m, op, (*m.xd[0])[m.attrs[0]], "index");
  }

  template <class I, bool add>
  static DYC_INLINE void run(const KernelArgs& m) {
    const AxisView v(*m.xd[0], m.attrs[0]);
    const size_t item = m.xd[0]->bd > 1 ? v.inner * v.size * v.outer : 0, part = v.inner * v.outer;
    const uint32_t batch = m.yd->bd, next = m.n_ids > 1 ? 1 : 0;
    for (uint32_t b = 0; b < batch; ++b) {
      const size_t from = b * item + v.inner * m.ids[b * next], to = b * part, step = v.inner * v.size;
      if constexpr (add) {
        move_runs<I, true>(m.dx + from, m.dy + to, v.inner, v.outer, step, v.inner);
      } else {
        move_runs<I, false>(m.out() + to, m.x[0] + from, v.inner, v.outer, v.inner, step);
      }
    }
  }
};

// attrs {s, e, d}: the part [s, e) along dimension d. Contiguous in x if d is the last dimension that is not
// 1 and x has batch 1: it starts at s * (product of the dimensions before d).
struct PickRange : Moves<PickRange> {
  static constexpr Meta meta = Meta::per_node("pick_range", "x[s:e]", Reads::none).shared_by_warps();
  static constexpr Param params[] = {{"x"}, {"s", Param::uint}, {"e", Param::uint}, {"d", Param::uint, 0}};
  static Dim shape(const ShapeArgs& s) {
    const uint32_t from = s.attrs[0], to = s.attrs[1], axis = s.attrs[2];
    if (axis >= s[0].nd) shape_error(s, text("d = ", axis, " to be a dimension of the argument"));
    if (from >= to || to > s[0].d[axis])
      shape_error(s, text("s < e <= ", s[0].d[axis], " for s = ", from, ", e = ", to, ", d = ", axis));
    Dim r = s[0];
    r.d[axis] = to - from;
    return r;
  }
  template <class I, bool add>
  static DYC_INLINE void run(const KernelArgs& m) {
    const AxisView v(*m.xd[0], m.attrs[2]);
    const size_t item = v.inner * v.size, part = v.inner * (m.attrs[1] - m.attrs[0]),
                 n = v.outer * m.xd[0]->bd;
    const size_t from = v.inner * m.attrs[0];
    if constexpr (add) move_runs<I, true>(m.dx + from, m.dy, part, n, item, part);
    else move_runs<I, false>(m.out(), m.x[0] + from, part, n, part, item);
  }
};

// attrs {n, strides..., n, from..., n, to...}: int values, one entry per dimension and then the batch;
// missing entries are 1, 0 and the size. A result of the shape of x means that everything was
// selected: the result is then x itself (the recorded function may make it a view).
struct StridedSelect : Moves<StridedSelect> {
  static constexpr Meta meta =
      Meta::per_node("strided_select", "x[from:to:stride]", Reads::none).shared_by_warps().hide();
  static constexpr Param params[] = {{"x"}};

  struct Lists {
    const uint32_t *strides, *from, *to;
    uint32_t n_strides, n_from, n_to;
    DYC_INLINE explicit Lists(const uint32_t* a) {
      n_strides = *a++, strides = a, a += n_strides;
      n_from = *a++, from = a, a += n_from;
      n_to = *a++, to = a;
    }
    DYC_INLINE int64_t stride(uint32_t i) const {
      return i < n_strides ? static_cast<int32_t>(strides[i]) : 1;
    }
    DYC_INLINE int64_t first(uint32_t i) const { return i < n_from ? static_cast<int32_t>(from[i]) : 0; }
    DYC_INLINE int64_t end(uint32_t i, uint32_t size) const {
      return i < n_to ? static_cast<int32_t>(to[i]) : static_cast<int64_t>(size);
    }
  };

  static Dim shape(const ShapeArgs& s) {
    const Lists l(s.attrs);
    Dim r = s[0];
    const uint32_t most = r.nd + 1;
    if (l.n_strides > most || l.n_from > most || l.n_to > most)
      shape_error(s, text("at most ", most, " entries (one per dimension, one for the batch)"));
    for (uint32_t i = 0; i <= r.nd; ++i) {
      uint32_t& size = i < r.nd ? r.d[i] : r.bd;
      const int64_t stride = l.stride(i), from = l.first(i), to = l.end(i, size);
      const std::string at = i < r.nd ? text(" in dimension ", i) : std::string(" in the batch");
      if (stride <= 0) shape_error(s, text("stride > 0", at, ", not ", stride));
      if (from < 0 || from >= size) shape_error(s, text("0 <= from < ", size, at, ", not ", from));
      if (to <= 0 || to > size) shape_error(s, text("0 < to <= ", size, at, ", not ", to));
      if (from >= to) shape_error(s, text("from < to", at, ", not ", from, " and ", to));
      size = static_cast<uint32_t>((to - from + stride - 1) / stride);
    }
    return r;
  }
  // Also gives the position of the first element.
  static DYC_INLINE Walk walk_of(const KernelArgs& m, size_t& first) {
    const Lists l(m.attrs);
    const Dim &x = *m.xd[0], &y = *m.yd;
    Walk w;
    size_t step = 1;
    first = 0;
    for (uint32_t i = 0; i <= x.nd; ++i) {
      w.axis(i < x.nd ? y.d[i] : y.bd, step * static_cast<size_t>(l.stride(i)));
      first += step * static_cast<size_t>(l.first(i));
      if (i < x.nd) step *= x.d[i];
    }
    return w;
  }
  template <class I, bool add>
  static DYC_INLINE void run(const KernelArgs& m) {
    size_t first;
    const Walk w = walk_of(m, first);
    if constexpr (add) walk<I, true>(w, m.dx + first, m.dy);
    else walk<I, false>(w, m.out(), m.x[0] + first);
  }
};

// attrs {number of rows}. x {r,..}xB -> {n,..}xB
struct SelectRows {
  static constexpr Meta meta = Meta::per_node("select_rows", "x[rs, :]", Reads::none).shared_by_warps();
  static constexpr Param params[] = {{"x"}, {"rs", Param::indices}};
  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd == 0) shape_error(s, "at least one dimension");
    if (s.attrs[0] == 0) shape_error(s, "at least one row index");
    Dim r = s[0];
    r.d[0] = s.attrs[0];
    return r;
  }
  static void check(const KernelArgs& m, const char* op) { check_ids(m, op, m.xd[0]->rows(), "row index"); }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t rows = m.xd[0]->rows(), n = m.n_ids, cols = m.xd[0]->size() / rows;
    if constexpr (is_thread_group<I>) {
      each_one<I>(n * cols, [&](size_t i) DYC_LAMBDA {
        const size_t c = static_cast<uint32_t>(i) / m.n_ids;
        m.out()[i] = m.x[0][c * rows + m.ids[i - c * n]];
      });
      return;
    }
    for (size_t c = 0; c < cols; ++c) {
      float* const y = m.out() + c * n;
      const float* const x = m.x[0] + c * rows;
      for (size_t i = 0; i < n; ++i) y[i] = x[m.ids[i]];
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const size_t rows = m.xd[0]->rows(), n = m.n_ids, cols = m.xd[0]->size() / rows;
    each_one<I>(cols, [&](size_t c) DYC_LAMBDA {  // a row may be listed twice
      const float* const dy = m.dy + c * n;
      float* const dx = m.dx + c * rows;
      for (size_t i = 0; i < n; ++i) dx[m.ids[i]] += dy[i];
    });
  }
};

// attrs {number of columns}. x {r,c}xB -> {r,n}xB
struct SelectCols {
  static constexpr Meta meta = Meta::per_node("select_cols", "x[:, cs]", Reads::none).shared_by_warps();
  static constexpr Param params[] = {{"x"}, {"cs", Param::indices}};
  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd != 2) shape_error(s, "a matrix");
    if (s.attrs[0] == 0) shape_error(s, "at least one column index");
    Dim r = s[0];
    r.d[1] = s.attrs[0];
    return r;
  }
  static void check(const KernelArgs& m, const char* op) {
    check_ids(m, op, m.xd[0]->cols(), "column index");
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t rows = m.xd[0]->rows();
    if constexpr (is_thread_group<I>) {
      for (uint32_t b = 0; b < m.yd->bd; ++b)
        each_one<I>(m.ys(), [&](size_t i) DYC_LAMBDA {
          const size_t c = static_cast<uint32_t>(i) / static_cast<uint32_t>(rows);
          m.yb(b)[i] = m.xb(0, b)[m.ids[c] * rows + (i - c * rows)];
        });
      return;
    }
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      for (uint32_t i = 0; i < m.n_ids; ++i)
        copy_span<I>(m.yb(b) + i * rows, m.xb(0, b) + m.ids[i] * rows, rows);
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const size_t rows = m.xd[0]->rows();
    for (uint32_t b = 0; b < m.yd->bd; ++b)
      for (uint32_t i = 0; i < m.n_ids; ++i)
        add_span<I>(m.dxb(0, b) + m.ids[i] * rows, m.dyb(b) + i * rows, rows);
  }
};

// attrs {number of items}; pick_batch_elem is this op with one index. x {..}xB -> {..}xn
struct PickBatchElems {
  static constexpr Meta meta =
      Meta::per_node("pick_batch_elems", "x[batch items vs]", Reads::none).shared_by_warps();
  static constexpr Param params[] = {{"x"}, {"vs", Param::indices}};
  static Dim shape(const ShapeArgs& s) {
    if (s.attrs[0] == 0) shape_error(s, "at least one batch index");
    Dim r = s[0];
    r.bd = s.attrs[0];
    return r;
  }
  static void check(const KernelArgs& m, const char* op) { check_ids(m, op, m.xd[0]->bd, "batch index"); }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t n = m.ys();
    for (uint32_t i = 0; i < m.n_ids; ++i) copy_span<I>(m.out() + i * n, m.x[0] + m.ids[i] * n, n);
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const size_t n = m.ys();
    for (uint32_t i = 0; i < m.n_ids; ++i) add_span<I>(m.dx + m.ids[i] * n, m.dy + i * n, n);
  }
};

// attrs {nrows}: row i of the result is the sum of nrows consecutive rows. x {n*k,c}xB -> {k,c}xB
struct FoldRows {
  static constexpr Meta meta = Meta::per_node("fold_rows", "fold_rows(x)", Reads::none).shared_by_warps();
  static constexpr Param params[] = {{"x"}, {"nrows", Param::uint, 2}};
  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd > 2) shape_error(s, "at most 2 dimensions");
    if (s.attrs[0] == 0 || s[0].rows() % s.attrs[0])
      shape_error(s, text("a number of rows that nrows = ", s.attrs[0], " divides"));
    return Dim({s[0].rows() / s.attrs[0], s[0].cols()}, s[0].bd);
  }
  // Columns and batch items are stored one after the other: groups of nrows elements all the way through.
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t k = m.attrs[0];
    each_one<I>(m.yd->size(), [&](size_t i) DYC_LAMBDA {
      const float* const x = m.x[0] + i * k;
      float sum = x[0];
      for (size_t j = 1; j < k; ++j) sum += x[j];
      m.out()[i] = sum;
    });
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    const size_t k = m.attrs[0];
    each_one<I>(m.yd->size(), [&](size_t i) DYC_LAMBDA {
      float* const dx = m.dx + i * k;
      for (size_t j = 0; j < k; ++j) dx[j] += m.dy[i];
    });
  }
};

// The ops of this file, in the order of their numbers.
using SelectOps = OpList<Pick, PickRange, StridedSelect, SelectRows, SelectCols, PickBatchElems, FoldRows>;

}  // namespace dyc
