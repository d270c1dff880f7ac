// Signatures: op, attributes, shapes of the arguments and the identity of shared weights. A node holds the
// number of its signature; shape rules run once per signature.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "graph/intern.h"
#include "ops/table.h"

namespace dyc {

// Which arguments of an op are weights: if the value of one is the same for the whole graph, its identity is
// part of the signature, and a launch reads it once.
struct WeightPositions {
  explicit WeightPositions(OpId op) : affine(op == op_id<Affine>), product(affine || op == op_id<MatMul>) {}
  bool has(uint32_t i) const { return product && (affine ? i == 0 || i % 2 == 1 : i == 0); }
  bool affine, product;
};

struct Sig {
  OpId op = 0;
  bool owns_weight = false;      // an argument in weight position is the same for the whole graph
  bool flat = false;             // all arguments have exactly the result's shape
  bool requires_grad = false;    // some argument needs a gradient
  bool empty = false;            // the result or an argument has no elements
  bool columns = false;          // matmul: one GEMM per weight over the columns of all nodes
  bool bias_per_column = false;  // matmul: the bias has the result's shape
  uint32_t dim = 0;              // the result's shape, as a number
  uint32_t batch_key = 0;        // nodes of equal batch key may share a launch
  uint32_t plain_site = 0xffffffffu;
  uint32_t size = 0;  // floats of the result
  uint32_t n_args = 0;
  const Dim* y = nullptr;
  std::vector<const Dim*> x;
  std::vector<uint32_t> attrs;
  std::vector<uint32_t> requires_grad_args;    // 1 where the argument needs a gradient
  uint32_t requires_grad_mask = 0;             // the same as bits
  static constexpr uint32_t kMaskedArgs = 31;  // arguments with a bit of their own; the last bit: the others
  static constexpr uint32_t mask_bit(uint32_t arg) { return arg < kMaskedArgs ? arg : kMaskedArgs; }
  uint32_t weights = 0;  // bit k < 32: argument k is a weight that is the same for the whole graph
  uint32_t attr(uint32_t i) const { return attrs[i]; }
};

class Signatures {
 public:
  uint32_t dim_id(const Dim& d);
  const Dim& dim(uint32_t id) const { return made_->dims[id]; }

  const Sig& operator[](uint32_t id) const { return *sigs_[id]; }
  Sig& at(uint32_t id) { return *sigs_[id]; }
  uint32_t size() const { return static_cast<uint32_t>(sigs_.size()); }
  // What recording reads of a signature, for all of them in one array.
  struct Brief {
    uint32_t dim, size;
  };
  Brief brief(uint32_t id) const { return briefs_[id]; }

  // Key: {op, n_args, n_attrs, attrs..., per argument: dim id * 2 + needs, weight identity or 0}.
  // Runs the shape rule when the key is new; throws what it throws.
  uint32_t of(OpId op, const uint32_t* key, uint32_t key_size);
  // Leaves: the shape is given. At most kMostLeafAttrs attributes.
  static constexpr uint32_t kMostLeafAttrs = 3;
  uint32_t leaf(OpId op, const uint32_t* attrs, uint32_t n_attrs, const Dim& y, bool requires_grad);
  // From now on sigs are those that `other` has now; another thread may add to it, or give them up.
  void refer_to(const Signatures& other) {
    if (made_ == other.made_ && sigs_.size() == other.sigs_.size()) return;
    made_ = other.made_;
    sigs_ = other.sigs_;
  }

 private:
  uint32_t make(OpId op, const uint32_t* key, const Dim* given);
  uint32_t batch_key_of(const Sig& s, const uint32_t* args);
  InternTable keys_, dim_keys_, batch_keys_;
  struct Made {
    std::deque<Sig> sigs;
    std::deque<Dim> dims;
  };
  std::shared_ptr<Made> made_ = std::make_shared<Made>();
  std::vector<Sig*> sigs_;  // in made_
  std::vector<Brief> briefs_;
};

}  // namespace dyc
