#include "plan/bucket_scheduler.h"

#include <algorithm>

namespace dyc {

bool BucketScheduler::nothing_to_batch() {
  if (selection_.count() > tuning::kFewNodes) return false;
  ++key_epoch_;
  bool twice = false;
  selection_.for_each([&](NodeId, const Node& n) {
    const uint32_t batch_key = graph_.sig_number(n.sig).batch_key;
    if (batch_key >= key_seen_.size()) key_seen_.resize(batch_key + 64, 0);
    twice = twice || key_seen_[batch_key] == key_epoch_;
    key_seen_[batch_key] = key_epoch_;
  });
  return !twice;
}

const BucketOrder& BucketScheduler::order() {
  if (!has_nested_loops()) {
    count_buckets();
    return order_by_rounds();
  }
  OrderChoice& choice = choices_[graph_.node(selection_.last()).site];
  if (choice.keep && choice.by_segments) {
    --choice.keep;
    return order_by_segments();
  }
  count_buckets();
  const BucketOrder& rounds = order_by_rounds();
  if (choice.keep) {
    --choice.keep;
    return rounds;
  }
  const size_t by_rounds = rounds.size();
  const BucketOrder& order = order_by_segments();
  choice.by_segments = order.size() + by_rounds / tuning::kOrderGain < by_rounds;
  choice.keep = choice.next;
  choice.next = std::min(2 * choice.next, tuning::kOrderKeptMost);
  if (choice.by_segments) return order;
  graph_.regroup(nullptr);
  count_buckets();
  return order_by_rounds();
}

uint32_t BucketScheduler::count_launches() {
  const auto choices = choices_;
  const uint32_t launches = order().size();
  if (nested_.nest.any()) graph_.regroup(nullptr);
  choices_ = choices;
  return launches;
}

const BucketOrder& BucketScheduler::order_by_rounds() {
  connect_buckets();
  return cached_order();
}

const BucketOrder& BucketScheduler::order_by_segments() {
  nested_.schedule.order(graph_, nested_.nest);
  graph_.regroup(&nested_.schedule);
  count_buckets();
  return order_by_rounds();
}

// Are there nested loops, and in so many of the nodes that dividing all of them into segments pays?
bool BucketScheduler::has_nested_loops() {
  const uint32_t count = selection_.count();
  if (count < tuning::kNestFewest || count * tuning::kNestShare < graph_.size()) return false;
  const Sites& sites = graph_.sites();
  Nested& n = nested_;
  if (n.tables != graph_.tables() || n.derived != sites.derived()) {
    if (n.tables != graph_.tables()) choices_.clear();
    n.tables = graph_.tables();
    n.derived = sites.derived();
    n.counts.assign(sites.size(), 0);
    count_buckets();
    for (const ActiveBucket& a : active_) n.counts[a.site] += stats_of(a.bucket).count;
    n.nest.derive(sites, n.counts);
  }
  return n.nest.any();
}

// Finds the buckets that have selected nodes, and numbers them in key order. Where not all pending nodes are
// selected, in time that depends on the selection and not on the graph: a script may read a value at every
// step.
void BucketScheduler::count_buckets() {
  for (const ActiveBucket& a : active_) number_[a.bucket] = kNone;
  active_.clear();
  const uint32_t n = graph_.buckets().size();
  if (number_.size() < n) number_.resize(n, kNone);
  if (selection_.all_pending()) {
    for (uint32_t b = 0; b < n; ++b)
      if (stats_of(b).count) add_active(b);
  } else {
    for (const uint32_t b : counted_) stats_[b] = {};
    counted_.clear();
    if (stats_.size() < n) stats_.resize(n);
    selection_.for_each([&](NodeId, const Node& node) {
      BucketStats& stats = stats_[node.bucket];
      if (!stats.count) counted_.push_back(node.bucket);
      stats.add(node.sig, graph_.sig_number(node.sig).size);
    });
    for (const uint32_t b : counted_) add_active(b);
  }
  std::sort(active_.begin(), active_.end(), [](const ActiveBucket& x, const ActiveBucket& y) {
    return x.key != y.key ? x.key < y.key : x.site < y.site;
  });
  for (uint32_t i = 0; i < active_.size(); ++i) number_[active_[i].bucket] = i;
}

void BucketScheduler::add_active(uint32_t b) {
  const Bucket& bucket = graph_.buckets()[b];
  active_.push_back({uint64_t{graph_.sites().phase(bucket.site)} << 32 | bucket.round, bucket.site, b});
}

// Edges were collected while recording; those from buckets without selected nodes do not count.
void BucketScheduler::connect_buckets() {
  const uint32_t n = static_cast<uint32_t>(active_.size());
  const Sites& sites = graph_.sites();
  buckets_.batch_key.resize(n);
  buckets_.phase.resize(n);
  buckets_.round.resize(n);
  buckets_.pred_begin.assign(1, 0);
  buckets_.preds.clear();
  for (uint32_t b = 0; b < n; ++b) {
    const Bucket& bucket = graph_.buckets()[active_[b].bucket];
    buckets_.batch_key[b] = sites[bucket.site].batch_key;
    buckets_.phase[b] = sites.phase(bucket.site);
    buckets_.round[b] = bucket.round;
    for (uint32_t e = bucket.preds; e != kNone; e = graph_.buckets().edge(e).next) {
      const uint32_t p = number_[graph_.buckets().edge(e).pred];
      if (p != kNone) buckets_.preds.push_back(p);
    }
    buckets_.pred_begin.push_back(static_cast<uint32_t>(buckets_.preds.size()));
  }
}

const BucketOrder& BucketScheduler::cached_order() {
  uint64_t hash = buckets_.size();
  for (uint32_t c : buckets_.batch_key) hash = mix(hash, c);
  for (uint32_t i = 0; i < buckets_.size(); ++i)
    hash = mix(hash, uint64_t{buckets_.phase[i]} << 32 | buckets_.round[i]);
  for (uint32_t p : buckets_.preds) hash = mix(hash, p);
  const auto found = cache_.orders.find(hash);
  if (found != cache_.orders.end() && found->second.graph == buckets_) return found->second.order;
  if (cache_.buckets > tuning::kMostOrdered) cache_ = {};
  cache_.buckets += buckets_.size() + 1;
  CachedOrder& fresh = cache_.orders[hash];
  fresh = {buckets_, schedule_buckets(buckets_)};
  return fresh.order;
}

}  // namespace dyc
