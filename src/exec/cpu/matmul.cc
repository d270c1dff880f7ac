// Matrix products of a launch: one GEMM per weight over the columns of all nodes, or node by
// node where nothing is shared.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "base/thread_pool.h"
#include "exec/cpu/cpu_executor.h"

namespace dyc {

namespace {

// Chunk of `n` units so that a chunk does at least kParallelFlops multiply-adds; a multiple of `unit`.
size_t grain_of(int64_t n, int64_t flops, int64_t unit) {
  const int64_t most = most_chunks(small_chunks(flops));
  const int64_t chunks = std::max<int64_t>(1, std::min<int64_t>(flops / kParallelFlops, most));
  const int64_t grain = (n + chunks - 1) / chunks;
  return static_cast<size_t>((grain + unit - 1) / unit * unit);
}

// Do no two of n columns of so many rows overlap? Those of one node follow one another.
bool are_separate(const Cols& c, int64_t rows, int64_t n) {
  if (!c.index) return n == 1 || std::abs(c.stride) >= rows;
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (int64_t j = 0; j < n; ++j) {
    if (runs.empty() || c.index[j] != runs.back().second) runs.emplace_back(c.index[j], c.index[j]);
    runs.back().second += rows;
  }
  std::sort(runs.begin(), runs.end());
  const auto overlap = [](const auto& a, const auto& b) { return a.second > b.first; };
  return std::adjacent_find(runs.begin(), runs.end(), overlap) == runs.end();
}

// Are any two gradients that products add to one and the same, of rows or columns of one size, or apart?
bool are_apart(const std::vector<NodeProduct>& products) {
  struct NodeGradient {
    const float *begin, *end;
    int64_t k;
    bool weight;
  };
  std::vector<NodeGradient> targets;
  for (const NodeProduct& p : products) {
    if (p.dw) targets.push_back({p.dw, p.dw + p.m * p.k, p.k, true});
    if (p.dx) targets.push_back({p.dx, p.dx + p.k * p.n, p.k, false});
  }
  std::sort(targets.begin(), targets.end(), [](const NodeGradient& a, const NodeGradient& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  return std::adjacent_find(targets.begin(), targets.end(), [](const NodeGradient& a, const NodeGradient& b) {
           const bool same = a.begin == b.begin && a.end == b.end && a.k == b.k && a.weight == b.weight;
           return !same && b.begin < a.end;
         }) == targets.end();
}

}  // namespace

// An empty list of columns, until the next launch or fused group begins.
std::vector<int64_t>& CpuExecutor::new_columns() {
  if (column_memory_used_ == column_memory_.size()) column_memory_.emplace_back();
  return column_memory_[column_memory_used_++];
}

MatmulJob CpuExecutor::job(const Launch& l) {
  const Sig& sig = graph_.sig_number(l.sig);
  const bool affine = l.op == op_id<Affine>;
  const int64_t m = sig.y->rows();
  float* base = graph_.values_arena.base();
  const Operand* o = plan_.operands.data() + l.operands;
  MatmulJob j{};
  j.m = m;
  j.n = l.total / m;
  j.cols = j.n / l.count;
  j.y = {base + l.out, m, nullptr};
  if (affine && sig.bias_per_column) {
    const Columns b = columns(l, o[0], 0, new_columns());
    j.start = {base + b.base, b.stride, b.index};
  } else if (affine) {
    j.start = {weight(o[0]), 0, nullptr};
  }
  j.first = static_cast<uint32_t>(factors_.size());
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
    const Columns x = columns(l, o[k + 1], k + 1, new_columns());
    const int64_t inner = sig.x[k]->cols();
    factors_.push_back({weight(o[k]), inner, {base + x.base, x.stride, x.index}});
    j.work += m * inner * j.n;
    counters.operand_bytes += 4 * (j.n + m) * inner;
  }
  j.factors = static_cast<uint32_t>(factors_.size()) - j.first;
  return j;
}

MatmulJob CpuExecutor::new_job(const Launch& l) {
  column_memory_used_ = 0;
  factors_.clear();
  return job(l);
}

void CpuExecutor::run_job(const MatmulJob& j, Range rows, Range cols) const {
  ConstCols start = j.start;
  for (int64_t c = cols.begin; j.factors == 0 && c < cols.end; ++c)  // affine_transform([b])
    std::memcpy(j.y.base + c * j.m + rows.begin,
                start.base + (start.index ? start.index[c] : c * start.stride) + rows.begin,
                (rows.end - rows.begin) * 4);
  for (uint32_t f = j.first; f < j.first + j.factors; ++f) {
    kernels_.gemm->nn(rows, cols, factors_[f].k, factors_[f].w, j.m, factors_[f].x, start, j.y);
    start = {j.y.base, j.y.stride, nullptr};
  }
}

// Products that do not read each other, over all their columns. Threads share columns, or blocks of rows if
// there are more of these. What all threads read must be fetched from the cache of the thread that wrote it.
void CpuExecutor::run_jobs(const MatmulJob* jobs, size_t n) {
  ProfileTrace::Scope scope(trace, ProfileSpan::kernel, n == 1 ? "W x" : "W x, of several weights");
  if (trace && n == 1) {
    int64_t inner = 0;
    for (uint32_t f = jobs->first; f < jobs->first + jobs->factors; ++f) inner += factors_[f].k;
    scope.product(jobs->m, jobs->n, inner);
  }
  int64_t work = 0, blocks = 0, weights = 0;
  for (size_t i = 0; i < n; ++i) {
    work += jobs[i].work;
    weights += jobs[i].work / std::max<int64_t>(jobs[i].n, 1);
    blocks += (jobs[i].m + kRowBlock - 1) / kRowBlock;
  }
  const bool alone = thread_pool().threads_for(small_chunks(work)) == 1;
  if (n == 1 && jobs->n >= kByColumns && (jobs->n >= jobs->m || alone)) {
    const size_t least = weights > kManyWeights ? kWideColumns : kChunkColumns;
    const size_t grain = std::max(least, grain_of(jobs->n, work, kChunkColumns));
    const auto columns = [&](size_t begin, size_t end) {
      run_job(*jobs, {0, jobs->m}, {int64_t(begin), int64_t(end)});
    };
    parallel_for(jobs->n, grain, columns, small_chunks(work));
    return;
  }
  const auto rows = [&](size_t begin, size_t end) {
    const MatmulJob* j = jobs;
    int64_t before = 0;  // blocks of the products before j
    for (int64_t at = begin; at < static_cast<int64_t>(end);) {
      int64_t mine = (j->m + kRowBlock - 1) / kRowBlock;
      while (at - before >= mine) before += mine, ++j, mine = (j->m + kRowBlock - 1) / kRowBlock;
      const int64_t stop = std::min<int64_t>(end, before + mine);
      run_job(*j, {(at - before) * kRowBlock, std::min((stop - before) * kRowBlock, j->m)}, {0, j->n});
      at = stop;
    }
  };
  parallel_for(blocks, grain_of(blocks, work, 1), rows, small_chunks(work));
}

void CpuExecutor::gemm_tn(int64_t m, int64_t k, const float* w, const Columns& dy, const Columns& dx) {
  const Product product{m, w, m, {grads() + dy.base, dy.stride, dy.index}};
  ProfileTrace::Scope scope(trace, ProfileSpan::kernel, "W' dy");
  scope.product(k, dy.count, m);
  run_tn(&product, 1, k, dy.count, {grads() + dx.base, dx.stride, dx.index});
}

// dx_j += sum_i W_i' dy_ij over n columns. Threads share the columns, or rows of dx, whichever leaves each
// of them less to read; always rows where columns overlap, as those are added in their order.
void CpuExecutor::run_tn(const Product* products, int count, int64_t k, int64_t n, const Cols& dx) {
  int64_t rows = 0;
  for (int i = 0; i < count; ++i) rows += products[i].m;
  const int64_t work = rows * k * n;
  const bool by_columns = most_chunks(small_chunks(work)) > 1 && n > k && are_separate(dx, k, n);
  const size_t grain = grain_of(by_columns ? n : k, work, by_columns ? kChunkColumns : kChunkRows);
  const auto run = [&](size_t begin, size_t end) {
    const Range part{int64_t(begin), int64_t(end)};
    kernels_.gemm->tn_sum(by_columns ? Range{0, k} : part, by_columns ? part : Range{0, n}, products, count,
                          dx);
  };
  parallel_for(by_columns ? n : k, grain, run, small_chunks(work));
}

void CpuExecutor::run_matmul(const Launch& l) {
  if (!graph_.sig_number(l.sig).columns) return run_matmul_nodes(l);
  const MatmulJob j = new_job(l);
  run_jobs(&j, 1);
}

// Nodes whose weights are their own: a product for each batch item.
void CpuExecutor::run_matmul_nodes(const Launch& l) {
  float* base = graph_.values_arena.base();
  const Operand* o = plan_.operands.data() + l.operands;
  const uint32_t affine = l.op == op_id<Affine>;
  factors_.clear();
  jobs_.clear();
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    const Sig& sig = *it.sig;
    const Dim& yd = *sig.y;
    // Of batch item e.
    const auto argument_at = [&](uint32_t k, uint32_t e) -> const float* {
      const float* x = o[k].kind == Operand::weight ? weight(o[k]) : base + argument(l, o[k], i);
      return x + (sig.x[k]->bd > 1 ? e * sig.x[k]->batch_size() : 0);
    };
    for (uint32_t e = 0; e < yd.bd; ++e) {
      MatmulJob j{};
      j.m = yd.rows();
      j.n = yd.batch_size() / std::max<int64_t>(j.m, 1);
      j.cols = j.n;
      j.y = {base + it.out + e * yd.batch_size(), j.m, nullptr};
      if (affine) j.start = {argument_at(0, e), sig.x[0]->batch_size() > j.m ? j.m : 0, nullptr};
      j.first = static_cast<uint32_t>(factors_.size());
      for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
        const int64_t inner = sig.x[k]->cols();
        factors_.push_back({argument_at(k, e), inner, {argument_at(k + 1, e), inner, nullptr}});
        j.work += j.m * inner * std::max(j.n, kMatrixColumns);
      }
      j.factors = static_cast<uint32_t>(factors_.size()) - j.first;
      jobs_.push_back(j);
    }
  }
  run_jobs(jobs_.data(), jobs_.size());
}

// ---------------------------------------------------------------- backward

void CpuExecutor::back_matmul(const Launch& l) {
  if (graph_.sig_number(l.sig).columns) back_matmul_columns(l);
  else back_matmul_nodes(l);
}

// The gradient of a bias that has a column for each of the result's.
void CpuExecutor::add_bias_columns(const Launch& l, const Columns& dy) {
  const Columns db = columns(l, plan_.operands[l.operands], 0, operand_memory_);
  const size_t m = graph_.sig_number(l.sig).y->rows();
  for (int64_t j = 0; j < dy.count; ++j)
    if (!aliases_.is_alias(db.at(j), dy.at(j))) add(grads() + db.at(j), grads() + dy.at(j), m);
}

void CpuExecutor::back_matmul_columns(const Launch& l) {
  const Sig& sig = graph_.sig_number(l.sig);
  const bool affine = l.op == op_id<Affine>;
  const int64_t m = sig.y->rows();
  const Operand* o = plan_.operands.data() + l.operands;
  const std::optional<Columns> aliases = aliases_.columns(l);
  const Columns dy = aliases ? *aliases : result_columns(l, result_memory_);
  if (affine && wanted(l, 0)) {
    if (sig.bias_per_column) {
      add_bias_columns(l, dy);
    } else {
      deferred_.add(o[0], m, 0, dy, dy);
    }
  }
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
    const int64_t kk = sig.x[k]->cols();
    const Columns x = columns(l, o[k + 1], k + 1, operand_memory_);
    if (wanted(l, k + 1)) gemm_tn(m, kk, weight(o[k]), dy, x);
    if (!wanted(l, k)) continue;
    deferred_.add(o[k], m, kk, dy, x);
  }
}

// Nodes whose weights are their own. Threads share columns of the weights, and rows of the inputs, so that
// each gradient is added up in the order of nodes.
void CpuExecutor::back_matmul_nodes(const Launch& l) {
  node_products_.clear();
  int64_t work = 0, least = INT64_MAX;
  for (uint32_t i = 0; i < l.count; ++i) list_node_products(l, i);
  for (const NodeProduct& p : node_products_) {
    work += p.m * p.k * std::max(p.n, kMatrixColumns) * ((p.dw != nullptr) + (p.dx != nullptr));
    least = std::min(least, p.k);
  }
  const int64_t most = std::min({work / kParallelFlops, most_chunks(small_chunks(work)), least / kChunkRows});
  const int64_t parts = most > 1 && are_apart(node_products_) ? most : 1;
  const auto run = [&](size_t begin, size_t end) {
    for (const NodeProduct& p : node_products_) {
      const auto at = [&](size_t part) { return p.k * static_cast<int64_t>(part) / parts; };
      const Range ks{at(begin), at(end)};
      const ConstCols dy{p.dy, p.m, nullptr};
      if (p.dx) kernels_.gemm->tn(ks, {0, p.n}, p.m, p.w, p.m, dy, {p.dx, p.k, nullptr});
      if (p.dw) kernels_.gemm->nt({0, p.m}, ks, p.n, dy, {p.x, p.k, nullptr}, p.dw, p.m, false);
    }
  };
  parallel_for(parts, 1, run, small_chunks(work));
}

void CpuExecutor::list_node_products(const Launch& l, uint32_t i) {
  const Item it = item(l, i);
  const Sig& sig = *it.sig;
  const bool affine = l.op == op_id<Affine>;
  const Operand* o = plan_.operands.data() + l.operands;
  auto value_of = [&](uint32_t k) -> const float* {
    return o[k].kind == Operand::weight ? weight(o[k]) : values() + argument(l, o[k], i);
  };
  auto gradient_of = [&](uint32_t k) -> float* {
    if (!wanted(l, k)) return nullptr;
    return o[k].kind == Operand::weight ? weight_gradient(o[k]) : grads() + argument(l, o[k], i);
  };
  const Dim& yd = *sig.y;
  const size_t item_size = yd.batch_size();
  const float* dy = grads() + it.out;
  if (float* const db = affine ? gradient_of(0) : nullptr) {
    const Dim& bd = *sig.x[0];
    const size_t rows = bd.rows(), cols = item_size / rows;
    for (uint32_t e = 0; e < yd.bd; ++e)
      for (size_t c = 0; c < cols; ++c)
        add(db + (bd.bd > 1 ? e * bd.batch_size() : 0) + (bd.batch_size() > rows ? c * rows : 0),
            dy + e * item_size + c * rows, rows);
  }
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
    const Dim &wd = *sig.x[k], &xd = *sig.x[k + 1];
    const float *w = value_of(k), *x = value_of(k + 1);
    float *dw = gradient_of(k), *dx = gradient_of(k + 1);
    for (uint32_t e = 0; e < yd.bd; ++e) {
      const size_t we = wd.bd > 1 ? e * wd.batch_size() : 0, xe = xd.bd > 1 ? e * xd.batch_size() : 0;
      node_products_.push_back({wd.rows(), wd.cols(), xd.cols(), w + we, x + xe, dy + e * item_size,
                                dw ? dw + we : nullptr, dx ? dx + xe : nullptr});
    }
  }
}

// ---------------------------------------------------------------- weight gradients

namespace {

// Do threads share the rows of a gradient? Columns lie as the trainer's pieces do, but each part of them
// copies all of dy, where that has many columns.
bool by_rows(const DeferredGradient& d, int64_t threads) {
  const int64_t least = kPart * threads;
  const bool many = static_cast<int64_t>(d.dy.size()) >= kCopiedColumns;
  return threads == 1 ? d.m >= d.k : (d.m >= d.k && d.k < least) || (d.m >= least && many);
}

int64_t parts_of(const DeferredGradient& d, bool by_rows) { return by_rows ? d.m : d.k; }

}  // namespace

// Work that one thread does: some rows or columns of a gradient.
void CpuExecutor::run_part(const DeferredGradient& d, const Part& part) const {
  const int64_t n = static_cast<int64_t>(d.dy.size());
  const ConstCols dy{grads(), 0, d.dy.data()}, x{values(), 0, d.x.data()};
  const bool rows = part.by_rows;
  const Range all_rows = rows ? part.range : Range{0, d.m}, columns = rows ? Range{0, d.inner()} : part.range;
  if (d.k > 0) return kernels_.gemm->nt(all_rows, columns, n, dy, x, part.target, d.m, part.unset);
  if (part.unset) std::memset(part.target + part.range.begin, 0, (part.range.end - part.range.begin) * 4);
  kernels_.gemm->sum(part.range, n, dy, part.target);
}

void CpuExecutor::run_deferred(DeferredGradient& d) {
  if (d.dy.empty()) return;
  Operand o;
  o.node = d.node;
  o.base = d.offset;
  float* target = weight_gradient(o);
  const size_t chunks = small_chunks(d.work());
  const bool rows = by_rows(d, thread_pool().threads_for(chunks));
  const int64_t length = parts_of(d, rows);
  ProfileTrace::Scope scope(trace, ProfileSpan::kernel, d.name());
  scope.product(d.m, d.inner(), static_cast<int64_t>(d.dy.size()));
  const auto run = [&](size_t begin, size_t end) {
    run_part(d, {0, target, {int64_t(begin), int64_t(end)}, false, 0, 0, rows});
  };
  parallel_for(length, grain_of(length, d.work(), kPart), run, chunks);
  d.dy.clear();
  d.x.clear();
}

// Those of parameters that have a gradient of their own run together: threads share the parts of all.
void CpuExecutor::run_all_deferred() {
  parts_.clear();
  keeps_ = keep_products && direct_;
  int64_t all = 0;
  for (uint32_t i = 0; i < deferred_.size(); ++i) all += deferred_[i].work();
  const int64_t threads = thread_pool().threads_for(small_chunks(all));
  for (uint32_t i = 0; i < deferred_.size(); ++i) {
    DeferredGradient& d = deferred_[i];
    if (d.dy.empty() || !deferred_.is_only(d) || (keeps_ && graph_.parameter_use(d.node).gradient >= 0)) {
      run_deferred(d);
      continue;
    }
    bool unset = false;
    float* target = parameter_target(d.node, &unset);
    const bool rows = by_rows(d, threads);
    const int64_t length = parts_of(d, rows);
    for (int64_t at = 0; at < length; at += kPart) {
      const Range range{at, std::min(at + kPart, length)};
      const int64_t work = d.work() * (range.end - at) / length;
      parts_.push_back({i, target, range, unset, work, at * threads / length, rows});
    }
  }
  if (threads > 1)
    std::stable_sort(parts_.begin(), parts_.end(),
                     [](const Part& a, const Part& b) { return a.turn < b.turn; });
  if (keeps_) return;
  run_parts(parts_);
  deferred_.clear();
}

void CpuExecutor::compute_kept(std::span<const std::shared_ptr<Storage>> storages) {
  const auto left = [&](const Part& part) {
    const Storage* s = graph_.parameter_use(deferred_[part.deferred].node).storage;
    return !storages.empty() && std::none_of(storages.begin(), storages.end(),
                                             [s](const auto& other) { return other.get() == s; });
  };
  const auto first = std::stable_partition(parts_.begin(), parts_.end(), left);
  run_parts({first, parts_.end()});
  parts_.erase(first, parts_.end());
  keeps_ = !parts_.empty();
}

void CpuExecutor::run_parts(std::span<const Part> parts) {
  if (parts.empty()) return;
  const DeferredGradient& d = deferred_[parts.front().deferred];
  const bool one = parts.back().deferred == parts.front().deferred;
  ProfileTrace::Scope scope(trace, ProfileSpan::kernel, one ? d.name() : "dy x', of several weights");
  if (one) scope.product(d.m, d.inner(), static_cast<int64_t>(d.dy.size()));
  else if (trace)
    for (uint32_t i = 0; i < deferred_.size(); ++i)
      scope.add_product(deferred_[i].m, deferred_[i].inner(), static_cast<int64_t>(deferred_[i].dy.size()));
  int64_t work = 0, left = 0;
  for (const Part& part : parts) work += part.work;
  const int64_t share = std::max(work / most_chunks(small_chunks(work)), kParallelFlops);
  chunks_.assign(1, 0);
  for (size_t i = 0; i < parts.size(); ++i)
    if ((left += parts[i].work) >= share || i + 1 == parts.size()) chunks_.push_back(i + 1), left = 0;
  const auto run = [&](size_t first, size_t last) {
    const size_t end = chunks_[last];
    for (size_t i = chunks_[first];
         i < end;) {  // neighbouring parts of one gradient at once: all read dy or x
      Part part = parts[i];
      DeferredGradient& of = deferred_[part.deferred];
      const int64_t most =
          part.range.begin + std::max(kPart, kPartFloats * parts_of(of, part.by_rows) / (of.m * of.inner()));
      while (++i < end && parts[i].deferred == part.deferred && parts[i].range.end <= most)
        part.range.end = parts[i].range.end;
      run_part(of, part);
    }
  };
  parallel_for(chunks_.size() - 1, 1, run, small_chunks(work));
}

}  // namespace dyc
