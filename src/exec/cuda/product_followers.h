// Element-wise ops that the launch of a product computes with its elements (cuda::Follower). The columns of
// what they read belong to those of the product: the thread that needs an element has made it, or it was
// there before the launch.
#pragma once
#include <optional>
#include <vector>

#include "exec/cuda/column_offsets.h"
#include "exec/cuda/persistent_pass.h"

namespace dyc {

class ProductLaunches;

// A node, or a column, of an element-wise launch: where its operands are, as in cuda::Follower. -1: nowhere.
struct FollowingNode {
  int64_t floats, x, y, z, dz, to;
};
struct FollowingOp {
  cuda::Follower::Kind kind;
  uint32_t op;  // number from 1 in Followers
  float attr;
  float *values, *gradients;
  std::vector<FollowingNode> nodes;
  bool forward() const { return kind == cuda::Follower::forward; }
  float* arena() const { return forward() ? values : gradients; }
};

struct ProductFollower {
  cuda::Follower follower;
  ColumnOffsets made;  // by column of the product
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
  // A column of a product's result, and what has followed it: the follower of this number, or 0: nothing.
  struct ColumnPlace {
    size_t launch, product;
    int64_t column;
    size_t slot;
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
  struct FollowedColumns {  // a product that the op follows, and what it reads and makes for each column
    size_t launch, product;
    std::vector<FollowingNode> columns;
    int64_t known = 0;  // columns
  };
  bool find_targets(const FollowingOp& op);
  std::optional<ColumnPlace> place_of_node(const FollowingOp& op, const FollowingNode& node);
  bool add_column(const ColumnPlace& place, const FollowingNode& column);
  std::optional<ColumnPlace> find(const FollowingOp& op, int64_t offset);
  std::optional<ColumnPlace> find_in(const FollowingOp& op, size_t launch, size_t product,
                                     int64_t offset) const;
  bool may_read(const FollowedColumns& t, const FollowingOp& op, const std::vector<Command>& commands) const;
  bool is_there(const FollowedColumns& t, const FollowingOp& op, int64_t column, int64_t offset,
                size_t since) const;
  bool may_add(const FollowedColumns& t, const std::vector<Command>& commands) const;
  bool adds_apart(const FollowedColumns& t, ArenaRange to, ArenaRange dz, size_t commands) const;
  void follow(const FollowedColumns& t, const FollowingOp& op, std::vector<WeightProduct>& noted);
  template <class At>
  cuda::Matrix<const float> matrix(const FollowedColumns& t, const float* arena, At at);
  bool is_carried(const FollowedColumns& t, const FollowingOp& op, int64_t FollowingNode::* operand) const;

  ProductLaunches& launches_;
  std::vector<Written> written_;
  std::vector<Added> added_;
  std::vector<FollowedColumns> targets_;
  ColumnPlace last_{};   // that was found
  bool second_ = false;  // the operand that the last product made
};

}  // namespace dyc
