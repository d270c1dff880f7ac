// Matrix products of a launch: one GEMM per weight over the columns of all members, or member by
// member where nothing is shared.
#include <cstring>

#include "base/thread_pool.h"
#include "exec/executor.h"

namespace dyc {

namespace {

constexpr int64_t kParallelFlops = 400000;  // multiply-adds worth handing to a thread

void add(float* to, const float* from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += from[i];
}

// Chunk of `n` units so that a chunk does at least kParallelFlops multiply-adds; a multiple of `unit`.
size_t grain_of(int64_t n, int64_t flops, int64_t unit) {
  const int64_t chunks = std::max<int64_t>(1, std::min<int64_t>(flops / kParallelFlops, 64));
  const int64_t grain = (n + chunks - 1) / chunks;
  return static_cast<size_t>((grain + unit - 1) / unit * unit);
}

}  // namespace

// The columns of operand k over all members, in member order.
Executor::Columns Executor::columns(const Launch& l, const Operand& o, uint32_t k,
                                    std::vector<int64_t>& room) const {
  const Sig& first = graph_.sig_number(l.sig);
  const int64_t rows = first.x[k]->rows();
  Columns c;
  c.base = o.base;
  c.stride = rows;
  if (o.kind == Operand::contiguous) {
    c.count = 0;
    if (l.uniform) c.count = int64_t{l.count} * first.x[k]->size() / rows;
    else
      for (uint32_t i = 0; i < l.count; ++i) c.count += item(l, i).sig->x[k]->size() / rows;
    return c;
  }
  bool single = true;
  for (uint32_t i = 0; i < (l.uniform ? 1 : l.count); ++i)
    single = single && item(l, i).sig->x[k]->size() == size_t(rows);
  if (single) {
    c.count = l.count;
    c.stride = o.kind == Operand::strided ? o.stride : 0;
    if (o.kind == Operand::indexed) {
      c.index = plan_.index.data() + o.index;
      c.base = 0;
    }
    return c;
  }
  room.clear();
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    const int64_t at = argument(l, o, i), n = it.sig->x[k]->size() / rows;
    for (int64_t j = 0; j < n; ++j) room.push_back(at + j * rows);
  }
  c.base = 0;
  c.index = room.data();
  c.count = static_cast<int64_t>(room.size());
  return c;
}

void Executor::gemm_nn(int64_t m, int64_t k, const float* w, const Columns& x, const ConstCols& start,
                       const Columns& y) {
  float* base = graph_.values_arena.base();
  const ConstCols xc{base + x.base, x.stride, x.index};
  const Cols yc{base + y.base, y.stride, y.index};
  const int64_t n = y.count, flops = m * k * n;
  if (n >= 32) {
    parallel_for(n, grain_of(n, flops, 16), [&](size_t begin, size_t end) {
      kernels_.gemm->nn({0, m}, {int64_t(begin), int64_t(end)}, k, w, m, xc, start, yc);
    });
  } else {
    parallel_for(m, grain_of(m, flops, 64), [&](size_t begin, size_t end) {
      kernels_.gemm->nn({int64_t(begin), int64_t(end)}, {0, n}, k, w, m, xc, start, yc);
    });
  }
}

void Executor::gemm_tn(int64_t m, int64_t k, const float* w, const Columns& dy, const Columns& dx) {
  const ConstCols dyc{grads() + dy.base, dy.stride, dy.index};
  const Cols dxc{grads() + dx.base, dx.stride, dx.index};
  const int64_t n = dy.count, flops = m * k * n;
  // Columns of dx may repeat, so threads share rows of dx, never columns.
  parallel_for(k, grain_of(k, flops, 16), [&](size_t begin, size_t end) {
    kernels_.gemm->tn({int64_t(begin), int64_t(end)}, {0, n}, m, w, m, dyc, dxc);
  });
}

void Executor::run_matmul(const Launch& l) {
  if (graph_.sig_number(l.sig).columns) return run_matmul_columns(l);
  for (uint32_t i = 0; i < l.count; ++i) run_matmul_member(l, i);
}

void Executor::run_matmul_columns(const Launch& l) {
  const Sig& sig = graph_.sig_number(l.sig);
  const bool affine = l.op == op_id<Affine>;
  const int64_t m = sig.y->rows();
  Columns y{l.out, m, nullptr, l.total / m};
  float* base = graph_.values_arena.base();
  const Operand* o = plan_.operands.data() + l.operands;
  ConstCols start{};
  if (affine && sig.bias_per_column) {
    const Columns b = columns(l, o[0], 0, room_y_);
    start = {base + b.base, b.stride, b.index};
  } else if (affine) {
    start = {weight(o[0]), 0, nullptr};
  }
  if (affine && sig.n_args == 1)
    for (int64_t j = 0; j < y.count; ++j)
      std::memcpy(base + l.out + j * m, start.base + (start.index ? start.index[j] : j * start.stride), m * 4);
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
    const Columns x = columns(l, o[k + 1], k + 1, room_x_);
    counters.operand_bytes += 4 * (x.count + m) * sig.x[k]->cols();
    gemm_nn(m, sig.x[k]->cols(), weight(o[k]), x, start, y);
    start = {base + y.base, y.stride, y.index};
  }
}

// One node whose weights are its own: batch item by batch item.
void Executor::run_matmul_member(const Launch& l, uint32_t i) {
  const Item it = item(l, i);
  const Sig& sig = *it.sig;
  const bool affine = l.op == op_id<Affine>;
  float* base = graph_.values_arena.base();
  const Operand* o = plan_.operands.data() + l.operands;
  auto argument_values = [&](uint32_t k) -> const float* {
    return o[k].kind == Operand::weight ? weight(o[k]) : base + argument(l, o[k], i);
  };
  const Dim& yd = *sig.y;
  const size_t item_size = yd.batch_size();
  if (affine) {
    const float* b = argument_values(0);
    const Dim& bd = *sig.x[0];
    const size_t rows = bd.rows();
    for (uint32_t e = 0; e < yd.bd; ++e)
      for (uint32_t c = 0; c < (sig.n_args == 1 ? bd.batch_size() / rows : yd.cols()); ++c)
        std::memcpy(base + it.out + e * item_size + c * rows,
                    b + (bd.bd > 1 ? e * bd.batch_size() : 0) + (bd.batch_size() > rows ? c * rows : 0),
                    rows * 4);
  }
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
    const Dim &wd = *sig.x[k], &xd = *sig.x[k + 1];
    const int64_t m = wd.rows(), kk = wd.cols(), cols = xd.cols();
    const float *w = argument_values(k), *x = argument_values(k + 1);
    for (uint32_t e = 0; e < yd.bd; ++e) {
      float* y = base + it.out + e * item_size;
      kernels_.gemm->nn({0, m}, {0, cols}, kk, w + (wd.bd > 1 ? e * wd.batch_size() : 0), m,
                        {x + (xd.bd > 1 ? e * xd.batch_size() : 0), kk, nullptr},
                        affine || k > 0 ? ConstCols{y, m, nullptr} : ConstCols{}, {y, m, nullptr});
    }
  }
}

// Blocks of rows of all products are shared among the threads at once.
void Executor::run_matmul_group(uint32_t first, uint32_t last) {
  constexpr int64_t kRows = 64;
  struct Product {
    const float *w, *b;
    float* y;
    int64_t m, blocks;
  };
  Product products[16];
  ++counters.launches;
  const Launch& head = plan_.launches[first];
  const Columns x =
      columns(head, plan_.operands[head.operands + head.n_operands - 1], head.n_operands - 1, room_x_);
  const int64_t k = graph_.sig_number(head.sig).x[head.n_operands - 1]->rows();
  float* base = graph_.values_arena.base();
  int64_t blocks = 0, rows = 0;
  for (uint32_t i = first; i <= last; ++i) {
    const Launch& l = plan_.launches[i];
    const Operand* o = plan_.operands.data() + l.operands;
    const bool bias = l.n_operands == 3;
    const int64_t m = graph_.sig_number(l.sig).y->rows();
    products[i - first] = {weight(o[bias]), bias ? weight(o[0]) : nullptr, base + l.out, m,
                           (m + kRows - 1) / kRows};
    blocks += products[i - first].blocks;
    rows += m;
    counters.nodes += l.count;
    counters.operand_bytes += 4 * (x.count * k + m * k);
  }
  const ConstCols xc{base + x.base, x.stride, x.index};
  parallel_for(blocks, grain_of(blocks, rows * k * x.count, 1), [&](size_t begin, size_t end) {
    const Product* p = products;
    int64_t before = 0;  // blocks of the products before p
    for (int64_t at = begin; at < static_cast<int64_t>(end); ++at) {
      while (at - before >= p->blocks) before += (p++)->blocks;
      const int64_t r0 = (at - before) * kRows, r1 = std::min(r0 + kRows, p->m);
      kernels_.gemm->nn({r0, r1}, {0, x.count}, k, p->w, p->m, xc, {p->b, 0, nullptr}, {p->y, p->m, nullptr});
    }
  });
}

// ---------------------------------------------------------------- backward

// The gradient of the common input: a thread adds all products to its rows of it.
void Executor::backward_group(uint32_t first, uint32_t last) {
  ++counters.launches;
  const Launch& head = plan_.launches[first];
  const uint32_t in = head.n_operands - 1;
  const Columns x = columns(head, plan_.operands[head.operands + in], in, room_x_);
  const int64_t k = graph_.sig_number(head.sig).x[in]->rows();
  Product products[16];
  int n = 0;
  int64_t rows = 0;
  for (uint32_t i = first; i <= last; ++i) {
    const Launch& l = plan_.launches[i];
    const Operand* o = plan_.operands.data() + l.operands;
    const int64_t m = graph_.sig_number(l.sig).y->rows();
    const bool bias = l.n_operands == 3;
    run_deferred_of(l);
    if (wanted(l, bias + 1u)) {
      products[n++] = {m, weight(o[bias]), m, {grads() + l.out, m, nullptr}};
      rows += m;
    }
    const Columns dy{l.out, m, nullptr, l.total / m};
    if (bias && wanted(l, 0)) defer(o[0], m, 0, dy, dy);
    if (wanted(l, bias)) defer(o[bias], m, k, dy, x);
  }
  if (rows == 0) return;
  const Cols dx{grads() + x.base, x.stride, x.index};
  parallel_for(k, grain_of(k, rows * k * x.count, 16), [&](size_t begin, size_t end) {
    kernels_.gemm->tn_sum({int64_t(begin), int64_t(end)}, {0, x.count}, products, n, dx);
  });
}

void Executor::back_matmul(const Launch& l) {
  if (graph_.sig_number(l.sig).columns) return back_matmul_columns(l);
  for (uint32_t i = 0; i < l.count; ++i) back_matmul_member(l, i);
}

void Executor::back_matmul_columns(const Launch& l) {
  const Sig& sig = graph_.sig_number(l.sig);
  const bool affine = l.op == op_id<Affine>;
  const int64_t m = sig.y->rows();
  const Operand* o = plan_.operands.data() + l.operands;
  Columns dy{l.out, m, nullptr, l.total / m};
  if (!l.uniform || l.out_index) {  // also launches cut down to their live members
    room_y_.clear();
    for (uint32_t i = 0; i < l.count; ++i) {
      const Item it = item(l, i);
      for (uint32_t c = 0; c < it.sig->size / m; ++c) room_y_.push_back(it.out + c * m);
    }
    dy = {0, 0, room_y_.data(), static_cast<int64_t>(room_y_.size())};
  }
  if (affine && wanted(l, 0)) {
    if (sig.bias_per_column) {
      const Columns db = columns(l, o[0], 0, room_x_);
      for (int64_t j = 0; j < dy.count; ++j) add(grads() + db.at(j), grads() + dy.at(j), m);
    } else {
      defer(o[0], m, 0, dy, dy);
    }
  }
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
    const int64_t kk = sig.x[k]->cols();
    const Columns x = columns(l, o[k + 1], k + 1, room_x_);
    if (wanted(l, k + 1)) gemm_tn(m, kk, weight(o[k]), dy, x);
    if (!wanted(l, k)) continue;
    defer(o[k], m, kk, dy, x);
  }
}

void Executor::back_matmul_member(const Launch& l, uint32_t i) {
  const Item it = item(l, i);
  const Sig& sig = *it.sig;
  const bool affine = l.op == op_id<Affine>;
  const float* base = values();
  const Operand* o = plan_.operands.data() + l.operands;
  auto value_of = [&](uint32_t k) -> const float* {
    return o[k].kind == Operand::weight ? weight(o[k]) : base + argument(l, o[k], i);
  };
  auto gradient_of = [&](uint32_t k) -> float* {
    return o[k].kind == Operand::weight ? weight_gradient(o[k]) : grads() + argument(l, o[k], i);
  };
  const Dim& yd = *sig.y;
  const size_t item_size = yd.batch_size();
  const float* dy = grads() + it.out;
  if (affine && wanted(l, 0)) {
    float* db = gradient_of(0);
    const Dim& bd = *sig.x[0];
    const size_t rows = bd.rows(), cols = item_size / rows;
    for (uint32_t e = 0; e < yd.bd; ++e)
      for (size_t c = 0; c < cols; ++c)
        add(db + (bd.bd > 1 ? e * bd.batch_size() : 0) + (bd.batch_size() > rows ? c * rows : 0),
            dy + e * item_size + c * rows, rows);
  }
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
    const Dim &wd = *sig.x[k], &xd = *sig.x[k + 1];
    const int64_t m = wd.rows(), kk = wd.cols(), cols = xd.cols();
    const float *w = value_of(k), *x = value_of(k + 1);
    for (uint32_t e = 0; e < yd.bd; ++e) {
      const size_t we = wd.bd > 1 ? e * wd.batch_size() : 0, xe = xd.bd > 1 ? e * xd.batch_size() : 0;
      const ConstCols dye{dy + e * item_size, m, nullptr};
      if (wanted(l, k + 1))
        kernels_.gemm->tn({0, kk}, {0, cols}, m, w + we, m, dye, {gradient_of(k + 1) + xe, kk, nullptr});
      if (wanted(l, k))
        kernels_.gemm->nt({0, m}, {0, kk}, cols, dye, {x + xe, kk, nullptr}, gradient_of(k) + we, m);
    }
  }
}

// ---------------------------------------------------------------- weight gradients

Executor::Deferred& Executor::deferred_for(const Operand& o, int64_t m, int64_t k) {
  const NodeId node = o.base >= 0 ? kNone : o.node;
  for (uint32_t i = 0; i < n_deferred_; ++i) {
    Deferred& d = deferred_[i];
    if (d.node == node && d.place == o.base && d.m == m && d.k == k) return d;
  }
  if (n_deferred_ == deferred_.size()) deferred_.emplace_back();
  Deferred& d = deferred_[n_deferred_++];
  d.node = node;
  d.place = o.base;
  d.m = m;
  d.k = k;
  d.dy.clear();
  d.x.clear();
  return d;
}

// Notes dW += dy x' (k > 0) or db += dy (k == 0) for later.
void Executor::defer(const Operand& o, int64_t m, int64_t k, const Columns& dy, const Columns& x) {
  Deferred& d = deferred_for(o, m, k);
  for (int64_t j = 0; j < dy.count; ++j) d.dy.push_back(dy.at(j));
  if (k > 0)
    for (int64_t j = 0; j < dy.count; ++j) d.x.push_back(x.at(j));
}

void Executor::run_deferred(Deferred& d) {
  if (d.dy.empty()) return;
  Operand o;
  o.node = d.node;
  o.base = d.place;
  float* target = weight_gradient(o);
  const int64_t n = static_cast<int64_t>(d.dy.size());
  if (d.k == 0) {
    for (int64_t at : d.dy) add(target, grads() + at, d.m);
  } else {
    const ConstCols dy{grads(), 0, d.dy.data()}, x{values(), 0, d.x.data()};
    const int64_t flops = d.m * d.k * n;
    if (d.m >= d.k) {
      parallel_for(d.m, grain_of(d.m, flops, 64), [&](size_t begin, size_t end) {
        kernels_.gemm->nt({int64_t(begin), int64_t(end)}, {0, d.k}, n, dy, x, target, d.m);
      });
    } else {
      parallel_for(d.k, grain_of(d.k, flops, 16), [&](size_t begin, size_t end) {
        kernels_.gemm->nt({0, d.m}, {int64_t(begin), int64_t(end)}, n, dy, x, target, d.m);
      });
    }
  }
  d.dy.clear();
  d.x.clear();
}

// Before a launch that computed a weight runs backward, that weight's gradient must be complete.
void Executor::run_deferred_of(const Launch& l) {
  for (uint32_t i = 0; i < n_deferred_; ++i) {
    Deferred& d = deferred_[i];
    if (d.place >= l.out && d.place < l.out + l.total) run_deferred(d);
  }
}

}  // namespace dyc
