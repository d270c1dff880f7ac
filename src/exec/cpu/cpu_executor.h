// Runs launch records on the CPU, forward and backward.
#pragma once
#include <deque>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernel_table.h"
#include "exec/cpu/autotune.h"
#include "exec/executor.h"

namespace dyc {

constexpr size_t kTile = 2048;        // floats of a fused chain that go through all its launches at once
constexpr size_t kFlatGrain = 16384;  // floats of element-wise work worth handing to a thread

// The most chunks that a product or block is cut into: each reads all weights again. Results do not depend on
// them.
inline int64_t most_chunks() {
  const int64_t threads = thread_pool().threads();
  return threads == 1 ? 1 : std::min<int64_t>(4 * threads, 64);
}

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(Graph& graph, Plan& plan) : Executor(graph, plan), kernels_(kernels()) {}

  void forward(uint32_t& next, uint32_t end) override {
    while (next < end) {
      next = forward(next);
      poll_script();
    }
  }
  void refuse_reentry() override;
  void backward(NodeId root, const std::vector<uint8_t>& live,
                const std::vector<uint32_t>& live_nodes) override;
  const float* parameter_gradient(NodeId id) override;

 private:
  // Calls poll().
  void poll_script();
  bool polling_ = false;

  bool always_separate() const override { return false; }
  void zero_gradients(int64_t place, size_t floats) override;

  // Runs launch i and those fused with it; returns the number of the next one.
  uint32_t forward(uint32_t i);
  void run_backward(const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes);
  // Zeroes the gradients of results: of `root`, the launch that backward begins at, and of those that nothing
  // reads at once; of others before the last of the launches that read them runs backward.
  void clear_gradients(const std::vector<uint32_t>& live_nodes, uint32_t root);
  // Before launches [begin, end) run backward.
  void clear_read_by(uint32_t begin, uint32_t end);
  // `live_nodes` of them take part: those with live[node] != 0.
  void backward(const Launch& l, const std::vector<uint8_t>& live, uint32_t live_nodes);
  // A block of launches; those take part that have live members, with all their members.
  void backward_block(uint32_t first, const std::vector<uint32_t>& live_nodes);
  // A fused chain all of whose members take part.
  void backward_chain(uint32_t first, uint32_t last);
  // Where this backward adds the gradient of a parameter node.
  float* parameter_target(NodeId node);

  const float* weight(const Operand& o);
  float* weight_gradient(const Operand& o);
  void clear_gradient(const Launch& l);
  void note_reader(uint32_t reader);
  std::pair<int64_t, int64_t> first_and_last(const Launch& l, uint32_t k) const;

  void run(const Launch& l);
  void run_chain(TuningKnob knob, uint32_t first, uint32_t last);
  void describe_chain(TuningKey& key, uint32_t first, uint32_t last) const;
  void describe_block(TuningKey& key, const Launch& head, uint32_t begin, uint32_t end) const;
  void dispatch(const Launch& l);
  void run_range(const Launch& l, uint32_t begin, uint32_t end);
  void run_per_node_range(const Launch& l, uint32_t begin, uint32_t end);
  void run_tile(const Launch& l, size_t begin, size_t end);
  void back_tile(const Launch& l, size_t begin, size_t end);
  void run_unary(const Launch& l);
  void run_binary(const Launch& l);
  void run_per_node(const Launch& l);
  void run_matmul(const Launch& l);
  void run_matmul_columns(const Launch& l);
  void run_matmul_node(const Launch& l, uint32_t i);
  void run_custom(const Launch& l);
  void run_lookup(const Launch& l);
  void run_parameter(const Launch& l);

  void back(const Launch& l);
  void back_range(const Launch& l, uint32_t begin, uint32_t end);
  void back_per_node_range(const Launch& l, uint32_t begin, uint32_t end);
  void back_unary(const Launch& l);
  void back_binary(const Launch& l);
  void back_per_node(const Launch& l);
  void back_matmul(const Launch& l);
  void back_matmul_columns(const Launch& l);
  void back_matmul_node(const Launch& l, uint32_t i);
  void back_custom(const Launch& l);
  void back_argument(const Launch& l, uint32_t arg);
  void back_lookup(const Launch& l);
  template <class F>
  void for_nodes(const Launch& l, bool parallel, F&& f);

  // ---- GEMM over columns
  // A product W1 x1 + W2 x2 ... over the columns of all members, ready to run.
  struct Factor {
    const float* w;
    int64_t k;
    ConstCols x;
  };
  struct Job {
    int64_t m, n;             // rows and columns of the result
    int64_t cols;             // of one member
    int64_t work;             // multiply-adds
    uint32_t first, factors;  // in factors_
    ConstCols start;
    Cols y;
  };
  Job job(const Launch& l);
  void run_job(const Job& j, Range rows, Range cols, Copy w_copy) const;
  void run_jobs(const Job* jobs, size_t n);
  std::vector<int64_t>& room();

  void gemm_tn(int64_t m, int64_t k, const float* w, const Columns& dy, const Columns& dx);

  // ---- blocks
  void forward_block(uint32_t first);
  void start_block(const Launch& head);
  int64_t largest_of(const Launch& head, uint32_t begin, uint32_t end) const;
  int64_t floats_of(const Launch& head, uint32_t begin, uint32_t end) const;
  struct BlockWork {  // of its products
    int64_t work = 0, weights = 0, columns = INT64_MAX;
    bool apart() const;  // run the pieces one after the other?
  };
  void run_apart(const Launch& head);
  void run_through(const Launch& head, const BlockWork& all, int64_t columns);
  void run_stages(const Launch& head, uint32_t begin, uint32_t end, int64_t least);
  void run_tiles(const Launch& head, Range range, size_t grain, int64_t step);
  void back_pieces(const Launch& head, uint32_t begin, uint32_t end);
  void back_products(const Launch& head, uint32_t begin, uint32_t end);
  void add_bias_columns(const Launch& l, const Columns& dy);
  void add(float* to, const float* from, size_t n) const {
    kernels_.gemm->sum({0, static_cast<int64_t>(n)}, 1, {from, 0, nullptr}, to);
  }
  struct Input {  // of products, and what is added to its gradient
    Operand operand;
    int64_t k;
    size_t size;  // of a member
    Columns x;
    std::vector<Product> products;
  };
  Input& input(const Launch& l, uint32_t k);
  const Launch* stages(const Launch& head) const { return plan_.stages.data() + head.stages; }

  // ---- weight gradients
  struct Part {
    uint32_t deferred;
    float* target;
    Range range;
    Copy dy_copy;
  };
  void run_part(const DeferredGradient& d, float* target, Range part, Copy dy_copy) const;
  static void describe(TuningKey& key, const DeferredGradient& d);
  void run_deferred(DeferredGradient& d) override;
  void run_all_deferred();
  void run_parts(int64_t n, int64_t work);

  const float* values() const { return graph_.values_arena.base(); }

  const KernelTable& kernels_;
  std::vector<Part> parts_;
  std::vector<int64_t> outs_;                       // per launch: where its results begin
  std::vector<uint32_t> last_reader_;               // per launch: of its results
  std::vector<uint32_t> first_clear_, next_clear_;  // per launch: lists of those it is the last reader of
  std::vector<int64_t> room_x_, room_y_;
  std::deque<std::vector<int64_t>> rooms_;  // of the columns of the launch or block that runs
  size_t rooms_used_ = 0;
  std::vector<Factor> factors_;
  std::vector<Job> jobs_;  // per piece of a block
  std::vector<Input> inputs_;
  std::vector<uint8_t> live_stages_;  // those that take part in backward
};

// Calls f(begin, end) over members, on several threads when there is enough to do.
template <class F>
void CpuExecutor::for_nodes(const Launch& l, bool parallel, F&& f) {
  if (l.count == 1 || !parallel) return f(size_t{0}, size_t{l.count});
  size_t work = graph_.sig_number(l.sig).size;
  for (const Dim* d : graph_.sig_number(l.sig).x) work += d->size();
  const size_t grain = work >= kFlatGrain ? 1 : kFlatGrain / (work + 1) + 1;
  parallel_for(l.count, grain, f);
}

}  // namespace dyc
