#include "plan/schedule.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "plan/tuning.h"

namespace dyc {

Scheduler scheduler_from_name(const std::string& name) {
  if (name.empty() || name == "bucket") return Scheduler::bucket;
  if (name == "depth") return Scheduler::depth;
  if (name == "agenda") return Scheduler::agenda;
  if (name == "none") return Scheduler::none;
  throw ValueError("scheduler: expected bucket, depth, agenda or none, got " + name);
}

namespace {

// The launch of each bucket, by its number: those of equal (phase, round, batch key) in one, but for buckets
// that depend on each other. Returns how many there are.
uint32_t key_order(const BucketGraph& g, std::vector<uint32_t>* launch_of) {
  const uint32_t n = g.size();
  std::vector<uint32_t> keys;  // by launch
  std::vector<uint32_t>& launch = *launch_of;
  launch.resize(n);
  for (uint32_t i = 0; i < n;) {
    uint32_t end = i;
    while (end < n && g.phase[end] == g.phase[i] && g.round[end] == g.round[i]) ++end;
    // Inside one (phase, round), buckets depend on each other only from lower to higher sites: a
    // bucket may join an earlier launch of its batch key if nothing it needs comes after that launch.
    const auto first = static_cast<uint32_t>(keys.size());
    for (uint32_t b = i; b < end; ++b) {
      uint32_t at = first;
      for (uint32_t p = g.pred_begin[b]; p < g.pred_begin[b + 1]; ++p)
        if (g.preds[p] >= i) at = std::max(at, launch[g.preds[p]] + 1);
      while (at < keys.size() && keys[at] != g.batch_key[b]) ++at;
      if (at == keys.size()) keys.push_back(g.batch_key[b]);
      launch[b] = at;
    }
    i = end;
  }
  return static_cast<uint32_t>(keys.size());
}

// The indices of a vector in groups by the numbers in it, which are less than `count`; those of a group
// ascend.
Groups by_number(const std::vector<uint32_t>& numbers, uint32_t count) {
  Groups groups;
  groups.items.resize(numbers.size());
  std::vector<uint32_t>& begin = groups.begin;
  begin.assign(count + 2, 0);
  for (const uint32_t k : numbers) ++begin[k + 2];
  for (uint32_t k = 2; k < begin.size(); ++k) begin[k] += begin[k - 1];
  for (uint32_t i = 0; i < numbers.size(); ++i) groups.items[begin[numbers[i] + 1]++] = i;
  begin.pop_back();
  return groups;
}

// List scheduling over buckets. ahead[b]: how many unscheduled buckets of b's own batch key it
// depends on; a key whose buckets without such are all ready loses nothing by running now.
class ListScheduler {
 public:
  explicit ListScheduler(const BucketGraph& g) : g_(g), n_(g.size()), words_((n_ + 63) / 64) {
    number_classes();
    count_same_class_ancestors();
  }

  // No order has fewer launches: the longest chains of each batch key, together. A chain has at most all that
  // are ahead, so that its buckets are mostly found at once, from the last one back.
  uint32_t least() const {
    std::vector<uint32_t> chain(n_, 1), longest(n_classes(), 0);
    for (uint32_t b = 0; b < n_; ++b) {
      const uint32_t c = classes_[b];
      const std::span<const uint32_t> same = members_[c];
      for (auto it = std::lower_bound(same.begin(), same.end(), b);
           it != same.begin() && chain[b] <= ahead_[b];) {
        const uint32_t a = *--it;
        if (is_ancestor(a, b)) chain[b] = std::max(chain[b], chain[a] + 1);
      }
      longest[c] = std::max(longest[c], chain[b]);
    }
    return std::accumulate(longest.begin(), longest.end(), uint32_t{0});
  }

  BucketOrder run() {
    BucketOrder order;
    std::vector<uint32_t> launch;
    for (uint32_t done = 0; done < n_; done += static_cast<uint32_t>(launch.size())) {
      const uint32_t c = choose();
      const auto ready = ready_.begin() + members_.begin[c];
      launch.assign(ready, ready + n_ready_[c]);
      std::sort(launch.begin(), launch.end());
      order.add(launch);
      n_ready_[c] = 0;
      frontier_[c] -= static_cast<uint32_t>(launch.size());
      for (const uint32_t b : launch) retire(b);
    }
    return order;
  }

 private:
  uint32_t n_classes() const { return static_cast<uint32_t>(n_ready_.size()); }

  void number_classes() {
    std::vector<uint32_t> keys = g_.batch_key;
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    classes_.resize(n_);
    for (uint32_t b = 0; b < n_; ++b)
      classes_[b] =
          static_cast<uint32_t>(std::lower_bound(keys.begin(), keys.end(), g_.batch_key[b]) - keys.begin());
    members_ = by_number(classes_, static_cast<uint32_t>(keys.size()));
    ready_.resize(n_);
    n_ready_.assign(keys.size(), 0);
    frontier_.assign(keys.size(), 0);
    waiting_.resize(n_);
    for (uint32_t b = 0; b < n_; ++b) {
      waiting_[b] = g_.pred_begin[b + 1] - g_.pred_begin[b];
      if (!waiting_[b]) make_ready(b);
    }
    list_successors();
  }

  void list_successors() {
    std::vector<uint32_t> reader(g_.preds.size());
    for (uint32_t b = 0; b < n_; ++b)
      std::fill(reader.begin() + g_.pred_begin[b], reader.begin() + g_.pred_begin[b + 1], b);
    successors_ = by_number(g_.preds, n_);
    for (uint32_t& s : successors_.items) s = reader[s];
  }

  void make_ready(uint32_t b) {
    const uint32_t c = classes_[b];
    ready_[members_.begin[c] + n_ready_[c]++] = b;
  }

  void count_same_class_ancestors() {
    ancestors_.assign(static_cast<size_t>(n_) * words_, 0);
    ahead_.assign(n_, 0);
    for (uint32_t b = 0; b < n_; ++b) {  // predecessors have smaller numbers
      uint64_t* row = ancestors_.data() + static_cast<size_t>(b) * words_;
      for (uint32_t p = g_.pred_begin[b]; p < g_.pred_begin[b + 1]; ++p) {
        const uint32_t a = g_.preds[p];
        const uint64_t* other = ancestors_.data() + static_cast<size_t>(a) * words_;
        for (uint32_t w = 0; w <= a / 64; ++w) row[w] |= other[w];
        row[a / 64] |= uint64_t{1} << (a % 64);
      }
      const uint32_t c = classes_[b];
      for (const uint32_t a : members_[c]) {
        if (a == b) break;
        ahead_[b] += is_ancestor(a, b);
      }
      frontier_[c] += ahead_[b] == 0;
    }
  }

  bool is_ancestor(uint32_t a, uint32_t b) const {
    return ancestors_[static_cast<size_t>(b) * words_ + a / 64] >> (a % 64) & 1;
  }

  // Largest share of its frontier ready; ties to the bucket that comes first in key order.
  uint32_t choose() const {
    uint32_t best = kNone;
    for (uint32_t c = 0; c < n_classes(); ++c) {
      if (!n_ready_[c]) continue;
      if (best == kNone) {
        best = c;
        continue;
      }
      const uint64_t left = uint64_t{n_ready_[c]} * frontier_[best];
      const uint64_t right = uint64_t{n_ready_[best]} * frontier_[c];
      if (left > right || (left == right && first(c) < first(best))) best = c;
    }
    return best;
  }
  uint32_t first(uint32_t c) const {
    const uint32_t* ready = ready_.data() + members_.begin[c];
    return *std::min_element(ready, ready + n_ready_[c]);
  }

  void retire(uint32_t b) {
    for (const uint32_t s : successors_[b])
      if (--waiting_[s] == 0) make_ready(s);
    const uint32_t c = classes_[b];
    const std::span<const uint32_t> same = members_[c];
    for (auto it = std::upper_bound(same.begin(), same.end(), b); it != same.end(); ++it)
      if (is_ancestor(b, *it) && --ahead_[*it] == 0) ++frontier_[c];
  }

  const BucketGraph& g_;
  const uint32_t n_, words_;
  // By bucket: its class, which stands for its batch key; predecessors and buckets ahead that have not run.
  std::vector<uint32_t> classes_, waiting_, ahead_;
  Groups members_, successors_;            // of a class, of a bucket
  std::vector<uint32_t> ready_, n_ready_;  // of a class, where its members begin; how many
  std::vector<uint32_t> frontier_;         // of a class
  std::vector<uint64_t> ancestors_;
};

// f(a) for the nodes of the list that node `id` reads, itself or through views.
template <class F>
void for_each_pending_arg(Graph& graph, NodeId id, const std::vector<uint32_t>& position, F&& f) {
  const NodeId* args = graph.args(id);
  for (uint32_t i = 0; i < graph.sig(id).n_args; ++i) {
    const NodeId a = graph.base_of(args[i]);
    if (position[a] != kNone) f(a);
  }
}

std::vector<uint32_t> positions(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::vector<uint32_t> position(graph.size(), kNone);
  for (uint32_t i = 0; i < nodes.size(); ++i) position[nodes[i]] = i;
  return position;
}

std::vector<uint32_t> depths(Graph& graph, const std::vector<NodeId>& nodes,
                             const std::vector<uint32_t>& position) {
  std::vector<uint32_t> depth(nodes.size(), 0);
  for (uint32_t i = 0; i < nodes.size(); ++i)
    for_each_pending_arg(graph, nodes[i], position,
                         [&](NodeId a) { depth[i] = std::max(depth[i], depth[position[a]] + 1); });
  return depth;
}

}  // namespace

BucketOrder schedule_buckets(const BucketGraph& g) {
  std::vector<uint32_t> launch_of;
  const uint32_t keyed = key_order(g, &launch_of);
  if (g.size() <= tuning::kMostListBuckets) {
    ListScheduler listed(g);
    if (listed.least() < keyed) {
      BucketOrder order = listed.run();
      if (order.size() < keyed) return order;
    }
  }
  return by_number(launch_of, keyed);
}

void schedule_by_depth(Graph& graph, const std::vector<NodeId>& nodes, Groups& out) {
  const auto position = positions(graph, nodes);
  const auto depth = depths(graph, nodes, position);
  std::map<std::pair<uint32_t, uint64_t>, std::vector<NodeId>> groups;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    groups[{depth[i], graph.sig(nodes[i]).batch_key}].push_back(nodes[i]);
  }
  for (auto& [key, nodes_of_key] : groups) {
    out.add(nodes_of_key);
  }
}

// DyNet's agenda: run all ready nodes of the batch key with the smallest average depth.
void schedule_by_agenda(Graph& graph, const std::vector<NodeId>& nodes, Groups& out) {
  const auto position = positions(graph, nodes);
  const auto depth = depths(graph, nodes, position);
  struct Class {
    double sum = 0;
    uint32_t total = 0;
    std::vector<NodeId> ready;
  };
  std::map<uint64_t, Class> classes;
  std::vector<uint64_t> batch_key(nodes.size());
  std::vector<uint32_t> waiting(nodes.size(), 0);
  std::vector<std::vector<uint32_t>> successors(nodes.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    batch_key[i] = graph.sig(nodes[i]).batch_key;
    Class& c = classes[batch_key[i]];
    c.sum += depth[i];
    ++c.total;
    for_each_pending_arg(graph, nodes[i], position, [&](NodeId a) {
      successors[position[a]].push_back(i);
      ++waiting[i];
    });
    if (!waiting[i]) c.ready.push_back(nodes[i]);
  }
  for (size_t done = 0; done < nodes.size();) {
    Class* best = nullptr;
    for (auto& [key, c] : classes)
      if (!c.ready.empty() && (!best || c.sum / c.total < best->sum / best->total)) best = &c;
    std::vector<NodeId> group;
    group.swap(best->ready);
    std::sort(group.begin(), group.end());
    for (NodeId id : group)
      for (uint32_t s : successors[position[id]])
        if (--waiting[s] == 0) classes[batch_key[s]].ready.push_back(nodes[s]);
    done += group.size();
    out.add(group);
  }
}

void schedule_one_by_one(const std::vector<NodeId>& nodes, Groups& out) {
  for (NodeId id : nodes) {
    out.add({&id, 1});
  }
}

uint32_t launch_lower_bound(Graph& graph, const std::vector<NodeId>& nodes) {
  // chain[i]: for one batch key at a time, the most nodes of it on a path that ends with node i.
  const auto position = positions(graph, nodes);
  std::map<uint32_t, uint32_t> longest;
  std::map<uint32_t, std::vector<uint32_t>> by_key;
  for (uint32_t i = 0; i < nodes.size(); ++i) by_key[graph.sig(nodes[i]).batch_key].push_back(i);
  std::vector<uint32_t> chain(nodes.size());
  uint32_t sum = 0;
  for (const auto& [batch_key, nodes_of_key] : by_key) {
    std::fill(chain.begin(), chain.end(), 0);
    uint32_t best = 0;
    for (uint32_t i = nodes_of_key.front(); i < nodes.size(); ++i) {
      for_each_pending_arg(graph, nodes[i], position,
                           [&](NodeId a) { chain[i] = std::max(chain[i], chain[position[a]]); });
      chain[i] += graph.sig(nodes[i]).batch_key == batch_key;
      best = std::max(best, chain[i]);
    }
    sum += best;
  }
  return sum;
}

}  // namespace dyc
