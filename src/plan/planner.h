// From a demanded node to launch records: collect what is unplaced, group it, give every result its
// place and every operand its description.
#pragma once
#include <unordered_map>
#include <vector>

#include "plan/launch.h"
#include "plan/schedule.h"

namespace dyc {

class Planner {
 public:
  explicit Planner(Graph& graph) : graph_(graph) {}

  Plan plan;

  // Appends launches for every unplaced node that `root` needs. With `everything`: all unplaced
  // nodes up to root (what DyNet's forward() promises).
  void demand(NodeId root, Scheduler scheduler, bool everything);
  // The graph was renewed or cut back.
  void forget();
  // Class numbers mean something else from now on.
  void forget_orders() {
    memory_.clear();
    class_seen_.clear();
  }
  NodeId first_unplaced() const { return low_; }
  // The nodes of the last demand could not be computed.
  void take_back() {
    if (!pending_.empty()) limit(pending_.back().id);
  }
  void limit(uint32_t nodes) { low_ = low_ < nodes ? low_ : nodes; }

  // Launch count per scheduler for what `root` needs, without planning it; and the lower bound.
  struct Counts {
    uint32_t nodes, bucket, depth, agenda, lower_bound;
  };
  Counts count(NodeId root);

  uint32_t launch_of(NodeId id) const { return id < plan.launch_of.size() ? plan.launch_of[id] : kNone; }

 private:
  void collect(NodeId root, bool everything);
  void group(Scheduler scheduler);
  void group_by_buckets();
  bool nothing_to_batch();
  void number_buckets();
  void lay_out(const BucketOrder& order);
  void connect_buckets();
  const BucketOrder& remembered_order();
  void emit(uint32_t first, uint32_t count);
  void inspect_members(Launch& l, const uint32_t* sigs);
  void place_members(Launch& l, const NodeId* members);
  void describe_arguments(Launch& l);
  Operand describe(const Launch& l, uint32_t k);
  Operand describe_mixed(const Launch& l, uint32_t k, Operand o);
  void describe_lists(Launch& l, const NodeId* members);
  int64_t located(NodeId id);
  void fuse_chains(uint32_t first);
  void group_products(uint32_t first);
  bool reads_results(uint32_t launch, uint32_t first) const;
  bool same_input(const Launch& a, const Launch& b) const;
  bool joins_chain(const Launch& head, uint32_t first, uint32_t last) const;
  int64_t materialise(NodeId id);

  Graph& graph_;
  Groups groups_;
  std::vector<uint8_t> wanted_;
  struct Pending {  // what planning needs of a node, so that the node itself is read once
    NodeId id;
    uint32_t bucket, args, sig;
  };
  std::vector<Pending> pending_;            // descending
  std::vector<uint32_t> arg_lists_, sigs_;  // beside groups_.nodes: where the arguments start, signature
  const uint32_t* lists_ = nullptr;         // arg_lists_ of the launch being described
  std::vector<int64_t> offsets_;
  NodeId low_ = 0;  // every node below is placed

  std::vector<uint32_t> class_seen_;
  uint32_t class_epoch_ = 0;

  // ---- bucket scheduling
  BucketGraph buckets_;
  std::vector<uint32_t> used_;   // local number -> bucket, in key order
  std::vector<uint32_t> local_;  // bucket -> local number
  std::vector<uint32_t> counts_, sample_;
  struct Remembered {
    BucketGraph graph;
    BucketOrder order;
  };
  std::unordered_map<uint64_t, Remembered> memory_;
};

}  // namespace dyc
