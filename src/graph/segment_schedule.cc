#include "graph/segment_schedule.h"

#include <algorithm>
#include <bit>

#include "graph/graph.h"

namespace dyc {

void SegmentSchedule::order(Graph& graph, const LoopNest& nest) {
  divide(graph, nest);
  measure_ahead();
  float best = -1;
  for (const tuning::SegmentRule rule : tuning::kSegmentRules) {
    const float cost = run(rule, best);
    if (cost < 0) continue;  // not better
    best = cost;
    for (size_t s = 0; s < segments_.size(); ++s) segments_[s].time_step = time_steps_[s];
  }
}

// A node joins the latest segment that it reads. A node with a weight begins a new segment instead if that
// one belongs to another loop or is already past its site.
void SegmentSchedule::divide(Graph& graph, const LoopNest& nest) {
  segments_.clear();
  of_.assign(graph.size(), {kNoSegment, 0});
  kind_of_.assign(graph.sites().size(), kNoSegment);
  kinds_ = 0;
  rounds_ = 1;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.flags & Node::view) {
      of_[id] = of_[graph.args(id)[0]];
      continue;
    }
    if (n.flags & Node::leaf || graph.offset_of(id) != kPending) continue;
    const uint32_t loop = nest.loop(n.site);
    if (loop == LoopNest::kNoLoop) continue;
    const uint32_t segment = segment_of(graph, id, loop), round = round_in_segment(graph, id, segment);
    of_[id] = {segment, round};
    rounds_ = std::max(rounds_, round + 1);
  }
}

uint32_t SegmentSchedule::segment_of(Graph& graph, uint32_t node, uint32_t loop) {
  const Node& n = graph.node(node);
  const NodeId* args = graph.args(node);
  const uint32_t phase = graph.sites().phase(n.site);
  uint32_t latest = kNoSegment;
  for (uint32_t k = 0; k < n.n_args; ++k) {
    const uint32_t s = of_[args[k]].segment;
    if (s == kNoSegment || (latest != kNoSegment && s <= latest)) continue;
    if (graph.sites().phase(graph.node(args[k]).site) == phase) latest = s;
  }
  if (loop == LoopNest::kFollowsArgs) return latest;
  if (latest == kNoSegment || !segments_[latest].admits(loop, n.site)) latest = begin(latest, loop, n.site);
  segments_[latest].sites |= uint64_t{1} << (n.site % 64);
  segments_[latest].last = n.site;
  return latest;
}

// Counted as Graph counts rounds.
uint32_t SegmentSchedule::round_in_segment(Graph& graph, uint32_t node, uint32_t segment) const {
  const Node& n = graph.node(node);
  const NodeId* args = graph.args(node);
  uint32_t round = 0;
  for (uint32_t k = 0; k < n.n_args; ++k) {
    const InSegment& a = of_[args[k]];
    if (a.segment == segment) round = std::max(round, a.round + (graph.node(args[k]).site >= n.site));
  }
  return round;
}

// A segment after `parent`: the last one of this loop, if that admits the site, otherwise a new one.
uint32_t SegmentSchedule::begin(uint32_t parent, uint32_t loop, uint32_t site) {
  const uint32_t fresh = static_cast<uint32_t>(segments_.size());
  uint32_t sibling = kNoSegment;
  if (parent != kNoSegment) {
    sibling = segments_[parent].child;
    for (uint32_t s = sibling, looked = 0; s != kNoSegment && looked < tuning::kMostSiblings;
         s = segments_[s].sibling, ++looked) {
      if (segments_[s].loop != loop) continue;
      if (segments_[s].admits(loop, site)) return s;
      break;
    }
    segments_[parent].child = fresh;
  }
  if (kind_of_[site] == kNoSegment) kind_of_[site] = kinds_++;
  segments_.push_back({parent, loop, kind_of_[site], 0, 0, kNoSegment, sibling, 0, 0});
  return fresh;
}

void SegmentSchedule::measure_ahead() {
  float longest = 0;
  for (size_t s = segments_.size(); s-- > 0;) {  // a segment comes after the one it follows
    segments_[s].ahead += cost_of(segments_[s].sites);
    longest = std::max(longest, segments_[s].ahead);
    if (segments_[s].parent == kNoSegment) continue;
    Segment& parent = segments_[segments_[s].parent];
    parent.ahead = std::max(parent.ahead, segments_[s].ahead);
  }
  for (Segment& s : segments_) s.ahead /= longest;
}

// In launches: one for each weight.
float SegmentSchedule::cost_of(uint64_t sites) { return static_cast<float>(std::popcount(sites)); }

float SegmentSchedule::urgency(float ahead, int power) {
  for (; power > 1; power /= 2) ahead *= ahead;
  return ahead;
}

// In each time step all ready segments of the most urgent kind run. Returns the cost of all time steps, or -1
// as soon as that reaches `best`.
float SegmentSchedule::run(tuning::SegmentRule rule, float best) {
  ready_.resize(kinds_);
  time_steps_.resize(segments_.size());
  for (Ready& r : ready_) {
    r.segments.clear();
    r.urgency = 0;
    r.sites = 0;
  }
  urgency_.assign(kinds_, kNotReady);
  const auto make_ready = [&](uint32_t s) {
    Ready& r = ready_[segments_[s].kind];
    const float u = urgency(segments_[s].ahead, rule.power);
    r.segments.push_back(s);
    r.sites |= segments_[s].sites;
    r.urgency = rule.power == tuning::kLongest ? std::max(r.urgency, u) : r.urgency + u;
    urgency_[segments_[s].kind] = rule.per_cost ? r.urgency / cost_of(r.sites) : r.urgency;
  };
  for (uint32_t s = 0; s < segments_.size(); ++s)
    if (segments_[s].parent == kNoSegment) make_ready(s);
  float cost = 0;
  for (uint32_t time_step = 1, done = 0; done < segments_.size(); ++time_step) {
    const auto next =
        static_cast<uint32_t>(std::max_element(urgency_.begin(), urgency_.end()) - urgency_.begin());
    Ready& r = ready_[next];
    running_.clear();
    running_.swap(r.segments);
    cost += cost_of(r.sites);
    r.urgency = 0;
    r.sites = 0;
    urgency_[next] = kNotReady;
    done += static_cast<uint32_t>(running_.size());
    if (best >= 0 && cost >= best) return -1;
    for (const uint32_t s : running_) {
      time_steps_[s] = time_step;
      for (uint32_t c = segments_[s].child; c != kNoSegment; c = segments_[c].sibling) make_ready(c);
    }
  }
  return cost;
}

}  // namespace dyc
