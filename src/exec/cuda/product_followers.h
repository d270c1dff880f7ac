// Element-wise ops that the launch of a product computes with its elements (cuda::Follower). The columns of
// what they read belong to those of the product: the thread that needs an element has made it, or it was
// there before the launch.
#pragma once
#include <optional>
#include <vector>

#include "exec/cuda/column_runs.h"
#include "exec/cuda/persistent_pass.h"

namespace dyc {

class ProductLaunches;

// Operands of an element-wise op, as in cuda::Follower, and how many of them there are.
enum FollowerOperand : size_t { kX, kY, kZ, kDz, kTo, kFollowerOperands };

// Elements next to each other in all operands: of a node, or of nodes. -1: the op has no such operand.
struct FollowingNode {
  int64_t floats;
  std::array<int64_t, kFollowerOperands> at;
};
struct FollowingOp {
  cuda::Follower::Kind kind;
  uint32_t op;  // number from 1 in Followers
  float attr;
  float *values, *gradients;
  std::vector<FollowingNode> nodes;
  bool forward() const { return kind == cuda::Follower::forward; }
  float* arena() const { return forward() ? values : gradients; }
  FollowerOperand made_by_product(bool second) const { return !forward() ? kDz : second ? kY : kX; }
  void add(const FollowingNode& node);
};

struct ProductFollower {
  cuda::Follower follower;
  ColumnRuns made;  // by column of the product
};

class ProductFollowers {
 public:
  explicit ProductFollowers(ProductLaunches& launches) : launches_(launches) {}

  // False, and nothing has changed: the op needs a launch of its own. `noted`: notes on the products.
  bool add(const FollowingOp& op, const std::vector<Command>& commands, std::vector<WeightProduct>& noted);

  // ---- notes on other launches, whose last command this is
  // Forward: what they write.
  void note_written(ArenaRange values, size_t command) { written_.push_back({values, command, false}); }
  // Backward: the gradients that they read and add to, and their first command.
  void note_added(ArenaRange reads, ArenaRange adds, size_t first, size_t command) {
    added_.push_back({reads, adds, first, command});
  }
  void clear();

 private:
  // A column of a product's result, or of what has followed it.
  struct ColumnPlace {
    size_t launch, product;
    FoundColumn found;
  };
  struct Written {
    ArenaRange range;
    size_t command;
    bool follows;  // in no order of commands
  };
  struct Added {
    ArenaRange reads, adds;
    size_t first, command;
  };
  using FollowedRun = ColumnRun<kFollowerOperands>;
  struct FollowedColumns {  // a product that the op follows, and what it reads and makes for each column
    size_t launch, product;
    std::vector<FollowedRun> runs;
  };
  bool find_targets(const FollowingOp& op);
  bool find_columns(const FollowingOp& op, const FollowingNode& node, int64_t rows);
  bool is_whole(FollowedColumns& t) const;
  bool find_first(const FollowingOp& op, const FollowingNode& node);
  void add_run(const FollowedRun& run);
  bool find(const FollowingOp& op, int64_t offset);
  void skip(int64_t columns);
  std::optional<FoundColumn> find_in(const FollowingOp& op, size_t launch, size_t product,
                                     int64_t offset) const;
  bool may_read(const FollowedColumns& t, const FollowingOp& op, const std::vector<Command>& commands) const;
  bool are_there(const FollowedColumns& t, const FollowingOp& op, const FollowedRun& run,
                 FollowerOperand operand, size_t since) const;
  bool is_written(ArenaRange read, size_t since) const;
  bool may_add(const FollowedColumns& t, const std::vector<Command>& commands) const;
  bool adds_apart(const FollowedColumns& t, ArenaRange to, ArenaRange dz, size_t commands) const;
  void follow(const FollowedColumns& t, const FollowingOp& op, std::vector<WeightProduct>& noted);
  cuda::Matrix<const float> matrix(const ColumnRuns& columns, const float* arena);
  int64_t rows_of(const FollowedColumns& t) const;
  ColumnRuns columns_of(const FollowedColumns& t, FollowerOperand operand) const;
  bool are_carried(const FollowedColumns& t, const FollowingOp& op, const ColumnRuns& operand) const;

  ProductLaunches& launches_;
  std::vector<Written> written_;
  std::vector<Added> added_;
  std::vector<FollowedColumns> targets_;
  ColumnPlace last_{};       // that was found,
  int64_t last_offset_ = 0;  // at this offset
  bool second_ = false;      // the operand that the last product made
};

}  // namespace dyc
