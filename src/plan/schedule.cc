#include "plan/schedule.h"

#include <algorithm>
#include <map>
#include <unordered_map>

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

// Buckets of equal (phase, round, batch key) in one launch each.
BucketOrder key_order(const BucketGraph& g) {
  BucketOrder order;
  const uint32_t n = g.size();
  std::vector<uint32_t> group;
  for (uint32_t i = 0; i < n;) {
    uint32_t end = i;
    while (end < n && g.phase[end] == g.phase[i] && g.round[end] == g.round[i]) ++end;
    // Inside one (phase, round), buckets depend on each other only from lower to higher sites: a
    // bucket may join an earlier launch of its batch key if nothing it needs comes after that launch.
    const size_t first = order.size();
    std::vector<uint32_t> launch(end - i);
    for (uint32_t b = i; b < end; ++b) {
      size_t earliest = first;
      for (uint32_t p = g.pred_begin[b]; p < g.pred_begin[b + 1]; ++p)
        if (g.preds[p] >= i) earliest = std::max<size_t>(earliest, launch[g.preds[p] - i] + 1);
      size_t at = earliest;
      while (at < order.size() && g.batch_key[order[at][0]] != g.batch_key[b]) ++at;
      if (at == order.size()) order.emplace_back();
      order[at].push_back(b);
      launch[b - i] = static_cast<uint32_t>(at);
    }
    i = end;
  }
  return order;
}

// List scheduling over buckets. ahead[b]: how many unscheduled buckets of b's own batch key it
// depends on; a key whose buckets without such are all ready loses nothing by running now.
class ListScheduler {
 public:
  explicit ListScheduler(const BucketGraph& g) : g_(g), n_(g.size()), words_((n_ + 63) / 64) {}

  BucketOrder run() {
    number_classes();
    count_same_class_ancestors();
    BucketOrder order;
    for (uint32_t done = 0; done < n_;) {
      const uint32_t c = choose();
      std::vector<uint32_t> launch;
      launch.swap(ready_[c]);
      std::sort(launch.begin(), launch.end());
      done += static_cast<uint32_t>(launch.size());
      frontier_[c] -= static_cast<uint32_t>(launch.size());
      for (uint32_t b : launch) retire(b);
      order.push_back(std::move(launch));
    }
    return order;
  }

 private:
  void number_classes() {
    std::unordered_map<uint32_t, uint32_t> number;
    keys_.resize(n_);
    for (uint32_t b = 0; b < n_; ++b)
      keys_[b] = number.emplace(g_.batch_key[b], static_cast<uint32_t>(number.size())).first->second;
    const uint32_t classes = static_cast<uint32_t>(number.size());
    members_.resize(classes);
    ready_.resize(classes);
    frontier_.assign(classes, 0);
    for (uint32_t b = 0; b < n_; ++b) members_[keys_[b]].push_back(b);
    waiting_.resize(n_);
    for (uint32_t b = 0; b < n_; ++b) {
      waiting_[b] = g_.pred_begin[b + 1] - g_.pred_begin[b];
      if (!waiting_[b]) ready_[keys_[b]].push_back(b);
    }
    list_successors();
  }

  // Of bucket b: successors_[next_[b]] .. successors_[next_[b + 1] - 1].
  void list_successors() {
    next_.assign(n_ + 2, 0);
    for (uint32_t p : g_.preds) ++next_[p + 2];
    for (uint32_t b = 2; b <= n_; ++b) next_[b] += next_[b - 1];
    successors_.resize(g_.preds.size());
    for (uint32_t b = 0; b < n_; ++b)
      for (uint32_t p = g_.pred_begin[b]; p < g_.pred_begin[b + 1]; ++p)
        successors_[next_[g_.preds[p] + 1]++] = b;
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
      for (uint32_t a : members_[keys_[b]]) {
        if (a >= b) break;
        ahead_[b] += is_ancestor(a, b);
      }
      frontier_[keys_[b]] += ahead_[b] == 0;
    }
  }

  bool is_ancestor(uint32_t a, uint32_t b) const {
    return ancestors_[static_cast<size_t>(b) * words_ + a / 64] >> (a % 64) & 1;
  }

  // Largest share of its frontier ready; ties to the bucket that comes first in key order.
  uint32_t choose() const {
    uint32_t best = kNone;
    for (uint32_t c = 0; c < ready_.size(); ++c) {
      if (ready_[c].empty()) continue;
      if (best == kNone) {
        best = c;
        continue;
      }
      const uint64_t left = uint64_t{ready_[c].size()} * frontier_[best];
      const uint64_t right = uint64_t{ready_[best].size()} * frontier_[c];
      if (left > right || (left == right && first(c) < first(best))) best = c;
    }
    return best;
  }
  uint32_t first(uint32_t c) const { return *std::min_element(ready_[c].begin(), ready_[c].end()); }

  void retire(uint32_t b) {
    for (uint32_t i = next_[b]; i < next_[b + 1]; ++i) {
      const uint32_t s = successors_[i];
      if (--waiting_[s] == 0) ready_[keys_[s]].push_back(s);
    }
    const auto& same = members_[keys_[b]];
    for (auto it = std::upper_bound(same.begin(), same.end(), b); it != same.end(); ++it)
      if (is_ancestor(b, *it) && --ahead_[*it] == 0) ++frontier_[keys_[b]];
  }

  const BucketGraph& g_;
  const uint32_t n_, words_;
  std::vector<uint32_t> keys_, waiting_, ahead_, frontier_, successors_, next_;
  std::vector<std::vector<uint32_t>> members_, ready_;
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
  BucketOrder keyed = key_order(g);
  if (g.size() > tuning::kMostListBuckets) return keyed;
  BucketOrder listed = ListScheduler(g).run();
  return listed.size() < keyed.size() ? listed : keyed;
}

void schedule_by_depth(Graph& graph, const std::vector<NodeId>& nodes, Groups& out) {
  const auto position = positions(graph, nodes);
  const auto depth = depths(graph, nodes, position);
  std::map<std::pair<uint32_t, uint64_t>, std::vector<NodeId>> groups;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    groups[{depth[i], graph.sig(nodes[i]).batch_key}].push_back(nodes[i]);
  }
  for (auto& [key, nodes_of_key] : groups) {
    out.nodes.insert(out.nodes.end(), nodes_of_key.begin(), nodes_of_key.end());
    out.close();
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
    out.nodes.insert(out.nodes.end(), group.begin(), group.end());
    out.close();
  }
}

void schedule_one_by_one(const std::vector<NodeId>& nodes, Groups& out) {
  for (NodeId id : nodes) {
    out.nodes.push_back(id);
    out.close();
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
