#include "exec/cpu/column_losses.h"

#include <algorithm>
#include <cstring>

#include "exec/cpu/cpu_executor.h"

namespace dyc {

namespace {

ConstCols from(ConstCols c, int64_t column) {
  if (c.index) c.index += column;
  else c.base += column * c.stride;
  return c;
}

// Columns of a block, as one that has the numbers of the whole product.
Cols block_columns(float* block, int64_t ld, int64_t row, int64_t column) {
  return {block - row - column * ld, ld, nullptr};
}

size_t chunk(int64_t n, int64_t unit, size_t small_chunks) {
  const int64_t threads = thread_pool().threads_for(small_chunks);
  const int64_t parts = threads == 1 ? 1 : 2 * threads;
  return static_cast<size_t>(((n + parts - 1) / parts + unit - 1) / unit * unit);
}

}  // namespace

// ---------------------------------------------------------------- pairs

ColumnLosses::Pair& ColumnLosses::pair_of(uint32_t product, uint32_t loss) {
  for (size_t i = 0; i < n_pairs_; ++i)
    if (pairs_[i].loss == loss) return pairs_[i];
  if (n_pairs_ == pairs_.size()) pairs_.emplace_back();
  Pair& p = pairs_[n_pairs_++];
  p.product = product;
  p.loss = loss;
  p.adds = p.maps = kNone;
  p.no_gradient = false;
  for (uint32_t i = product + 1; i < loss; ++i) {
    const Launch& l = e_.plan_.launches[i];
    if (l.loss == loss) (op_info(l.op).column_role == ColumnRole::adds ? p.adds : p.maps) = i;
  }
  return p;
}

// f(launch) for those between product and loss.
template <class F>
void ColumnLosses::each_between(const Pair& p, F f) const {
  for (const uint32_t i : {p.adds, p.maps})
    if (i != kNone) f(e_.plan_.launches[i]);
}

void ColumnLosses::cut_back(uint32_t launches) {
  if (n_pairs_ == 0) return;  // as in most graphs: renew_cg() comes here
  const auto stays = [launches](const Pair& p) { return p.loss < launches; };
  const auto first = pairs_.begin();
  n_pairs_ = static_cast<size_t>(std::stable_partition(first, first + n_pairs_, stays) - first);
}

void ColumnLosses::separate(uint32_t launch) {
  const uint32_t loss = e_.plan_.launches[launch].loss, product = e_.plan_.launches[loss].product;
  const Pair& p = pair_of(product, loss);
  Launch& l = e_.plan_.launches[product];
  e_.plan_.launches[loss].product = kNone;
  l.loss = kNone;
  e_.run_matmul(l);
  each_between(p, [&](Launch& between) {
    between.loss = kNone;
    e_.dispatch(between);
  });
}

void ColumnLosses::separate_read(uint32_t begin, uint32_t end) {
  for (size_t i = 0; i < n_pairs_; ++i) {
    const uint32_t product = pairs_[i].product;
    const Launch& l = e_.plan_.launches[product];
    if (l.loss == kNone || l.loss >= begin) continue;
    for (uint32_t r = begin; r < end && l.loss != kNone; ++r) {
      const auto is_read = [&](const Launch& m) {
        return reads(e_.graph_, e_.plan_, e_.plan_.launches[r], m.out, m.out + m.total);
      };
      bool read = is_read(l);
      each_between(pairs_[i], [&](const Launch& between) { read = read || is_read(between); });
      if (read) separate(product);
    }
  }
}

void ColumnLosses::complete_gradients() {
  for (size_t i = 0; i < n_pairs_; ++i)
    if (pairs_[i].no_gradient) complete_gradient(e_.plan_.launches[pairs_[i].product].out);
}

void ColumnLosses::complete_gradient(int64_t offset) {
  for (size_t i = 0; i < n_pairs_; ++i) {
    Pair& p = pairs_[i];
    const Launch& l = e_.plan_.launches[p.product];
    if (!p.no_gradient || !has_gradient_at(p, offset)) continue;
    if (l.loss != kNone) separate(p.product);
    const auto clear = [&](const Launch& m) { e_.zero_gradients(m.out, static_cast<size_t>(m.total)); };
    clear(l);
    each_between(p, clear);
    e_.back(e_.plan_.launches[p.loss]);
    if (p.maps != kNone) e_.back(e_.plan_.launches[p.maps]);
    if (p.adds != kNone)  // that of the added vector is there
      std::memcpy(e_.grads() + l.out, e_.grads() + e_.plan_.launches[p.adds].out,
                  static_cast<size_t>(l.total) * 4);
    p.no_gradient = false;
  }
}

bool ColumnLosses::has_gradient_at(const Pair& p, int64_t offset) const {
  const auto in = [offset](const Launch& l) { return offset >= l.out && offset < l.out + l.total; };
  bool found = in(e_.plan_.launches[p.product]);
  each_between(p, [&](const Launch& l) { found = found || in(l); });
  return found;
}

// ---------------------------------------------------------------- forward

void ColumnLosses::fill_ids(Pair& p) const {
  const Launch& l = e_.plan_.launches[p.loss];
  p.ids.clear();
  for (uint32_t i = 0; i < l.count; ++i) {
    const LaunchReader::Item it = e_.item(l, i);
    const Graph::Ids ids = e_.graph_.ids(it.id);
    for (uint32_t b = 0; b < it.sig->y->bd; ++b) p.ids.push_back(ids.data[ids.n > 1 ? b : 0]);
  }
}

void ColumnLosses::forward(uint32_t loss) {
  const Launch& l = e_.plan_.launches[loss];
  Pair& p = pair_of(l.product, loss);
  e_.check(l);
  fill_ids(p);
  const uint32_t launches = 2 + (p.adds != kNone) + (p.maps != kNone);
  e_.counters.launches += launches;
  e_.counters.nodes += launches * l.count;
  const MatmulJob job = e_.new_job(e_.plan_.launches[l.product]);
  const int64_t kept = std::max(kKeptFloats / job.m, job.n * kKeptPercent * (launches - 1) / 100);
  p.kept = kept >= job.n ? job.n : kept / kLossColumns * kLossColumns;
  p.summaries.resize(static_cast<size_t>(job.n));
  const ColumnLossKernels& kernels = e_.kernels_.ops[column_op(p).op].column_loss;
  const int64_t reader = kernels.reader_bytes / 4;
  float* const readers = readers_.get(job.n * reader);
  if (kernels.own_first) own_.get(job.n);
  ProfileTrace::Scope scope(e_.trace, ProfileSpan::kernel, "W x and its loss");
  scope.product(job.m, job.n, job.work / (job.m * job.n));
  const auto run = [&](size_t begin, size_t end) {
    const Range cols{int64_t(begin), int64_t(end)};
    begin_columns(p, job, cols, readers);
    read_columns(p, job, cols, readers);
    kernels.finish(readers + cols.begin * reader, cols.end - cols.begin, p.summaries.data() + begin,
                   e_.graph_.values_arena.base() + l.out + begin);
  };
  const size_t work = small_chunks(job.work);
  parallel_for(job.n, chunk(job.n, kLossColumns, work), run, work);
}

// The launch that has the kernels.
const Launch& ColumnLosses::column_op(const Pair& p) const {
  return e_.plan_.launches[p.maps != kNone ? p.maps : p.loss];
}

// The operand that is added to each column, or null.
const Operand* ColumnLosses::added(const Pair& p) const {
  if (p.adds == kNone) return nullptr;
  const Launch& l = e_.plan_.launches[p.adds];
  return e_.plan_.operands.data() + l.operands + added_operand(e_.plan_, l, e_.plan_.launches[p.product]);
}

const float* ColumnLosses::added_vector(const Pair& p) const {
  const Operand* o = added(p);
  return o ? e_.values() + o->base : nullptr;
}

void ColumnLosses::compute(const MatmulJob& job, const float* added, Range rows, Range cols) const {
  e_.run_job(job, rows, cols);
  for (int64_t c = cols.begin; added && c < cols.end; ++c)
    e_.add(job.y.base + c * job.y.stride + rows.begin, added + rows.begin,
           static_cast<size_t>(rows.end - rows.begin));
}

void ColumnLosses::begin_columns(const Pair& p, const MatmulJob& job, Range cols, float* readers) {
  const Launch& op = column_op(p);
  const ColumnLossKernels& kernels = e_.kernels_.ops[op.op].column_loss;
  float* const own = own_.get(0);
  for (int64_t c = cols.begin; kernels.own_first && c < cols.end; ++c) {
    const int64_t v = p.ids[static_cast<size_t>(c)];
    MatmulJob j = job;
    j.y = block_columns(own + c, 1, v, c);
    compute(j, added_vector(p), {v, v + 1}, {c, c + 1});
  }
  kernels.begin(readers + cols.begin * (kernels.reader_bytes / 4), cols.end - cols.begin,
                e_.graph_.sig_number(op.sig).attrs.data(), kernels.own_first ? own + cols.begin : nullptr);
}

// All columns read a block of rows of W before the next one: it stays in the cache.
void ColumnLosses::read_columns(const Pair& p, const MatmulJob& job, Range cols, float* readers) {
  const ColumnLossKernels& kernels = e_.kernels_.ops[column_op(p).op].column_loss;
  const float* const vector = added_vector(p);
  static thread_local Buffer scratch;
  float* const block = scratch.get(kernels.block * kLossColumns);
  for (int64_t r = 0; r < job.m; r += kernels.block) {
    const Range rows{r, std::min(r + kernels.block, job.m)};
    for (int64_t c = cols.begin; c < cols.end; c += kLossColumns) {
      const Range part{c, std::min(c + kLossColumns, cols.end)};
      MatmulJob j = job;
      if (part.end > p.kept) j.y = block_columns(block, kernels.block, r, c);
      compute(j, vector, rows, part);
      kernels.read(readers + c * (kernels.reader_bytes / 4), part.end - c, j.y.base + c * j.y.stride + r,
                   j.y.stride, rows, p.ids.data() + c);
    }
  }
}

// ---------------------------------------------------------------- backward

void ColumnLosses::begin_backward(const std::vector<uint32_t>& live_nodes) {
  for (size_t i = 0; i < n_pairs_; ++i) {
    Pair& p = pairs_[i];
    p.no_gradient = false;
    const Launch &product = e_.plan_.launches[p.product], &loss = e_.plan_.launches[p.loss];
    if (product.loss == kNone) continue;
    const bool whole = live_nodes[p.product] == product.count && live_nodes[p.loss] == loss.count;
    if (e_.full_ || (!whole && live_nodes[p.loss] > 0)) separate(p.product);
  }
}

void ColumnLosses::backward(uint32_t product) {
  const Launch& l = e_.plan_.launches[product];
  Pair& p = pair_of(product, l.loss);
  p.no_gradient = true;
  const GemmKernels& gemm = *e_.kernels_.gemm;
  const MatmulJob job = e_.new_job(l);
  const bool pieces = job.m > gemm.tn_longest;
  BackwardPass b{p,       job,    pieces ? gemm.tn_piece : job.m, added_vector(p), nullptr,
                 nullptr, pieces, job.n > gemm.nt_longest};
  ProfileTrace::Scope scope(e_.trace, ProfileSpan::kernel, "W x, W' dy and dy x'");
  scope.product(job.m, job.n, 3 * job.work / (job.m * job.n));
  prepare(b, l);
  const bool alone = thread_pool().threads_for(small_chunks(job.work)) == 1;
  const int64_t group = (alone ? 1 : kLossGroups) * gemm.nt_block;
  float* const dy = block_.get(b.height * std::min(group, job.n));
  for (int64_t r = 0; r < job.m; r += b.height) {
    GradientBlock block{{r, std::min(r + b.height, job.m)}, {}, dy};
    for (int64_t c = 0; c < job.n; c += group) {
      block.cols = {c, std::min(c + group, job.n)};
      const int64_t width = block.cols.end - c;
      const size_t work = small_chunks(job.work / (job.m * job.n) * width * block.height());
      const auto gradients = [&](size_t begin, size_t end) {
        const Range cols{c + int64_t(begin), c + int64_t(end)};
        make_gradient(b, block, cols);
        add_to_inputs(b, block, cols);
      };
      parallel_for(width, chunk(width, kLossGradientColumns, work), gradients, work);
      const auto weights = [&](size_t begin, size_t end) {
        add_to_weights(b, block, {int64_t(begin), int64_t(end)});
      };
      parallel_for(block.height(), chunk(block.height(), kLossGradientRows, work), weights, work);
    }
  }
  finish_inputs(b);
}

void ColumnLosses::prepare(BackwardPass& b, const Launch& l) {
  const bool affine = l.op == op_id<Affine>;
  const Operand* o = e_.plan_.operands.data() + l.operands;
  if (affine && e_.wanted(l, 0)) b.db = e_.weight_gradient(o[0]);
  if (const Operand* vector = added(b.pair)) {
    const Launch& adds = e_.plan_.launches[b.pair.adds];
    const auto k = static_cast<uint32_t>(vector - e_.plan_.operands.data()) - adds.operands;
    if (e_.wanted(adds, k)) b.dadded = e_.grads() + vector->base;
  }
  targets_.clear();
  int64_t sums = 0, pieces = 0;
  for (uint32_t f = 0; f < b.job.factors; ++f) {
    const MatmulFactor& factor = e_.factors_[b.job.first + f];
    const uint32_t k = affine + 2 * f;
    Target t{factor.w, factor.k, factor.x, e_.wanted(l, k) ? e_.weight_gradient(o[k]) : nullptr, -1, -1};
    if (e_.wanted(l, k + 1)) t.sums = sums, sums += b.job.n * t.k * (b.pieces ? 3 : 1);
    if (t.dw && b.many) t.piece = pieces, pieces += 2 * b.height * t.k;
    targets_.push_back(t);
  }
  std::fill_n(sums_.get(sums), sums, 0.f);
  std::fill_n(pieces_.get(pieces), pieces, 0.f);
}

// The product of some columns, then its gradient in its place.
void ColumnLosses::make_gradient(const BackwardPass& b, const GradientBlock& block, Range cols) {
  const Launch& loss = e_.plan_.launches[b.pair.loss];
  const int64_t n = cols.end - cols.begin, r = block.rows.begin;
  const Cols dy = block_columns(block.dy, b.height, r, block.cols.begin);
  float* const to = dy.base + cols.begin * dy.stride + r;
  MatmulJob j = b.job;
  if (cols.end > b.pair.kept) {
    j.y = dy;
    compute(j, b.added, block.rows, cols);
  }
  e_.kernels_.ops[column_op(b.pair).op].column_loss.gradient(
      b.pair.summaries.data() + cols.begin, n, j.y.base + cols.begin * j.y.stride + r, j.y.stride, to,
      dy.stride, block.rows, b.pair.ids.data() + cols.begin, e_.grads() + loss.out + cols.begin);
}

void ColumnLosses::add_to_inputs(const BackwardPass& b, const GradientBlock& block, Range cols) {
  const GemmKernels& gemm = *e_.kernels_.gemm;
  const int64_t r = block.rows.begin, count = cols.end - cols.begin;
  const Cols dy = block_columns(block.dy, b.height, 0, block.cols.begin);
  for (const Target& t : targets_) {
    if (t.sums < 0) continue;
    float *const sums = sums_.get(0) + t.sums + cols.begin * t.k, *const low = sums + b.job.n * t.k,
                 *const last = low + b.job.n * t.k;
    float* const to = b.pieces ? last : sums;
    if (b.pieces) std::memset(last, 0, static_cast<size_t>(count * t.k) * 4);
    gemm.tn({0, t.k}, cols, block.height(), t.w + r, b.job.m, {dy.base, dy.stride, nullptr},
            block_columns(to, t.k, 0, cols.begin));
    if (b.pieces) gemm.add_parts(sums, low, last, count * t.k);
  }
}

// `rows` of the block; columns in the blocks of nt(), so that the order does not depend on the group's size.
void ColumnLosses::add_to_weights(const BackwardPass& b, const GradientBlock& block, Range rows) {
  const GemmKernels& gemm = *e_.kernels_.gemm;
  const int64_t r = block.rows.begin;
  for (int64_t c = block.cols.begin; c < block.cols.end; c += gemm.nt_block) {
    const int64_t end = std::min(c + gemm.nt_block, block.cols.end), n = end - c;
    const ConstCols dy{block.dy + (c - block.cols.begin) * b.height, b.height, nullptr};
    const bool closes = end % gemm.nt_longest == 0 || end == b.job.n;
    if (b.db) gemm.sum(rows, n, dy, b.db + r);
    if (b.dadded) gemm.sum(rows, n, dy, b.dadded + r);
    for (const Target& t : targets_) {
      if (!t.dw) continue;
      float* const to = b.many ? pieces_.get(0) + t.piece : t.dw + r;
      gemm.nt(rows, {0, t.k}, n, dy, from(t.x, c), to, b.many ? b.height : b.job.m, false);
      if (b.many && closes) close_piece(b, t, rows, t.dw + r, end == b.job.n);
    }
  }
}

// Adds a piece of the weight's gradient to it, and begins the next one.
void ColumnLosses::close_piece(const BackwardPass& b, const Target& t, Range rows, float* dw, bool last) {
  const GemmKernels& gemm = *e_.kernels_.gemm;
  const int64_t height = rows.end - rows.begin;
  for (int64_t k = 0; k < t.k; ++k) {
    float *const to = dw + k * b.job.m + rows.begin,
                 *const part = pieces_.get(0) + t.piece + k * b.height + rows.begin,
                 *const low = part + b.height * t.k;
    gemm.add_parts(to, low, part, height);
    std::memset(part, 0, static_cast<size_t>(height) * 4);
    if (!last) continue;
    gemm.join_parts(to, low, height);
    std::memset(low, 0, static_cast<size_t>(height) * 4);
  }
}

// Columns of inputs may repeat, so they are added one after the other.
void ColumnLosses::finish_inputs(const BackwardPass& b) {
  for (const Target& t : targets_) {
    if (t.sums < 0) continue;
    float* const sums = sums_.get(0) + t.sums;
    const int64_t size = b.job.n * t.k;
    if (b.pieces) e_.kernels_.gemm->join_parts(sums, sums + size, size);
    for (int64_t j = 0; j < b.job.n; ++j) {
      const int64_t at = (t.x.index ? t.x.index[j] : j * t.x.stride) + (t.x.base - e_.values());
      e_.add(e_.grads() + at, sums + j * t.k, static_cast<size_t>(t.k));
    }
  }
}

}  // namespace dyc
