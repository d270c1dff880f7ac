#include "plan/planner.h"

#include <algorithm>

#include "graph/loop_nest.h"
#include "graph/segment_schedule.h"

namespace dyc {

struct Planner::Nested {
  LoopNest nest;
  SegmentSchedule schedule;
  uint32_t tables = 0, derived = 0;  // of the sites that the nests were found in
  std::vector<uint32_t> counts;      // nodes of each site
  struct OrderChoice {
    bool by_segments = false;  // took fewer launches than rounds
    uint32_t keep = 0;         // for so many demands
    uint32_t next = 16;        // and for so many after the next comparison
  };
  std::unordered_map<uint32_t, OrderChoice> choices;  // by the site of what is demanded
};

Planner::Planner(Graph& graph) : graph_(graph), nested_(std::make_unique<Nested>()) {}
Planner::~Planner() = default;

void Planner::forget() {
  plan.clear();
  first_pending_ = 0;
  single_root_ = kNone;
}

// ---------------------------------------------------------------- where everything lies

// One pass in record order gives each result its place and notes where its arguments lie: those come
// earlier, so they have places. slot(node, i): the share that the i-th selected node belongs to.
template <class Slot>
void Planner::fill(Slot&& slot) {
  int64_t *offsets = graph_.offsets(), *index = plan.index.data();
  uint32_t *launch_of = plan.launch_of.data(), *nodes = plan.nodes.data();
  uint8_t* wanted = marked_ ? wanted_.data() : nullptr;
  const NodeId* pool = graph_.arg_pool();
  BucketCursor* cursors = cursors_.data();
  uint32_t i = 0;
  for_each_selected([&](NodeId id, const Node& n) {
    __builtin_prefetch(&n + 32);  // recorded a while ago
    __builtin_prefetch(offsets + id + 64, 1);
    BucketCursor& s = cursors[slot(n, i++)];
    if (s.next) [[unlikely]]
      s.out = plan.launches[s.launch].out;
    offsets[id] = s.out;
    s.out += s.size ? s.size : graph_.sig_number(n.sig).size;
    launch_of[id] = s.launch;
    s.launch += s.next;
    nodes[s.node++] = id;
    if (wanted) wanted[id] = 0;  // (not set where nodes are listed)
    if (s.index == kNone) return;
    int64_t* to = index + s.index;
    s.index += s.step;
    const NodeId* args = pool + n.args;
    for (uint32_t k = 0; k < n.n_args; ++k, to += s.stride) {
      if (s.weights >> k & 1) continue;
      const int64_t at = offsets[args[k]];
      *to = at >= 0 ? at : readable_offset(args[k]);
    }
  });
}

void Planner::plan_roots(std::span<const NodeId> roots, Scheduler scheduler, bool everything) {
  if (!select(roots, everything)) return;
  const bool single = from_ == 0 && !marked_ && roots.size() == 1;
  first_ = static_cast<uint32_t>(plan.launches.size());
  nodes_end_ = static_cast<uint32_t>(plan.nodes.size());
  index_end_ = plan.index.size();
  copies_.clear();
  args_begin_.assign(copies_expected_, kNone);
  plan.launches.resize(first_ + copies_expected_);
  plan.launch_of.resize(graph_.size(), kNone);
  const bool buckets = scheduler == Scheduler::bucket && !nothing_to_batch();
  if (buckets) open_buckets(order_buckets());
  else open_groups(scheduler);
  plan.nodes.resize(nodes_end_);  // written twice, but the first time in order: scattered writes
  plan.index.resize(index_end_);  // to memory that is not in the cache cost more
  if (buckets) fill([](const Node& n, uint32_t) { return n.bucket; });
  else fill([this](const Node&, uint32_t i) { return local_[i]; });
  graph_.mark_allocated(!marked_);
  for (uint32_t i = first_ + copies_expected_; i < plan.launches.size(); ++i) resolve_operands(i);
  insert_copies();
  single_root_ = single ? roots[0] : kNone;
  single_root_launches_ = static_cast<uint32_t>(plan.launches.size());
  if (scheduler == Scheduler::bucket) fuse(first_);
}

void Planner::discard_last() {
  std::fill(wanted_.begin(), wanted_.end(), 0);
  graph_.mark_allocated(false);
  limit(from_);
  single_root_ = kNone;
}

// ---------------------------------------------------------------- what to compute

bool Planner::select(std::span<const NodeId> roots, bool everything) {
  from_ = first_pending_;
  to_ = roots.back() + 1;
  if (roots.back() < first_pending_) return false;
  marked_ = !all_lead_to(roots);
  listed_ = false;
  if (marked_) {
    if (everything || !list_needed(roots)) mark_needed(roots, everything);
  } else {
    pending_ = graph_.pending();
    first_pending_ = to_;
  }
  return pending_ != 0;
}

bool Planner::all_lead_to(std::span<const NodeId> roots) {
  bases_.clear();
  for (const NodeId root : roots) bases_.push_back(graph_.base_of(root));
  if (bases_.size() > 1) {  // views of one node
    std::sort(bases_.begin(), bases_.end());
    bases_.erase(std::unique(bases_.begin(), bases_.end()), bases_.end());
  }
  return graph_.all_lead_to(bases_);
}

void Planner::want_up_to(NodeId last) {
  if (wanted_.size() <= last) wanted_.resize(std::max<size_t>(last + 1, wanted_.size() * 2), 0);
}

// Few pending ancestors of the roots among many other pending nodes (a loop that reads values and keeps
// others for later): found by following arguments. False when that is not worth it.
bool Planner::list_needed(std::span<const NodeId> roots) {
  const size_t most = (roots.back() - first_pending_) / 8;
  if (most < std::max<size_t>(8, roots.size())) return false;
  want_up_to(roots.back());
  const int64_t* offsets = graph_.offsets();
  list_.clear();  // visited nodes; those behind `next` are still to be followed
  for (const NodeId root : roots) {
    if (root < first_pending_) continue;
    list_.push_back(root);
    wanted_[root] = 1;
  }
  for (size_t next = 0; next < list_.size() && list_.size() <= most; ++next) {
    const Node& n = graph_.node(list_[next]);
    const NodeId* args = graph_.args(list_[next]);
    const uint32_t count = n.flags & Node::view ? 1 : n.flags & Node::leaf ? 0 : n.n_args;
    for (uint32_t i = 0; i < count; ++i) {
      if (args[i] < first_pending_ || wanted_[args[i]] || offsets[args[i]] != kPending) continue;
      wanted_[args[i]] = 1;
      list_.push_back(args[i]);
    }
  }
  for (const NodeId id : list_) wanted_[id] = 0;
  if (list_.size() > most) return false;
  const auto no_work = [&](NodeId id) {
    return offsets[id] != kPending || (graph_.node(id).flags & (Node::leaf | Node::view)) != 0;
  };
  list_.erase(std::remove_if(list_.begin(), list_.end(), no_work), list_.end());
  std::sort(list_.begin(), list_.end());
  pending_ = static_cast<uint32_t>(list_.size());
  listed_ = true;
  return true;
}

// Unplaced ancestors of the roots, found backwards.
void Planner::mark_needed(std::span<const NodeId> roots, bool everything) {
  pending_ = 0;
  want_up_to(roots.back());
  for (const NodeId root : roots)
    if (root >= first_pending_) wanted_[root] = 1;
  NodeId skipped = to_;  // lowest pending node that is not wanted
  const int64_t* offsets = graph_.offsets();
  for (NodeId id = to_; id-- > first_pending_;) {
    const bool wanted = wanted_[id] || everything;
    wanted_[id] = 0;
    if (offsets[id] != kPending) continue;
    const Node& n = graph_.node(id);
    if (!wanted) {
      if (!(n.flags & (Node::leaf | Node::view))) skipped = id;
      continue;
    }
    const NodeId* args = graph_.args(id);
    if (n.flags & Node::view) {
      if (args[0] >= first_pending_) wanted_[args[0]] = 1;
      continue;
    }
    if (n.flags & Node::leaf) continue;
    for (uint32_t i = 0; i < n.n_args; ++i)
      if (args[i] >= first_pending_) wanted_[args[i]] = 1;  // below it all is placed
    wanted_[id] = 1;
    ++pending_;
  }
  first_pending_ = skipped;
}

std::vector<NodeId> Planner::selected() {
  std::vector<NodeId> nodes;
  nodes.reserve(pending_);
  for_each_selected([&](NodeId id, const Node&) { nodes.push_back(id); });
  return nodes;
}

// A few nodes without two of one class: nothing to batch, record order is as good as any.
bool Planner::nothing_to_batch() {
  constexpr uint32_t kFew = 32;
  if (pending_ > kFew) return false;
  ++key_epoch_;
  bool twice = false;
  for_each_selected([&](NodeId, const Node& n) {
    const uint32_t batch_key = graph_.sig_number(n.sig).batch_key;
    if (batch_key >= key_seen_.size()) key_seen_.resize(batch_key + 64, 0);
    twice = twice || key_seen_[batch_key] == key_epoch_;
    key_seen_[batch_key] = key_epoch_;
  });
  return !twice;
}

// ---------------------------------------------------------------- in which launches

namespace {

constexpr uint32_t kMostKept = 1024;  // demands that a choice between two orders is kept for

}  // namespace

const BucketOrder& Planner::order_buckets() {
  count_buckets();
  if (!has_nested_loops()) return order_by_rounds();
  Nested::OrderChoice& choice = nested_->choices[graph_.node(to_ - 1).site];
  if (choice.keep) {
    --choice.keep;
    return choice.by_segments ? order_by_segments() : order_by_rounds();
  }
  const size_t by_rounds = order_by_rounds().size();
  const BucketOrder& order = order_by_segments();
  choice.by_segments = order.size() + by_rounds / 20 < by_rounds;
  choice.keep = choice.next;
  choice.next = std::min(2 * choice.next, kMostKept);
  if (choice.by_segments) return order;
  graph_.regroup(nullptr);
  count_buckets();
  return order_by_rounds();
}

const BucketOrder& Planner::order_by_rounds() {
  connect_buckets();
  return cached_order();
}

const BucketOrder& Planner::order_by_segments() {
  nested_->schedule.order(graph_, nested_->nest);
  graph_.regroup(&nested_->schedule);
  count_buckets();
  return order_by_rounds();
}

// Are there loops in loops, and enough of them to be worth a look at every node?
bool Planner::has_nested_loops() {
  constexpr uint32_t kWorthIt = 256, kPart = 4;
  if (pending_ < kWorthIt || pending_ * kPart < graph_.size()) return false;
  const Sites& sites = graph_.sites();
  Nested& n = *nested_;
  if (n.tables != graph_.tables() || n.derived != sites.derived()) {
    if (n.tables != graph_.tables()) n.choices.clear();
    n.tables = graph_.tables();
    n.derived = sites.derived();
    n.counts.assign(sites.size(), 0);
    for (const Keyed& k : active_) n.counts[k.site] += stats(k.bucket).count;
    n.nest.derive(sites, n.counts);
  }
  return n.nest.any();
}

// Finds the buckets that have selected nodes, and numbers them in key order.
void Planner::count_buckets() {
  const uint32_t n = graph_.buckets();
  if (marked_) {
    stats_.assign(n, {});
    for_each_selected([&](NodeId, const Node& node) {
      stats_[node.bucket].add(node.sig, graph_.sig_number(node.sig).size);
    });
  }
  active_.clear();
  const Sites& sites = graph_.sites();
  for (uint32_t b = 0; b < n; ++b) {
    if (!stats(b).count) continue;
    const Bucket& bucket = graph_.bucket(b);
    active_.push_back({uint64_t{sites.phase(bucket.site)} << 32 | bucket.round, bucket.site, b});
  }
  std::sort(active_.begin(), active_.end(),
            [](const Keyed& x, const Keyed& y) { return x.key != y.key ? x.key < y.key : x.site < y.site; });
  local_.assign(n, kNone);
  for (uint32_t i = 0; i < active_.size(); ++i) local_[active_[i].bucket] = i;
}

// Edges were collected while recording; those from buckets that are placed already count no more.
void Planner::connect_buckets() {
  const uint32_t n = static_cast<uint32_t>(active_.size());
  const Sites& sites = graph_.sites();
  buckets_.batch_key.resize(n);
  buckets_.phase.resize(n);
  buckets_.round.resize(n);
  buckets_.pred_begin.assign(1, 0);
  buckets_.preds.clear();
  for (uint32_t b = 0; b < n; ++b) {
    const Bucket& bucket = graph_.bucket(active_[b].bucket);
    buckets_.batch_key[b] = sites[bucket.site].batch_key;
    buckets_.phase[b] = sites.phase(bucket.site);
    buckets_.round[b] = bucket.round;
    for (uint32_t e = bucket.preds; e != kNone; e = graph_.edge(e).next) {
      const uint32_t p = local_[graph_.edge(e).pred];
      if (p != kNone) buckets_.preds.push_back(p);
    }
    buckets_.pred_begin.push_back(static_cast<uint32_t>(buckets_.preds.size()));
  }
}

const BucketOrder& Planner::cached_order() {
  uint64_t hash = buckets_.size();
  for (uint32_t c : buckets_.batch_key) hash = mix(hash, c);
  for (uint32_t i = 0; i < buckets_.size(); ++i)
    hash = mix(hash, uint64_t{buckets_.phase[i]} << 32 | buckets_.round[i]);
  for (uint32_t p : buckets_.preds) hash = mix(hash, p);
  const auto found = order_cache_.find(hash);
  if (found != order_cache_.end() && found->second.graph == buckets_) return found->second.order;
  constexpr size_t kMostCachedOrders = 2048;
  if (order_cache_.size() >= kMostCachedOrders) order_cache_.clear();
  CachedOrder& fresh = order_cache_[hash];
  fresh = {buckets_, schedule_buckets(buckets_)};
  return fresh.order;
}

// Appends a launch; its nodes and arguments are filled in later. Returns its number.
uint32_t Planner::open(uint32_t sig, uint32_t count, int64_t floats, bool mixed) {
  const Sig& s = graph_.sig_number(sig);
  const OpInfo& info = op_info(s.op);
  Launch l;
  l.op = s.op;
  l.kind = info.meta->kind;
  l.sig = sig;
  l.batch_key = s.batch_key;
  l.count = count;
  l.uniform = !mixed;
  l.flat = s.flat;
  l.requires_grad = s.requires_grad;
  l.requires_grad_args = s.requires_grad_mask;
  l.fixed_arity = !(info.list && l.kind == OpKind::per_node);
  l.nodes = nodes_end_;
  l.total = floats;
  l.out = graph_.values_arena.allocate(static_cast<size_t>(floats), 16);
  nodes_end_ += count;
  constexpr uint32_t kMostInline = 31;
  uint32_t args = kNone;
  if (l.uniform && l.fixed_arity && s.n_args <= kMostInline) {
    args = static_cast<uint32_t>(index_end_);
    index_end_ += size_t{s.n_args} * count;
  }
  args_begin_.push_back(args);
  plan.launches.push_back(l);
  return static_cast<uint32_t>(plan.launches.size() - 1);
}

// Of the launch's first nodes.
Planner::BucketCursor Planner::cursor_at(uint32_t launch) const {
  const Launch& l = plan.launches[launch];
  const Sig& s = graph_.sig_number(l.sig);
  const uint32_t weights = s.columns || l.count == 1 ? s.weights : 0;
  return {l.out,  l.uniform ? s.size : 0, l.nodes, args_begin_[launch - first_], l.count, 1, launch, 0,
          weights};
}

void Planner::open_buckets(const BucketOrder& order) {
  cursors_.resize(graph_.buckets());
  for (const auto& buckets : order) {
    const BucketStats first = stats(active_[buckets[0]].bucket);
    if (op_info(graph_.sig_number(first.sig).op).meta->batch == Batch::solo) {
      for (uint32_t b : buckets) {
        const BucketStats t = stats(active_[b].bucket);
        const uint32_t launch = static_cast<uint32_t>(plan.launches.size());
        for (uint32_t i = 0; i < t.count; ++i) open(t.sig, 1, t.floats / t.count, t.mixed);
        BucketCursor& s = cursors_[active_[b].bucket] = cursor_at(launch);
        s.step = graph_.sig_number(t.sig).n_args;
        s.next = 1;
      }
      continue;
    }
    BucketStats all = first;
    for (size_t i = 1; i < buckets.size(); ++i) all.add(stats(active_[buckets[i]].bucket));
    BucketCursor next = cursor_at(open(first.sig, all.count, all.floats, all.mixed));
    for (uint32_t b : buckets) {
      const BucketStats& t = stats(active_[b].bucket);
      cursors_[active_[b].bucket] = next;
      next.out += t.floats;
      next.node += t.count;
      if (next.index != kNone) next.index += t.count;
    }
  }
}

// One share per group; local_ says which group a selected node belongs to.
void Planner::open_groups(Scheduler scheduler) {
  const std::vector<NodeId> nodes = selected();
  groups_.clear();
  if (scheduler == Scheduler::depth) schedule_by_depth(graph_, nodes, groups_);
  else if (scheduler == Scheduler::agenda) schedule_by_agenda(graph_, nodes, groups_);
  else schedule_one_by_one(nodes, groups_);
  local_.resize(nodes.size());
  cursors_.resize(groups_.size());
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    BucketStats all;
    for (uint32_t i = groups_.begin[g]; i < groups_.begin[g + 1]; ++i) {
      const NodeId id = groups_.nodes[i];
      all.add(graph_.node(id).sig, graph_.sig(id).size);
      const auto at = nodes[i] == id ? nodes.begin() + i : std::lower_bound(nodes.begin(), nodes.end(), id);
      local_[static_cast<size_t>(at - nodes.begin())] = g;
    }
    cursors_[g] = cursor_at(open(all.sig, all.count, all.floats, all.mixed));
  }
}

Planner::Counts Planner::count(NodeId root) {
  const NodeId low = first_pending_;
  const auto choices = nested_->choices;
  if (graph_.wants_rebucket()) graph_.rebucket();
  select({&root, 1}, false);
  first_pending_ = low;
  const std::vector<NodeId> nodes = selected();
  Counts c{};
  c.nodes = static_cast<uint32_t>(nodes.size());
  if (nodes.empty()) return c;
  for (const auto& buckets : order_buckets())
    for (uint32_t b : buckets) {
      const BucketStats& t = stats(active_[b].bucket);
      const bool solo = op_info(graph_.sig_number(t.sig).op).meta->batch == Batch::solo;
      c.bucket += solo ? t.count : b == buckets[0];
    }
  groups_.clear();
  schedule_by_depth(graph_, nodes, groups_);
  c.depth = groups_.size();
  groups_.clear();
  schedule_by_agenda(graph_, nodes, groups_);
  c.agenda = groups_.size();
  c.lower_bound = launch_lower_bound(graph_, nodes);
  if (nested_->nest.any()) graph_.regroup(nullptr);
  nested_->choices = choices;
  std::fill(wanted_.begin(), wanted_.end(), 0);
  return c;
}

}  // namespace dyc
