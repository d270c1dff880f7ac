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
      fuser_(graph, plan) {}

void Planner::forget() {
  plan.clear();
  selection_.forget();
  single_root_ = kNone;
}

void Planner::plan_roots(std::span<const NodeId> roots, Scheduler scheduler, bool everything) {
  if (!selection_.select(roots, everything)) return;
  const bool single = selection_.begin() == 0 && selection_.all_pending() && roots.size() == 1;
  const auto first = static_cast<uint32_t>(plan.launches.size());
  const uint32_t copies = operands_.begin(first);
  extension_.first_launch = first;
  extension_.nodes_end = static_cast<uint32_t>(plan.nodes.size());
  extension_.index_end = plan.index.size();
  extension_.args_begin.assign(copies, kNone);
  plan.launches.resize(first + copies);
  plan.launch_of.resize(graph_.size(), kNone);
  const bool buckets = scheduler == Scheduler::bucket && !scheduler_.nothing_to_batch();
  if (buckets) open_buckets(scheduler_.order());
  else open_groups(scheduler);
  plan.nodes.resize(extension_.nodes_end);  // written twice, but the first time in order: scattered writes
  plan.index.resize(extension_.index_end);  // to memory that is not in the cache cost more
  if (buckets) fill([](const Node& n, uint32_t) { return n.bucket; });
  else fill([this](const Node&, uint32_t i) { return group_of_[i]; });
  graph_.mark_allocated(selection_.all_pending());
  for (uint32_t i = first + copies; i < plan.launches.size(); ++i)
    operands_.resolve(plan.launches[i], extension_.args_begin[i - first]);
  operands_.insert_copies(selection_);
  single_root_ = single ? roots[0] : kNone;
  single_root_launches_ = static_cast<uint32_t>(plan.launches.size());
  if (scheduler != Scheduler::bucket) return;
  if (pair_losses) pairs_.pair(first);
  fuser_.fuse(first, selection_.count());
}

void Planner::discard_last() {
  selection_.discard();
  graph_.mark_allocated(false);
  single_root_ = kNone;
}

// Appends a launch; its nodes and arguments are filled in later. Returns its number.
uint32_t Planner::open(const BucketStats& all, bool far) {
  const Sig& s = graph_.sig_number(all.sig);
  const OpInfo& info = op_info(s.op);
  Launch l;
  l.op = s.op;
  l.kind = info.meta->kind;
  l.sig = all.sig;
  l.batch_key = s.batch_key;
  l.count = all.count;
  l.uniform = !all.mixed;
  l.flat = s.flat;
  l.requires_grad = s.requires_grad;
  l.requires_grad_args = s.requires_grad_mask;
  l.fixed_arity = !(info.list && l.kind == OpKind::per_node);
  l.nodes = extension_.nodes_end;
  l.total = all.floats;
  l.far = far;
  l.out = far ? graph_.values_arena.allocate_far(static_cast<size_t>(all.floats))
              : graph_.values_arena.allocate(static_cast<size_t>(all.floats), 16);
  extension_.nodes_end += all.count;
  constexpr uint32_t kMostInline = 31;
  uint32_t args = kNone;
  if (l.uniform && l.fixed_arity && s.n_args <= kMostInline) {
    args = static_cast<uint32_t>(extension_.index_end);
    extension_.index_end += size_t{s.n_args} * all.count;
  }
  extension_.args_begin.push_back(args);
  plan.launches.push_back(l);
  return static_cast<uint32_t>(plan.launches.size() - 1);
}

// Are these products that one of the groups may be a loss of?
template <class Groups, class Stats>
bool Planner::may_pair(const BucketStats& all, const Groups& groups, Stats&& stats_of) const {
  return pair_losses && pairs_.may_pair(all) &&
         std::any_of(groups.begin(), groups.end(),
                     [&](const auto& group) { return pairs_.may_pair(all, stats_of(group)); });
}

// Of the launch's first nodes.
Planner::BucketCursor Planner::cursor_at(uint32_t launch) const {
  const Launch& l = plan.launches[launch];
  const Sig& s = graph_.sig_number(l.sig);
  const uint32_t weights = s.columns || l.count == 1 ? s.weights : 0;
  return {l.out,   l.uniform ? s.size : 0,
          l.nodes, extension_.args_begin[launch - extension_.first_launch],
          l.count, launch,
          weights};
}

void Planner::open_buckets(const BucketOrder& order) {
  cursors_.resize(graph_.buckets().size());
  const auto stats_of = [this](const std::vector<uint32_t>& buckets) {
    BucketStats all;
    for (uint32_t b : buckets) all.add(scheduler_.stats(b));
    return all;
  };
  for (const auto& buckets : order) {
    const BucketStats all = stats_of(buckets);
    BucketCursor next = cursor_at(open(all, may_pair(all, order, stats_of)));
    for (uint32_t b : buckets) {
      const BucketStats& t = scheduler_.stats(b);
      cursors_[scheduler_.bucket(b)] = next;
      next.out += t.floats;
      next.node += t.count;
      if (next.index != kNone) next.index += t.count;
    }
  }
}

// One share per group; group_of_ says which group a selected node belongs to.
void Planner::open_groups(Scheduler scheduler) {
  const std::vector<NodeId> nodes = selection_.nodes();
  groups_.clear();
  if (scheduler == Scheduler::depth) schedule_by_depth(graph_, nodes, groups_);
  else if (scheduler == Scheduler::agenda) schedule_by_agenda(graph_, nodes, groups_);
  else schedule_one_by_one(nodes, groups_);
  group_of_.resize(nodes.size());
  cursors_.resize(groups_.size());
  std::vector<BucketStats> stats(groups_.size());
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    BucketStats& all = stats[g];
    for (uint32_t i = groups_.begin[g]; i < groups_.begin[g + 1]; ++i) {
      const NodeId id = groups_.nodes[i];
      all.add(graph_.node(id).sig, graph_.sig(id).size);
      const auto at = nodes[i] == id ? nodes.begin() + i : std::lower_bound(nodes.begin(), nodes.end(), id);
      group_of_[static_cast<size_t>(at - nodes.begin())] = g;
    }
  }
  for (uint32_t g = 0; g < groups_.size(); ++g)
    cursors_[g] = cursor_at(
        open(stats[g], scheduler == Scheduler::bucket && may_pair(stats[g], stats, std::identity())));
}

// One pass in record order gives each result its offset and copies the offsets of its arguments, which were
// recorded earlier. slot(node, i): the cursor that the i-th selected node belongs to.
template <class Slot>
void Planner::fill(Slot&& slot) {
  int64_t *offsets = graph_.offsets(), *index = plan.index.data();
  uint32_t *launch_of = plan.launch_of.data(), *nodes = plan.nodes.data();
  uint8_t* wanted = selection_.marks();
  const NodeId* pool = graph_.arg_pool();
  BucketCursor* cursors = cursors_.data();
  uint32_t i = 0;
  selection_.for_each([&](NodeId id, const Node& n) {
    __builtin_prefetch(&n + 32);  // recorded a while ago
    __builtin_prefetch(offsets + id + 64, 1);
    BucketCursor& s = cursors[slot(n, i++)];
    offsets[id] = s.out;
    s.out += s.size ? s.size : graph_.sig_number(n.sig).size;
    launch_of[id] = s.launch;
    nodes[s.node++] = id;
    if (wanted) wanted[id] = 0;  // (not set where nodes are listed)
    if (s.index == kNone) return;
    int64_t* to = index + s.index;
    ++s.index;
    const NodeId* args = pool + n.args;
    for (uint32_t k = 0; k < n.n_args; ++k, to += s.stride) {
      if (s.weights >> k & 1) continue;
      const int64_t at = offsets[args[k]];
      *to = at >= 0 ? at : operands_.readable_offset(args[k]);
    }
  });
}

Planner::Counts Planner::count(NodeId root) {
  if (graph_.wants_rebucket()) graph_.rebucket();
  selection_.select({&root, 1}, false);
  const std::vector<NodeId> nodes = selection_.nodes();
  Counts c{};
  c.nodes = static_cast<uint32_t>(nodes.size());
  if (!nodes.empty()) {
    c.bucket = scheduler_.count_launches();
    groups_.clear();
    schedule_by_depth(graph_, nodes, groups_);
    c.depth = groups_.size();
    groups_.clear();
    schedule_by_agenda(graph_, nodes, groups_);
    c.agenda = groups_.size();
    c.lower_bound = launch_lower_bound(graph_, nodes);
  }
  selection_.discard();
  return c;
}

}  // namespace dyc
