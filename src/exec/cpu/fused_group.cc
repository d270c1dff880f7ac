// Fused groups: products and what follows them, instance by instance, as one launch.
#include <algorithm>

#include "base/thread_pool.h"
#include "exec/cpu/cpu_executor.h"

namespace dyc {

namespace {

// Chunk of n instances with so much to do, at least so many of them.
size_t grain_of(int64_t n, int64_t flops, int64_t floats, int64_t least) {
  const size_t chunks = small_chunks(flops, floats);
  const int64_t allowed = std::clamp<int64_t>(n / least, 1, most_chunks(chunks));
  const int64_t most = std::clamp<int64_t>(static_cast<int64_t>(chunks), 1, allowed);
  return static_cast<size_t>((n + most - 1) / most);
}

}  // namespace

// Floats that one instance has in the stages [begin, end) that are no products.
int64_t CpuExecutor::floats_of(const Launch& head, uint32_t begin, uint32_t end) const {
  int64_t floats = 0;
  for (uint32_t p = begin; p < end; ++p)
    if (stages(head)[p].kind != OpKind::matmul) floats += stages(head)[p].total / head.count;
  return floats;
}

void CpuExecutor::start_group(const Launch& head) {
  column_memory_used_ = 0;
  factors_.clear();
  jobs_.resize(head.n_stages);
  for (uint32_t p = 0; p < head.n_stages; ++p) {
    const Launch& l = stages(head)[p];
    counters.nodes += l.count;
    if (op_info(l.op).check) check(l);
    if (l.kind == OpKind::matmul) jobs_[p] = job(l);
    else counters.operand_bytes += operand_bytes(l);
  }
}

// Threads share the rows of products with few columns, not instances.
bool CpuExecutor::GroupWork::separate() const {
  const bool few = columns < kFewColumns || (weights > kManyWeights && columns < 2 * kWideColumns);
  return few && thread_pool().threads_for(small_chunks(work)) > 1;
}

void CpuExecutor::forward_group(uint32_t first) {
  const Launch& head = plan_.launches[first];
  ++counters.launches;
  start_group(head);
  GroupWork all;
  for (uint32_t p = 0; p < head.n_stages; ++p) {
    if (stages(head)[p].kind != OpKind::matmul) continue;
    all.work += jobs_[p].work;
    all.weights += jobs_[p].work / std::max<int64_t>(jobs_[p].n, 1);
    all.columns = std::min(all.columns, jobs_[p].n);
  }
  if (all.work == 0) return run_stages(head, 0, head.n_stages, kReadColumns);
  if (all.separate()) return run_separately(head);
  run_through(head, all);
}

// All products that read nothing of the group, then what follows, up to the next product, and so on.
void CpuExecutor::run_separately(const Launch& head) {
  for (uint32_t p = 0; p < head.n_stages;) {
    uint32_t end = p + 1;
    const bool product = stages(head)[p].kind == OpKind::matmul;
    if (product && p < head.n_matmuls) end = head.n_matmuls;
    while (!product && end < head.n_stages && stages(head)[end].kind != OpKind::matmul) ++end;
    if (product) run_jobs(jobs_.data() + p, end - p);
    else run_stages(head, p, end, 1);
    p = end;
  }
}

// A few instances at a time through all stages: so many columns of products.
void CpuExecutor::run_through(const Launch& head, const GroupWork& all) {
  int64_t cols = 1;
  for (uint32_t p = 0; p < head.n_stages; ++p)
    if (stages(head)[p].kind == OpKind::matmul) cols = std::max(cols, jobs_[p].cols);
  const int64_t least = all.weights > kManyWeights ? kWideColumns : kReadColumns;
  const int64_t n = head.count, floats = n * floats_of(head, 0, head.n_stages);
  run_tiles(head, {0, head.n_stages}, grain_of(n, all.work, floats, (least + cols - 1) / cols),
            (kGroupColumns + cols - 1) / cols, all.work);
}

// Floats of an instance in the largest of stages [begin, end).
int64_t CpuExecutor::largest_of(const Launch& head, uint32_t begin, uint32_t end) const {
  int64_t largest = 1;
  for (uint32_t p = begin; p < end; ++p) largest = std::max(largest, stages(head)[p].total / head.count);
  return largest;
}

// Stages [begin, end), none of them a product. Threads get `least` instances or more.
void CpuExecutor::run_stages(const Launch& head, uint32_t begin, uint32_t end, int64_t least) {
  const int64_t largest = largest_of(head, begin, end);
  if (largest > kLargeInstance) {
    for (uint32_t p = begin; p < end; ++p) dispatch(stages(head)[p]);
    return;
  }
  const int64_t n = head.count, floats = n * floats_of(head, begin, end);
  run_tiles(head, {begin, end}, grain_of(n, 0, floats, least), (kTile + largest - 1) / largest, 0);
}

// `step` instances at a time through the stages of a range, whose products do so much work; threads share
// `grain` instances.
void CpuExecutor::run_tiles(const Launch& head, Range range, size_t grain, int64_t step, int64_t work) {
  const auto begin = static_cast<uint32_t>(range.begin), end = static_cast<uint32_t>(range.end);
  const auto run = [&](size_t from, size_t to) {
    const int64_t parts = (to - from + step - 1) / step;
    for (int64_t i = 0; i < parts; ++i) {  // of even sizes
      const int64_t a = from + (to - from) * i / parts, b = from + (to - from) * (i + 1) / parts;
      for (uint32_t p = begin; p < end; ++p) {
        const Launch& l = stages(head)[p];
        if (l.kind != OpKind::matmul) run_range(l, a, b);
        else run_job(jobs_[p], {0, jobs_[p].m}, {a * jobs_[p].cols, b * jobs_[p].cols});
      }
    }
  };
  parallel_for(head.count, grain, run, small_chunks(work, head.count * floats_of(head, begin, end)));
}

// ---------------------------------------------------------------- backward

// Stages without live nodes take no part.
void CpuExecutor::backward_group(uint32_t first, const std::vector<uint32_t>& live_nodes) {
  const Launch& head = plan_.launches[first];
  ++counters.launches;
  live_stages_.assign(head.n_stages, 0);
  for (uint32_t i = first; i <= first + head.fused; ++i) {
    const Launch& l = plan_.launches[i];
    run_deferred_of(l);
    for (uint32_t p = 0; p < head.n_stages; ++p) {
      const int64_t at = stages(head)[p].out;
      if (at >= l.out && at < l.out + l.total) live_stages_[p] = live_nodes[i] > 0;
    }
  }
  for (uint32_t end = head.n_stages; end > 0;) {
    uint32_t begin = end - 1;
    const bool product = stages(head)[begin].kind == OpKind::matmul;
    if (product && begin < head.n_matmuls) begin = 0;
    while (!product && begin > 0 && stages(head)[begin - 1].kind != OpKind::matmul) --begin;
    if (product) back_products(head, begin, end);
    else back_pieces(head, begin, end);
    end = begin;
  }
}

// Stages without products, in reverse.
void CpuExecutor::back_pieces(const Launch& head, uint32_t begin, uint32_t end) {
  const auto one_by_one = [&] {
    for (uint32_t p = end; p-- > begin;)
      if (live_stages_[p]) back(stages(head)[p]);
  };
  if (!head.disjoint_gradients) return one_by_one();
  const int64_t n = head.count, floats = floats_of(head, begin, end);
  const int64_t largest = largest_of(head, begin, end);
  if (largest > kLargeInstance) return one_by_one();
  const int64_t step = (kBackTile + largest - 1) / largest;
  const auto run = [&](size_t from, size_t to) {
    for (int64_t a = from; a < static_cast<int64_t>(to); a += step)
      for (uint32_t p = end; p-- > begin;)
        if (live_stages_[p]) back_range(stages(head)[p], a, std::min<int64_t>(a + step, to));
  };
  parallel_for(n, grain_of(n, 0, n * floats, 1), run, small_chunks(0, n * floats));
}

// Products that do not read each other. What they add to one input is summed first, in one GEMM over all
// weights that it met.
void CpuExecutor::back_products(const Launch& head, uint32_t begin, uint32_t end) {
  column_memory_used_ = 0;
  for (Input& in : inputs_) {  // kept for their memory
    in.k = 0;
    in.products.clear();
  }
  for (uint32_t p = begin; p < end; ++p) {
    if (!live_stages_[p]) continue;
    const Launch& l = stages(head)[p];
    const Sig& sig = graph_.sig_number(l.sig);
    const bool affine = l.op == op_id<Affine>;
    const int64_t m = sig.y->rows();
    const Operand* o = plan_.operands.data() + l.operands;
    const Columns dy = aliases_.columns(l).value_or(Columns{l.out, m, nullptr, l.total / m});
    if (affine && wanted(l, 0)) {
      if (sig.bias_per_column) add_bias_columns(l, dy);
      else deferred_.add(o[0], m, 0, dy, dy);
    }
    for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
      if (!wanted(l, k) && !wanted(l, k + 1)) continue;
      Input& in = input(l, k + 1);
      if (wanted(l, k + 1))
        in.products.push_back({m, weight(o[k]), m, {grads() + dy.base, dy.stride, dy.index}});
      if (wanted(l, k)) deferred_.add(o[k], m, in.k, dy, in.x);
    }
  }
  for (const Input& in : inputs_)
    if (!in.products.empty())
      run_tn(in.products.data(), static_cast<int>(in.products.size()), in.k, in.x.count,
             {grads() + in.x.base, in.x.stride, in.x.index});
}

// The columns of argument k, the same for all products that read the same.
CpuExecutor::Input& CpuExecutor::input(const Launch& l, uint32_t k) {
  const Operand& o = plan_.operands[l.operands + k];
  const Dim& dims = *graph_.sig_number(l.sig).x[k];
  const int64_t* index = plan_.index.data();
  const auto same = [&](const Input& in) {
    const Operand& other = in.operand;
    if (in.k != dims.rows() || in.size != dims.size() || other.kind != o.kind) return false;
    if (o.kind != Operand::indexed) return o.base == other.base && o.stride == other.stride;
    return std::equal(index + o.index, index + o.index + l.count, index + other.index);
  };
  Input* unused = nullptr;
  for (Input& in : inputs_) {
    if (in.k == 0) unused = &in;
    else if (same(in)) return in;
  }
  if (!unused) unused = &inputs_.emplace_back();
  unused->operand = o;
  unused->k = dims.rows();
  unused->size = dims.size();
  unused->x = columns(l, o, k, new_columns());
  return *unused;
}

}  // namespace dyc
