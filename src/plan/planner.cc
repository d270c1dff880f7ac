#include "plan/planner.h"

#include <algorithm>
#include <numeric>

namespace dyc {

void Planner::forget() {
  plan.clear();
  low_ = 0;
}

void Planner::demand(NodeId root, Scheduler scheduler, bool everything) {
  collect(root, everything);
  if (pending_.empty()) return;
  plan.launch_of.resize(graph_.size(), kNone);
  group(scheduler);
  const uint32_t n = groups_.size();
  for (uint32_t g = 0; g < n; ++g)
    emit(groups_.nodes.data() + groups_.begin[g], groups_.begin[g + 1] - groups_.begin[g]);
}

// Unplaced ancestors of root, ascending.
void Planner::collect(NodeId root, bool everything) {
  pending_.clear();
  if (wanted_.size() <= root) wanted_.resize(std::max<size_t>(root + 1, wanted_.size() * 2), 0);
  wanted_[root] = 1;
  NodeId skipped = root + 1;  // lowest unplaced node that is not wanted
  int64_t* places = graph_.places();
  for (NodeId id = root + 1; id-- > low_;) {
    const bool wanted = wanted_[id] || everything;
    wanted_[id] = 0;
    if (places[id] != kPending) continue;
    const Node& n = graph_.node(id);
    if (!wanted) {
      if (!(n.flags & (Node::leaf | Node::alias))) skipped = id;
      continue;
    }
    const NodeId* args = graph_.args(id);
    if (n.flags & Node::alias) {
      wanted_[args[0]] = 1;
      continue;
    }
    if (n.flags & Node::leaf) continue;
    const uint32_t n_args = graph_.sig_number(n.sig).n_args;
    for (uint32_t i = 0; i < n_args; ++i) wanted_[args[i]] = 1;
    pending_.push_back(id);
  }
  // Arguments below low_ were marked too; they are placed.
  for (NodeId id : pending_) {
    const NodeId* args = graph_.args(id);
    const uint32_t n_args = graph_.sig(id).n_args;
    for (uint32_t i = 0; i < n_args; ++i)
      if (args[i] < low_) wanted_[args[i]] = 0;
  }
  std::reverse(pending_.begin(), pending_.end());
  low_ = std::min<NodeId>(skipped, root + 1);
}

void Planner::group(Scheduler scheduler) {
  groups_.clear();
  switch (scheduler) {
    case Scheduler::bucket: return group_by_buckets();
    case Scheduler::depth: return schedule_by_depth(graph_, pending_, groups_);
    case Scheduler::agenda: return schedule_by_agenda(graph_, pending_, groups_);
    case Scheduler::none: return schedule_one_by_one(pending_, groups_);
  }
}

void Planner::group_by_buckets() {
  sort_into_buckets();
  connect_buckets();
  for (const auto& launch : remembered_order()) {
    const bool solo = op_row(graph_.sig(sorted_[begin_[launch[0]]]).op).meta->batch == Batch::solo;
    for (uint32_t b : launch)
      for (uint32_t i = begin_[b]; i < begin_[b + 1]; ++i) {
        groups_.nodes.push_back(sorted_[i]);
        if (solo) groups_.close();
      }
    if (!solo) groups_.close();
  }
}

// Counting sort of the pending nodes; buckets numbered in key order.
void Planner::sort_into_buckets() {
  const uint32_t n = graph_.buckets();
  counts_.assign(n, 0);
  used_.clear();
  for (NodeId id : pending_)
    if (counts_[graph_.node(id).bucket]++ == 0) used_.push_back(graph_.node(id).bucket);
  Sites& sites = graph_.sites();
  std::sort(used_.begin(), used_.end(), [&](uint32_t x, uint32_t y) {
    const Bucket &a = graph_.bucket(x), &b = graph_.bucket(y);
    const uint32_t pa = sites[a.site].phase, pb = sites[b.site].phase;
    if (pa != pb) return pa < pb;
    if (a.round != b.round) return a.round < b.round;
    return a.site < b.site;
  });
  local_.resize(n);
  begin_.assign(used_.size() + 1, 0);
  for (uint32_t i = 0; i < used_.size(); ++i) {
    local_[used_[i]] = i;
    begin_[i + 1] = begin_[i] + counts_[used_[i]];
    counts_[used_[i]] = begin_[i];
  }
  sorted_.resize(pending_.size());
  for (NodeId id : pending_) sorted_[counts_[graph_.node(id).bucket]++] = id;
}

void Planner::connect_buckets() {
  const uint32_t n = static_cast<uint32_t>(used_.size());
  Sites& sites = graph_.sites();
  buckets_.cls.resize(n);
  buckets_.phase.resize(n);
  buckets_.round.resize(n);
  buckets_.pred_begin.assign(1, 0);
  buckets_.preds.clear();
  seen_.assign(n, kNone);
  for (uint32_t b = 0; b < n; ++b) {
    const Bucket& bucket = graph_.bucket(used_[b]);
    buckets_.cls[b] = sites[bucket.site].cls;
    buckets_.phase[b] = sites[bucket.site].phase;
    buckets_.round[b] = bucket.round;
    for (uint32_t i = begin_[b]; i < begin_[b + 1]; ++i) {
      const NodeId* args = graph_.args(sorted_[i]);
      const uint32_t n_args = graph_.sig(sorted_[i]).n_args;
      for (uint32_t k = 0; k < n_args; ++k) {
        if (graph_.place(args[k]) != kPending || graph_.node(args[k]).flags & Node::leaf) continue;
        const uint32_t p = local_[graph_.node(args[k]).bucket];
        if (seen_[p] == b) continue;
        seen_[p] = b;
        buckets_.preds.push_back(p);
      }
    }
    buckets_.pred_begin.push_back(static_cast<uint32_t>(buckets_.preds.size()));
  }
}

const BucketOrder& Planner::remembered_order() {
  uint64_t hash = buckets_.size();
  for (uint32_t c : buckets_.cls) hash = mix(hash, c);
  for (uint32_t i = 0; i < buckets_.size(); ++i) hash = mix(hash, uint64_t{buckets_.phase[i]} << 32 | buckets_.round[i]);
  for (uint32_t p : buckets_.preds) hash = mix(hash, p);
  const auto found = memory_.find(hash);
  if (found != memory_.end() && found->second.graph == buckets_) return found->second.order;
  constexpr size_t kMostRemembered = 2048;
  if (memory_.size() >= kMostRemembered) memory_.clear();
  Remembered& fresh = memory_[hash];
  fresh = {buckets_, schedule_buckets(buckets_)};
  return fresh.order;
}

// ---------------------------------------------------------------- launch records

void Planner::emit(const NodeId* members, uint32_t count) {
  const Sig& sig = graph_.sig(members[0]);
  const OpRow& row = op_row(sig.op);
  Launch l;
  l.op = sig.op;
  l.form = row.meta->form;
  l.sig = graph_.node(members[0]).sig;
  l.cls = sig.cls;
  l.needs = sig.needs;
  l.count = count;
  l.members = static_cast<uint32_t>(plan.members.size());
  l.fixed_arity = !(row.list && l.form == Form::member);
  plan.members.insert(plan.members.end(), members, members + count);
  if (l.fixed_arity) describe_arguments(l, members);
  else describe_lists(l, members);
  place_members(l, members);
  plan.launches.push_back(l);
}

void Planner::place_members(Launch& l, const NodeId* members) {
  const uint32_t number = static_cast<uint32_t>(plan.launches.size());
  int64_t total = 0;
  uint32_t last = kNone;
  l.uniform = true;
  l.flat = true;
  for (uint32_t i = 0; i < l.count; ++i) {
    const Sig& s = graph_.sig(members[i]);
    l.uniform = l.uniform && graph_.node(members[i]).sig == l.sig;
    l.flat = l.flat && s.flat;
    if (l.fixed_arity && graph_.node(members[i]).sig != last) {
      last = graph_.node(members[i]).sig;
      for (uint32_t k = 0; k < s.n_args; ++k) l.needs_args |= s.needs_args[k] << (k < 31 ? k : 31);
    }
    l.needs = l.needs || s.needs;
    total += s.size;
    plan.launch_of[members[i]] = number;
  }
  l.total = total;
  l.out = graph_.values_arena.allocate(static_cast<size_t>(total), 16);
  if (!l.uniform) l.out_index = static_cast<uint32_t>(plan.index.size());
  int64_t at = l.out;
  for (uint32_t i = 0; i < l.count; ++i) {
    graph_.set_place(members[i], at);
    if (!l.uniform) plan.index.push_back(at);
    at += graph_.sig(members[i]).size;
  }
}

void Planner::describe_arguments(Launch& l, const NodeId* members) {
  l.n_operands = graph_.sig(members[0]).n_args;
  // Parameters that are read like any value get a place first: their copies are launches themselves.
  std::vector<Operand> operands(l.n_operands);
  for (uint32_t k = 0; k < l.n_operands; ++k) operands[k] = describe(l, members, k);
  l.operands = static_cast<uint32_t>(plan.operands.size());
  plan.operands.insert(plan.operands.end(), operands.begin(), operands.end());
}

Operand Planner::describe(const Launch& l, const NodeId* members, uint32_t k) {
  Operand o;
  const NodeId first = graph_.args(members[0])[k];
  const Sig& sig = graph_.sig(members[0]);
  const bool position = l.form == Form::matmul && weight_position(l.op == op_id<Affine>, k);
  if (position && graph_.node(first).inv && (sig.columns || l.count == 1)) {
    if (graph_.place(first) == kParameter && graph_.owner(first) != first) materialise(graph_.owner(first));
    o.kind = Operand::weight;
    o.node = graph_.place(first) == kParameter ? first : graph_.owner(first);
    o.base = graph_.place(first);
    return o;
  }
  o.base = located(first);
  o.kind = Operand::contiguous;
  o.stride = sig.x[k]->size();
  if (l.count == 1) return o;
  // One pass: are the offsets equal, gapless, evenly spaced?
  const size_t begin = plan.index.size();
  plan.index.resize(begin + l.count);
  int64_t* index = plan.index.data() + begin;
  const int64_t first_size = sig.x[k]->size();
  bool gapless = true, even = true, one_size = true, as_result = true;
  int64_t last = o.base - first_size, size = first_size;
  const int64_t stride = located(graph_.args(members[1])[k]) - o.base;
  for (uint32_t i = 0; i < l.count; ++i) {
    const Sig& s = graph_.sig(members[i]);
    const int64_t at = index[i] = located(graph_.args(members[i])[k]);
    gapless = gapless && at == last + size;
    even = even && at == o.base + i * stride;
    last = at;
    size = s.x[k]->size();
    one_size = one_size && size == first_size;
    as_result = as_result && size == s.size;
  }
  if (gapless && (one_size || as_result)) {
    o.kind = Operand::contiguous;
    o.stride = one_size ? first_size : 0;
  } else if (even) {
    o.kind = stride == 0 ? Operand::shared : Operand::strided;
    o.stride = stride;
  } else {
    o.kind = Operand::indexed;
  }
  if (o.kind == Operand::indexed) o.index = static_cast<uint32_t>(begin);
  else plan.index.resize(begin);
  return o;
}

void Planner::describe_lists(Launch& l, const NodeId* members) {
  std::vector<int64_t> places;
  l.arg_begin = static_cast<uint32_t>(plan.starts.size());
  for (uint32_t i = 0; i < l.count; ++i) {
    plan.starts.push_back(static_cast<uint32_t>(places.size()));
    const NodeId* args = graph_.args(members[i]);
    const uint32_t n = graph_.sig(members[i]).n_args;
    for (uint32_t k = 0; k < n; ++k) places.push_back(located(args[k]));
  }
  plan.starts.push_back(static_cast<uint32_t>(places.size()));
  Operand o;
  o.kind = Operand::indexed;
  o.index = static_cast<uint32_t>(plan.index.size());
  plan.index.insert(plan.index.end(), places.begin(), places.end());
  l.operands = static_cast<uint32_t>(plan.operands.size());
  l.n_operands = 1;
  plan.operands.push_back(o);
}

int64_t Planner::located(NodeId id) {
  const int64_t at = graph_.place(id);
  if (at >= 0) return at;
  materialise(graph_.owner(id));
  return graph_.place(id);
}

// A parameter read like any other value: a launch copies it into the value arena.
int64_t Planner::materialise(NodeId id) {
  Launch l;
  l.op = op_id<ParameterNode>;
  l.form = Form::parameter;
  l.sig = graph_.node(id).sig;
  l.count = 1;
  l.members = static_cast<uint32_t>(plan.members.size());
  plan.members.push_back(id);
  l.total = graph_.sig(id).size;
  l.out = graph_.values_arena.allocate(static_cast<size_t>(l.total), 16);
  graph_.set_place(id, l.out);
  if (plan.launch_of.size() <= id) plan.launch_of.resize(graph_.size(), kNone);
  plan.launch_of[id] = static_cast<uint32_t>(plan.launches.size());
  plan.launches.push_back(l);
  return l.out;
}

Planner::Counts Planner::count(NodeId root) {
  const NodeId low = low_;
  if (graph_.wants_rebucket()) graph_.rebucket();
  collect(root, false);
  low_ = low;
  Counts c{};
  c.nodes = static_cast<uint32_t>(pending_.size());
  group(Scheduler::bucket);
  c.bucket = groups_.size();
  group(Scheduler::depth);
  c.depth = groups_.size();
  group(Scheduler::agenda);
  c.agenda = groups_.size();
  c.lower_bound = launch_lower_bound(graph_, pending_);
  return c;
}

}  // namespace dyc
