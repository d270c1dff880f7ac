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
  const uint32_t n = groups_.size(), first = static_cast<uint32_t>(plan.launches.size());
  for (uint32_t g = 0; g < n; ++g) emit(groups_.begin[g], groups_.begin[g + 1] - groups_.begin[g]);
  if (scheduler != Scheduler::bucket) return;
  fuse_chains(first);
  group_products(first);
}

// Unplaced ancestors of root, descending.
void Planner::collect(NodeId root, bool everything) {
  pending_.clear();
  if (root < low_) return;
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
      if (args[0] >= low_) wanted_[args[0]] = 1;
      continue;
    }
    if (n.flags & Node::leaf) continue;
    for (uint32_t i = 0; i < n.n_args; ++i)
      if (args[i] >= low_) wanted_[args[i]] = 1;  // below it all is placed
    pending_.push_back({id, n.bucket, n.args, n.sig});
  }
  low_ = std::min<NodeId>(skipped, root + 1);
}

void Planner::group(Scheduler scheduler) {
  groups_.clear();
  if (scheduler == Scheduler::bucket && !nothing_to_batch()) return group_by_buckets();
  std::vector<NodeId> nodes(pending_.size());
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i] = pending_[pending_.size() - 1 - i].id;
  if (scheduler == Scheduler::depth) schedule_by_depth(graph_, nodes, groups_);
  else if (scheduler == Scheduler::agenda) schedule_by_agenda(graph_, nodes, groups_);
  else schedule_one_by_one(nodes, groups_);
  arg_lists_.resize(nodes.size());
  sigs_.resize(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    arg_lists_[i] = graph_.node(groups_.nodes[i]).args;
    sigs_[i] = graph_.node(groups_.nodes[i]).sig;
  }
}

// A few nodes without two of one class: nothing to batch, record order is as good as any.
bool Planner::nothing_to_batch() {
  constexpr size_t kFew = 32;
  if (pending_.size() > kFew) return false;
  ++class_epoch_;
  for (const Pending& p : pending_) {
    const uint32_t cls = graph_.sig_number(p.sig).cls;
    if (cls >= class_seen_.size()) class_seen_.resize(cls + 64, 0);
    if (class_seen_[cls] == class_epoch_) return false;
    class_seen_[cls] = class_epoch_;
  }
  return true;
}

void Planner::group_by_buckets() {
  number_buckets();
  connect_buckets();
  lay_out(remembered_order());
}

// Counts the pending nodes of each bucket and numbers the buckets in key order.
void Planner::number_buckets() {
  const uint32_t n = graph_.buckets();
  counts_.assign(n, 0);
  sample_.resize(n);
  used_.clear();
  for (const Pending& p : pending_) {
    if (counts_[p.bucket]++ != 0) continue;
    used_.push_back(p.bucket);
    sample_[p.bucket] = p.sig;
  }
  Sites& sites = graph_.sites();
  std::sort(used_.begin(), used_.end(), [&](uint32_t x, uint32_t y) {
    const Bucket &a = graph_.bucket(x), &b = graph_.bucket(y);
    const uint32_t pa = sites[a.site].phase, pb = sites[b.site].phase;
    if (pa != pb) return pa < pb;
    if (a.round != b.round) return a.round < b.round;
    return a.site < b.site;
  });
  local_.assign(n, kNone);
  for (uint32_t i = 0; i < used_.size(); ++i) local_[used_[i]] = i;
}

// Counting sort of the pending nodes straight into launch order.
void Planner::lay_out(const BucketOrder& order) {
  uint32_t at = 0;
  for (const auto& launch : order) {
    const bool solo = op_row(graph_.sig_number(sample_[used_[launch[0]]]).op).meta->batch == Batch::solo;
    for (uint32_t b : launch) {
      const uint32_t count = counts_[used_[b]];
      counts_[used_[b]] = at;  // from now on: where the bucket's next node goes
      for (uint32_t i = 1; solo && i <= count; ++i) groups_.begin.push_back(at + i);
      at += count;
    }
    if (!solo) groups_.begin.push_back(at);
  }
  groups_.nodes.resize(at);
  arg_lists_.resize(at);
  sigs_.resize(at);
  for (size_t i = pending_.size(); i-- > 0;) {
    const Pending& p = pending_[i];
    const uint32_t to = counts_[p.bucket]++;
    groups_.nodes[to] = p.id;
    arg_lists_[to] = p.args;
    sigs_[to] = p.sig;
  }
}

// Edges were collected while recording; those from buckets that are placed already count no more.
void Planner::connect_buckets() {
  const uint32_t n = static_cast<uint32_t>(used_.size());
  Sites& sites = graph_.sites();
  buckets_.cls.resize(n);
  buckets_.phase.resize(n);
  buckets_.round.resize(n);
  buckets_.pred_begin.assign(1, 0);
  buckets_.preds.clear();
  for (uint32_t b = 0; b < n; ++b) {
    const Bucket& bucket = graph_.bucket(used_[b]);
    buckets_.cls[b] = sites[bucket.site].cls;
    buckets_.phase[b] = sites[bucket.site].phase;
    buckets_.round[b] = bucket.round;
    for (uint32_t e = bucket.preds; e != kNone; e = graph_.edge(e).next) {
      const uint32_t p = local_[graph_.edge(e).pred];
      if (p != kNone) buckets_.preds.push_back(p);
    }
    buckets_.pred_begin.push_back(static_cast<uint32_t>(buckets_.preds.size()));
  }
}

const BucketOrder& Planner::remembered_order() {
  uint64_t hash = buckets_.size();
  for (uint32_t c : buckets_.cls) hash = mix(hash, c);
  for (uint32_t i = 0; i < buckets_.size(); ++i)
    hash = mix(hash, uint64_t{buckets_.phase[i]} << 32 | buckets_.round[i]);
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

// A launch of the grouped nodes [first, first + count).
void Planner::emit(uint32_t first, uint32_t count) {
  const NodeId* members = groups_.nodes.data() + first;
  lists_ = arg_lists_.data() + first;
  const Sig& sig = graph_.sig_number(sigs_[first]);
  const OpRow& row = op_row(sig.op);
  Launch l;
  l.op = sig.op;
  l.form = row.meta->form;
  l.sig = sigs_[first];
  l.cls = sig.cls;
  l.count = count;
  l.members = static_cast<uint32_t>(plan.members.size());
  l.fixed_arity = !(row.list && l.form == Form::member);
  plan.members.insert(plan.members.end(), members, members + count);
  inspect_members(l, sigs_.data() + first);
  if (l.fixed_arity) describe_arguments(l);
  else describe_lists(l, members);
  place_members(l, members);
  plan.launches.push_back(l);
}

// What the members have in common.
void Planner::inspect_members(Launch& l, const uint32_t* sigs) {
  l.uniform = true;
  l.flat = true;
  uint32_t last = kNone;
  for (uint32_t i = 0; i < l.count; ++i) {
    if (sigs[i] == last) continue;
    last = sigs[i];
    const Sig& s = graph_.sig_number(last);
    l.uniform = l.uniform && last == l.sig;
    l.flat = l.flat && s.flat;
    l.needs = l.needs || s.needs;
    if (l.fixed_arity)
      for (uint32_t k = 0; k < s.n_args; ++k) l.needs_args |= s.needs_args[k] << (k < 31 ? k : 31);
  }
}

void Planner::place_members(Launch& l, const NodeId* members) {
  const uint32_t number = static_cast<uint32_t>(plan.launches.size());
  int64_t* places = graph_.places();
  uint32_t* launch_of = plan.launch_of.data();
  if (l.uniform) {
    const int64_t size = graph_.sig_number(l.sig).size;
    l.total = size * l.count;
    l.out = graph_.values_arena.allocate(static_cast<size_t>(l.total), 16);
    for (uint32_t i = 0; i < l.count; ++i) {
      places[members[i]] = l.out + i * size;
      launch_of[members[i]] = number;
    }
    return;
  }
  for (uint32_t i = 0; i < l.count; ++i) l.total += graph_.sig(members[i]).size;
  l.out = graph_.values_arena.allocate(static_cast<size_t>(l.total), 16);
  l.out_index = static_cast<uint32_t>(plan.index.size());
  int64_t at = l.out;
  for (uint32_t i = 0; i < l.count; ++i) {
    places[members[i]] = at;
    launch_of[members[i]] = number;
    plan.index.push_back(at);
    at += graph_.sig(members[i]).size;
  }
}

void Planner::describe_arguments(Launch& l) {
  l.n_operands = graph_.sig_number(l.sig).n_args;
  // Parameters that are read like any value get a place first: their copies are launches themselves.
  l.operands = static_cast<uint32_t>(plan.operands.size());
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    const Operand o = describe(l, k);
    plan.operands.push_back(o);
  }
}

Operand Planner::describe(const Launch& l, uint32_t k) {
  Operand o;
  const NodeId* pool = graph_.arg_pool();
  const NodeId first = pool[lists_[0] + k];
  const Sig& sig = graph_.sig_number(l.sig);
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
  if (!l.uniform) return describe_mixed(l, k, o);
  // One pass: are the offsets equal, gapless, evenly spaced?
  if (offsets_.size() < l.count) offsets_.resize(l.count);
  int64_t* index = offsets_.data();
  const int64_t* places = graph_.places();
  const int64_t stride = located(pool[lists_[1] + k]) - o.base;
  bool even = true;
  for (uint32_t i = 0; i < l.count; ++i) {
    const NodeId arg = pool[lists_[i] + k];
    int64_t at = places[arg];
    if (at < 0) [[unlikely]]
      at = located(arg);
    index[i] = at;
    even = even && at == o.base + i * stride;
  }
  if (!even) {
    o.kind = Operand::indexed;
    o.index = static_cast<uint32_t>(plan.index.size());
    plan.index.insert(plan.index.end(), index, index + l.count);
    return o;
  }
  if (stride != o.stride) o.kind = stride == 0 ? Operand::shared : Operand::strided;
  o.stride = stride;
  return o;
}

// Members of several extents: gapless only if every argument is as large as its result, or all alike.
Operand Planner::describe_mixed(const Launch& l, uint32_t k, Operand o) {
  const NodeId* pool = graph_.arg_pool();
  const size_t begin = plan.index.size();
  bool gapless = true, even = true, one_size = true, as_result = true;
  const int64_t first_size = o.stride, stride = located(pool[lists_[1] + k]) - o.base;
  int64_t last = o.base - first_size, size = first_size;
  for (uint32_t i = 0; i < l.count; ++i) {
    const Sig& s = graph_.sig(plan.members[l.members + i]);  // located() may add members
    const int64_t at = located(pool[lists_[i] + k]);
    plan.index.push_back(at);
    gapless = gapless && at == last + size;
    even = even && at == o.base + i * stride;
    last = at;
    size = s.x[k]->size();
    one_size = one_size && size == first_size;
    as_result = as_result && size == s.size;
  }
  if (gapless && (one_size || as_result)) {
    o.stride = one_size ? first_size : 0;
  } else if (even) {
    o.kind = stride == 0 ? Operand::shared : Operand::strided;
    o.stride = stride;
  } else {
    o.kind = Operand::indexed;
    o.index = static_cast<uint32_t>(begin);
    return o;
  }
  plan.index.resize(begin);
  return o;
}

void Planner::describe_lists(Launch& l, const NodeId* members) {
  std::vector<int64_t> places;
  l.arg_begin = static_cast<uint32_t>(plan.starts.size());
  for (uint32_t i = 0; i < l.count; ++i) {
    plan.starts.push_back(static_cast<uint32_t>(places.size()));
    const NodeId* args = graph_.args(members[i]);
    const uint32_t n = graph_.node(members[i]).n_args;
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
  if (!graph_.is_parameter(graph_.owner(id)))
    throw RuntimeError(text("internal error: node ", id, " has no place"));
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

// ---------------------------------------------------------------- fusion

namespace {

bool flat_elementwise(const Launch& l) { return l.form == Form::unary || (l.form == Form::binary && l.flat); }

}  // namespace

// Runs of element-wise launches over the same number of floats, each reading what lies element for
// element beside its result, become one: a tile goes through all of them while it is in the cache.
void Planner::fuse_chains(uint32_t first) {
  const uint32_t n = static_cast<uint32_t>(plan.launches.size());
  for (uint32_t head = first; head < n;) {
    uint32_t end = head + 1;
    if (flat_elementwise(plan.launches[head]) && joins_chain(plan.launches[head], head, head))
      while (end < n && joins_chain(plan.launches[head], head, end)) ++end;
    plan.launches[head].chain = end - head - 1;
    head = end;
  }
}

// May launch `last` run tile by tile together with [first, last)? Every operand of it and of those
// before must be one gapless block that is a result of the chain from its start, or is apart from all
// results; and two such blocks outside coincide or are apart (their gradients are added to in tiles).
bool Planner::joins_chain(const Launch& head, uint32_t first, uint32_t last) const {
  const Launch& l = plan.launches[last];
  const int64_t total = head.total;
  if (!flat_elementwise(l) || l.total != total || last - first >= 16) return false;
  auto apart = [total](int64_t a, int64_t b) { return a + total <= b || b + total <= a; };
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    const Operand& o = plan.operands[l.operands + k];
    if (o.kind != Operand::contiguous) return false;
    for (uint32_t i = first; i <= last; ++i) {
      const Launch& other = plan.launches[i];
      if (o.base != other.out && !apart(o.base, other.out)) return false;
      for (uint32_t j = 0; j < other.n_operands; ++j) {
        const int64_t base = plan.operands[other.operands + j].base;
        if (o.base != base && !apart(o.base, base)) return false;
      }
    }
  }
  return true;
}

// Neighbouring products of one input with several weights (the gates of a cell) are one grouped GEMM.
void Planner::group_products(uint32_t first) {
  const uint32_t n = static_cast<uint32_t>(plan.launches.size());
  for (uint32_t head = first; head < n;) {
    uint32_t end = head + 1;
    while (end < n && end - head < 16 && same_input(plan.launches[head], plan.launches[end]) &&
           !reads_results(end, head))
      ++end;
    plan.launches[head].group = end - head - 1;
    head = end;
  }
}

// Does the launch have an operand (a computed weight, say) that launches from `first` on produce?
bool Planner::reads_results(uint32_t launch, uint32_t first) const {
  const Launch& l = plan.launches[launch];
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    const int64_t base = plan.operands[l.operands + k].base;
    for (uint32_t i = first; i < launch; ++i)
      if (base >= plan.launches[i].out && base < plan.launches[i].out + plan.launches[i].total) return true;
  }
  return false;
}

// One weight and one input each, the input of both the same columns.
bool Planner::same_input(const Launch& a, const Launch& b) const {
  if (a.form != Form::matmul || b.form != Form::matmul || a.count != b.count || !a.uniform || !b.uniform)
    return false;
  const Sig &sa = graph_.sig_number(a.sig), &sb = graph_.sig_number(b.sig);
  if (!sa.columns || !sb.columns || sa.bias_per_column || sb.bias_per_column) return false;
  const uint32_t ka = a.n_operands - 1, kb = b.n_operands - 1;  // b W x, or W x: the input is last
  if (ka > 2 || kb > 2 || !(*sa.x[ka] == *sb.x[kb])) return false;
  const Operand &x = plan.operands[a.operands + ka], &y = plan.operands[b.operands + kb];
  if (x.kind != y.kind || x.base != y.base || x.stride != y.stride) return false;
  return x.kind != Operand::indexed ||
         std::equal(plan.index.begin() + x.index, plan.index.begin() + x.index + a.count,
                    plan.index.begin() + y.index);
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
  std::vector<NodeId> nodes;
  for (size_t i = pending_.size(); i-- > 0;) nodes.push_back(pending_[i].id);
  c.lower_bound = launch_lower_bound(graph_, nodes);
  return c;
}

}  // namespace dyc
