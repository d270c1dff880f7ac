// Runs launches on the CPU, forward and backward.
//
// 76 methods and 16 fields, the methods short: the kinds of launches (element-wise, per node, custom, matmul,
// lookup), each in a file of its own (forward.cc, backward.cc, custom.cc, matmul.cc, fused_group.cc), call
// each other within fused groups for every launch, and share the buffers of columns and products below, which
// keep their memory.
#pragma once
#include <deque>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernel_table.h"
#include "exec/cpu/backward_order.h"
#include "exec/cpu/column_losses.h"
#include "exec/cpu/gradient_clearing.h"
#include "exec/cpu/matmul_job.h"
#include "exec/cpu/tuning.h"
#include "exec/executor.h"

namespace dyc {

// Chunks of work that are just large enough for a thread.
inline size_t small_chunks(int64_t multiply_adds, int64_t floats = 0) {
  return static_cast<size_t>(multiply_adds / kParallelFlops + floats / static_cast<int64_t>(kFlatGrain));
}

// The most chunks that so much work is cut into; 1 if one thread does it.
inline int64_t most_chunks(size_t small_chunks) {
  const int64_t threads = thread_pool().threads_for(small_chunks);
  return threads == 1 ? 1 : std::min(kChunksPerThread * threads, kMostChunks);
}

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(Graph& graph, Plan& plan) : Executor(graph, plan), kernels_(kernels()) {}

  void forward(uint32_t& next, uint32_t end) override {
    column_losses_.separate_read(next, end);
    while (next < end) {
      const uint64_t read = counters.operand_bytes;
      int64_t written = 0;
      for (uint32_t begin = next; next < end && next - begin < kPolledLaunches;) {
        const uint32_t first = next;
        next = forward(first);
        for (uint32_t i = first; i < next; ++i) written += plan_.launches[i].total;
        if (written + static_cast<int64_t>((counters.operand_bytes - read) / 4) >= kPolledFloats) break;
      }
      poll_script();
    }
  }
  void refuse_reentry() override;
  void backward(NodeId root, const std::vector<uint8_t>& live,
                const std::vector<uint32_t>& live_nodes) override;
  const float* parameter_gradient(NodeId id) override;
  void fetch_values(uint32_t launch, int64_t, size_t) override {
    if (plan_.launches[launch].loss != kNone) [[unlikely]]
      column_losses_.separate(launch);
  }
  void fetch_gradients(int64_t offset, size_t) override {
    column_losses_.complete_gradient(offset);
    aliases_.store(offset);
  }
  bool pairs_losses() const override { return true; }
  void complete_gradients() override {
    run_kept();
    column_losses_.complete_gradients();
  }
  void cut_back(uint32_t launches) override {
    column_losses_.cut_back(launches);
    if (launches == 0) aliases_.clear();
  }
  void exchange(Executor& other) override {
    Executor::exchange(other);
    auto& same = static_cast<CpuExecutor&>(other);
    column_losses_.exchange(same.column_losses_);
    aliases_.exchange(same.aliases_);
  }

 private:
  friend ColumnLosses;
  // Calls poll().
  void poll_script();
  bool polling_ = false;

  bool always_separate() const override { return false; }
  void zero_gradients(int64_t place, size_t floats) override;

  // Runs launch i and those fused with it; returns the number of the next one.
  uint32_t forward(uint32_t i);
  void run_backward(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes);
  void run_joined(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes);
  // Launches that run as one, if there are several; of their nodes those with live[node] != 0.
  void backward(std::span<const uint32_t> launches, const std::vector<uint8_t>& live,
                const std::vector<uint32_t>& live_nodes);
  // A fused group; those take part that have live nodes, with all their nodes.
  void backward_group(uint32_t first, const std::vector<uint32_t>& live_nodes);
  // An element-wise group all of whose nodes take part.
  void backward_elementwise(uint32_t first, uint32_t last);
  // Where this backward adds the gradient of a parameter node.
  float* parameter_target(NodeId node, bool* unset = nullptr);

  const float* weight(const Operand& o);
  float* weight_gradient(const Operand& o);

  void run(const Launch& l);
  void run_elementwise(bool backward, uint32_t first, uint32_t last);
  void dispatch(const Launch& l);
  void run_range(const Launch& l, uint32_t begin, uint32_t end);
  void run_per_node_range(const Launch& l, uint32_t begin, uint32_t end);
  bool joins_columns(const Launch& l) const;
  template <class F>
  void each_joined(const Launch& l, uint32_t begin, uint32_t end, F f) const;
  void run_tile(const Launch& l, size_t begin, size_t end);
  void back_tile(const Launch& l, size_t begin, size_t end);
  void run_unary(const Launch& l);
  void run_binary(const Launch& l);
  void run_per_node(const Launch& l);
  void run_matmul(const Launch& l);
  void run_matmul_nodes(const Launch& l);
  void run_custom(const Launch& l);
  void run_lookup(const Launch& l);
  // Rows lie all over a table: those that are next but a few are fetched while others are copied or added.
  static void fetch_row(const float* table, uint32_t number, size_t row);
  void fetch_ahead(const Launch& l, uint32_t i, const float* table, size_t row) const;
  void run_parameter(const Launch& l);

  void back(const Launch& l);
  void back_range(const Launch& l, uint32_t begin, uint32_t end);
  void back_per_node_range(const Launch& l, uint32_t begin, uint32_t end);
  void back_unary(const Launch& l);
  void back_binary(const Launch& l);
  void back_per_node(const Launch& l);
  void back_matmul(const Launch& l);
  void back_matmul_columns(const Launch& l);
  void back_matmul_nodes(const Launch& l);
  void list_node_products(const Launch& l, uint32_t i);
  void back_custom(const Launch& l);
  void back_argument(const Launch& l, uint32_t arg);
  void back_lookup(const Launch& l);
  template <class F>
  void for_nodes(const Launch& l, bool parallel, F&& f);

  // ---- GEMM over columns
  // Runs the product of one launch alone.
  MatmulJob new_job(const Launch& l);
  MatmulJob job(const Launch& l);
  void run_job(const MatmulJob& j, Range rows, Range cols) const;
  void run_jobs(const MatmulJob* jobs, size_t n);
  std::vector<int64_t>& new_columns();

  void gemm_tn(int64_t m, int64_t k, const float* w, const Columns& dy, const Columns& dx);
  void run_tn(const Product* products, int count, int64_t k, int64_t n, const Cols& dx);

  // ---- fused groups
  void forward_group(uint32_t first);
  void start_group(const Launch& head);
  int64_t largest_of(const Launch& head, uint32_t begin, uint32_t end) const;
  int64_t floats_of(const Launch& head, uint32_t begin, uint32_t end) const;
  struct GroupWork {  // of its products
    int64_t work = 0, weights = 0, columns = INT64_MAX;
    bool separate() const;  // run the stages one after the other?
  };
  void run_separately(const Launch& head);
  void run_through(const Launch& head, const GroupWork& all);
  void run_stages(const Launch& head, uint32_t begin, uint32_t end, int64_t least);
  void run_tiles(const Launch& head, Range range, size_t grain, int64_t step, int64_t work);
  void back_pieces(const Launch& head, uint32_t begin, uint32_t end);
  void back_products(const Launch& head, uint32_t begin, uint32_t end);
  void add_bias_columns(const Launch& l, const Columns& dy);
  void add(float* to, const float* from, size_t n) const {
    kernels_.gemm->sum({0, static_cast<int64_t>(n)}, 1, {from, 0, nullptr}, to);
  }
  struct Input {  // of products, and what is added to its gradient
    Operand operand;
    int64_t k;
    size_t size;  // of a node
    Columns x;
    std::vector<Product> products;
  };
  Input& input(const Launch& l, uint32_t k);
  const Launch* stages(const Launch& head) const { return plan_.stages.data() + head.stages; }

  // ---- weight gradients
  struct Part {
    uint32_t deferred;
    float* target;
    Range range;  // of rows, or of columns
    bool unset;   // the gradient was not zeroed before
    int64_t work;
    int64_t turn;  // number of the thread that has this part in its cache
    bool by_rows;
  };
  void run_part(const DeferredGradient& d, const Part& part) const;
  void run_deferred(DeferredGradient& d) override;
  void run_all_deferred();
  void run_parts(std::span<const Part> parts);
  void compute_kept(std::span<const std::shared_ptr<Storage>> storages) override;

  const float* values() const { return graph_.values_arena.base(); }

  const KernelTable& kernels_;
  std::vector<Part> parts_;
  std::vector<size_t> chunks_;  // where the parts of each chunk begin
  GradientAliases aliases_{*this};
  GradientClearing clearing_{*this, aliases_};
  BackwardOrder order_{*this};
  ColumnLosses column_losses_{*this};
  std::vector<int64_t> operand_memory_, result_memory_;
  std::deque<std::vector<int64_t>> column_memory_;  // of the columns of the launch or fused group that runs
  size_t column_memory_used_ = 0;
  std::vector<MatmulFactor> factors_;
  std::vector<MatmulJob> jobs_;  // per stage of a fused group, or per node
  std::vector<NodeProduct> node_products_;
  std::vector<Input> inputs_;
  std::vector<uint8_t> live_stages_;  // those that take part in backward
};

// Calls f(begin, end) over nodes, on several threads when there is enough to do.
template <class F>
void CpuExecutor::for_nodes(const Launch& l, bool parallel, F&& f) {
  if (l.count == 1 || !parallel) return f(size_t{0}, size_t{l.count});
  size_t work = graph_.sig_number(l.sig).size;
  for (const Dim* d : graph_.sig_number(l.sig).x) work += d->size();
  const size_t grain = work >= kFlatGrain ? 1 : kFlatGrain / (work + 1) + 1;
  parallel_for(l.count, grain, f, l.count * work / kFlatGrain);
}

// f(arguments, first node) for runs of nodes as one node with all their batch items.
template <class F>
void CpuExecutor::each_joined(const Launch& l, uint32_t begin, uint32_t end, F f) const {
  const Sig& sig = graph_.sig_number(l.sig);
  const bool has_ids = op_info(l.op).ids();
  const int64_t size = sig.x[0]->size();
  const uint32_t batch = sig.y->bd, most = kJoinedItems / batch;
  Dim xd = *sig.x[0], yd = *sig.y;
  const Dim* const dims[] = {&xd};
  uint32_t ids[kJoinedItems];
  for (uint32_t i = begin; i < end; i += most) {
    const uint32_t n = std::min(most, end - i);
    uint32_t n_ids = 0;
    for (uint32_t k = i; has_ids && k < i + n; ++k) {
      const Graph::Ids of = graph_.ids(plan_.nodes[l.nodes + k]);
      for (uint32_t b = 0; b < batch; ++b) ids[n_ids++] = of.data[of.n > 1 ? b : 0];
    }
    xd.bd = yd.bd = batch * n;
    const float* const x = values() + plan_.operands[l.operands].base + i * size;
    const float* const y = values() + l.out + int64_t{i} * sig.size;
    f(KernelArgs{dims, &yd, &x, y, nullptr, nullptr, 1, sig.attrs.data(), ids, n_ids}, i);
  }
}

}  // namespace dyc
