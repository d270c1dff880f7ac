// Computes a product together with the loss that alone reads it (plan/column_losses.h), and what is between
// the two, in blocks of rows and columns that stay in the cache. BackwardPass computes each block of the
// product again, unless its columns were kept, turns it into the gradient in place, and adds that to the
// gradients of weights and inputs.
//
// If a later launch, value() or gradient() does read the product or what is between, these are computed as a
// whole, and the pair becomes ordinary launches. Results are bitwise those of ordinary launches, except
// gradients of biases and of weights that other launches use, too.
#pragma once
#include <utility>
#include <vector>

#include "base/storage.h"
#include "cpu/column_losses.h"
#include "exec/cpu/matmul_job.h"
#include "plan/launch.h"

namespace dyc {

class CpuExecutor;

class ColumnLosses {
 public:
  explicit ColumnLosses(CpuExecutor& executor) : e_(executor) {}

  void forward(uint32_t loss);
  // To be called before backward; `live_nodes`: how many nodes of each launch take part.
  void begin_backward(const std::vector<uint32_t>& live_nodes);
  void backward(uint32_t product);

  // Separates the pair that a launch belongs to, and computes all but the loss as a whole.
  void separate(uint32_t launch);
  // The same for products that launches [begin, end) read, which were planned later.
  void separate_read(uint32_t begin, uint32_t end);
  // Computes the gradients that backward() has skipped: all, or those of the pair with this offset.
  void complete_gradients();
  void complete_gradient(int64_t offset);
  void cut_back(uint32_t launches);
  void exchange(ColumnLosses& other) {
    pairs_.swap(other.pairs_);
    std::swap(n_pairs_, other.n_pairs_);
  }

 private:
  struct Pair {
    uint32_t product, loss;
    uint32_t adds = kNone, maps = kNone;  // launches between them, by their role
    int64_t kept = 0;           // columns whose results are in the value arena, at the product's place
    bool no_gradient = false;   // the last backward has left out the product's gradient
    std::vector<uint32_t> ids;  // one per column
    std::vector<ColumnSummary> summaries;
  };
  class Buffer {
   public:
    float* get(int64_t floats) {
      if (memory_.size() < static_cast<size_t>(floats))
        memory_ = FloatBuffer(static_cast<size_t>(floats), false);
      return memory_.data();
    }

   private:
    FloatBuffer memory_;
  };
  // A weight and its input, backward.
  struct Target {
    const float* w;
    int64_t k;
    ConstCols x;
    float* dw;      // null: not wanted
    int64_t sums;   // in sums_: the input's gradient, what that lost in rounding, a block's; < 0: not wanted
    int64_t piece;  // in pieces_, where columns are many: a piece of dw, what dw lost in rounding
  };
  struct GradientBlock {  // of the gradient of the product, one column after the other
    Range rows, cols;
    float* dy;
    int64_t height() const { return rows.end - rows.begin; }
  };
  struct BackwardPass {
    const Pair& pair;
    MatmulJob job;
    int64_t height;      // of a block
    const float* added;  // null: nothing
    float* db;           // null: not wanted
    float* dadded;       // null: not wanted
    bool pieces;         // blocks are pieces of the input's gradient (GemmKernels::tn_piece)
    bool many;           // columns are more than GemmKernels::nt_longest
  };

  Pair& pair_of(uint32_t product, uint32_t loss);
  template <class F>
  void each_between(const Pair& p, F f) const;
  bool has_gradient_at(const Pair& p, int64_t offset) const;
  const Launch& column_op(const Pair& p) const;
  const Operand* added(const Pair& p) const;
  const float* added_vector(const Pair& p) const;
  void compute(const MatmulJob& job, const float* added, Range rows, Range cols) const;
  void begin_columns(const Pair& p, const MatmulJob& job, Range cols, float* readers);
  void read_columns(const Pair& p, const MatmulJob& job, Range cols, float* readers);
  void fill_ids(Pair& p) const;
  void prepare(BackwardPass& b, const Launch& l);
  void make_gradient(const BackwardPass& b, const GradientBlock& block, Range cols);
  void add_to_inputs(const BackwardPass& b, const GradientBlock& block, Range cols);
  void add_to_weights(const BackwardPass& b, const GradientBlock& block, Range rows);
  void close_piece(const BackwardPass& b, const Target& t, Range rows, float* dw, bool last);
  void finish_inputs(const BackwardPass& b);

  CpuExecutor& e_;
  std::vector<Pair> pairs_;
  size_t n_pairs_ = 0;  // of pairs_; others are kept for their memory
  std::vector<Target> targets_;
  Buffer readers_, own_, block_, sums_, pieces_;
};

}  // namespace dyc
