#include "plan/planner.h"

#include <algorithm>
#include <functional>

namespace dyc {

Planner::Planner(Graph& graph)
    : graph_(graph),
      selection_(graph),
      scheduler_(graph, selection_),
      operands_(graph, plan),
      pairs_(graph, plan),
      writer_(graph, plan, operands_),
      fuser_(graph, plan) {}

void Planner::forget() {
  plan.clear();
  selection_.forget();
  single_root_ = {};
}

void Planner::plan_roots(std::span<const NodeId> roots, Scheduler scheduler, bool everything) {
  if (!selection_.select(roots, everything)) return;
  const bool single = selection_.begin() == 0 && selection_.all_pending() && roots.size() == 1;
  const auto first = static_cast<uint32_t>(plan.launches.size());
  const bool cached = scheduler == Scheduler::bucket && first == 0 && !everything;
  if (cached && cache_.restore(graph_, roots, selection_.count(), &plan)) {
    selection_.clear_marks();
  } else {
    make_plan(scheduler, first);
    if (cached) cache_.keep(graph_, plan);
  }
  graph_.mark_allocated(selection_.all_pending());
  single_root_ = {single ? roots[0] : kNone, static_cast<uint32_t>(plan.launches.size())};
}

void Planner::make_plan(Scheduler scheduler, uint32_t first) {
  const uint32_t copies = operands_.begin(first);
  writer_.begin(first, copies);
  plan.launches.resize(first + copies);
  plan.launch_of.resize(graph_.size(), kNone);
  const bool buckets = scheduler == Scheduler::bucket && !scheduler_.nothing_to_batch();
  if (buckets) open_buckets(scheduler_.order());
  else open_groups(scheduler);
  if (buckets) writer_.fill(selection_, [](const Node& n, uint32_t) { return n.bucket; });
  else writer_.fill(selection_, [this](const Node&, uint32_t i) { return grouping_.of[i]; });
  for (uint32_t i = first + copies; i < plan.launches.size(); ++i)
    operands_.resolve(plan.launches[i], writer_.args_begin(i));
  operands_.insert_copies(selection_);
  if (scheduler != Scheduler::bucket) return;
  if (pair_losses) pairs_.pair(first);
  fuser_.fuse(first, selection_.count());
}

void Planner::discard_last() {
  selection_.discard();
  graph_.mark_allocated(false);
  single_root_ = {};
}

void Planner::open_buckets(const BucketOrder& order) {
  writer_.cursors.resize(graph_.buckets().size());
  const auto stats_of = [this](std::span<const uint32_t> buckets) {
    BucketStats all;
    for (uint32_t b : buckets) all.add(scheduler_.stats(b));
    return all;
  };
  const auto launches = order.each();
  for (const auto buckets : launches) {
    const BucketStats all = stats_of(buckets);
    BucketCursor next = writer_.open(all, pair_losses && pairs_.may_pair(all, launches, stats_of));
    for (uint32_t b : buckets) {
      const BucketStats& t = scheduler_.stats(b);
      writer_.cursors[scheduler_.bucket(b)] = next;
      next.out += t.floats;
      next.node += t.count;
      if (next.index != kNone) next.index += t.count;
    }
  }
}

// One share per group; grouping_.of says which group a selected node belongs to.
void Planner::open_groups(Scheduler scheduler) {
  const std::vector<NodeId> nodes = selection_.nodes();
  grouping_.groups.clear();
  if (scheduler == Scheduler::depth) schedule_by_depth(graph_, nodes, grouping_.groups);
  else if (scheduler == Scheduler::agenda) schedule_by_agenda(graph_, nodes, grouping_.groups);
  else schedule_one_by_one(nodes, grouping_.groups);
  grouping_.of.resize(nodes.size());
  writer_.cursors.resize(grouping_.groups.size());
  std::vector<BucketStats> stats(grouping_.groups.size());
  for (uint32_t g = 0; g < grouping_.groups.size(); ++g) {
    BucketStats& all = stats[g];
    for (uint32_t i = grouping_.groups.begin[g]; i < grouping_.groups.begin[g + 1]; ++i) {
      const NodeId id = grouping_.groups.items[i];
      all.add(graph_.node(id).sig, graph_.sig(id).size);
      const auto at = nodes[i] == id ? nodes.begin() + i : std::lower_bound(nodes.begin(), nodes.end(), id);
      grouping_.of[static_cast<size_t>(at - nodes.begin())] = g;
    }
  }
  const bool pairs = pair_losses && scheduler == Scheduler::bucket;
  for (uint32_t g = 0; g < grouping_.groups.size(); ++g)
    writer_.cursors[g] = writer_.open(stats[g], pairs && pairs_.may_pair(stats[g], stats, std::identity()));
}

Planner::Counts Planner::count(NodeId root) {
  if (graph_.wants_rebucket()) graph_.rebucket();
  selection_.select({&root, 1}, false);
  const std::vector<NodeId> nodes = selection_.nodes();
  Counts c{};
  c.nodes = static_cast<uint32_t>(nodes.size());
  if (!nodes.empty()) {
    c.bucket = scheduler_.count_launches();
    grouping_.groups.clear();
    schedule_by_depth(graph_, nodes, grouping_.groups);
    c.depth = grouping_.groups.size();
    grouping_.groups.clear();
    schedule_by_agenda(graph_, nodes, grouping_.groups);
    c.agenda = grouping_.groups.size();
    c.lower_bound = launch_lower_bound(graph_, nodes);
  }
  selection_.discard();
  return c;
}

}  // namespace dyc
