#include "graph/steps.h"

#include <algorithm>
#include <bit>

#include "graph/graph.h"

namespace dyc {

void Steps::order(Graph& graph, const Nests& nests) {
  divide(graph, nests);
  look_ahead();
  float best = -1;
  for (const Rule rule : kRules) {
    const float cost = run(rule, best);
    if (cost < 0) continue;  // not better
    best = cost;
    for (size_t s = 0; s < steps_.size(); ++s) steps_[s].tick = ticks_[s];
  }
}

// A node goes to the latest step that it reads. Or it begins one that follows: if it owns a weight, and that
// step is of another loop, or has come past its site already.
void Steps::divide(Graph& graph, const Nests& nests) {
  steps_.clear();
  of_.assign(graph.size(), {kNoStep, 0});
  kind_of_.assign(graph.sites().size(), kNoStep);
  kinds_ = 0;
  rounds_ = 1;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.flags & Node::alias) {
      of_[id] = of_[graph.args(id)[0]];
      continue;
    }
    if (n.flags & Node::leaf || graph.place(id) != kPending) continue;
    const uint32_t loop = nests.loop(n.site);
    if (loop == Nests::kApart) continue;
    const uint32_t step = step_of(graph, id, loop), round = round_in_step(graph, id, step);
    of_[id] = {step, round};
    rounds_ = std::max(rounds_, round + 1);
  }
}

uint32_t Steps::step_of(Graph& graph, uint32_t node, uint32_t loop) {
  const Node& n = graph.node(node);
  const NodeId* args = graph.args(node);
  const uint32_t phase = graph.sites().phase(n.site);
  uint32_t latest = kNoStep;
  for (uint32_t k = 0; k < n.n_args; ++k) {
    const uint32_t s = of_[args[k]].step;
    if (s == kNoStep || (latest != kNoStep && s <= latest)) continue;
    if (graph.sites().phase(graph.node(args[k]).site) == phase) latest = s;
  }
  if (loop == Nests::kFollows) return latest;
  if (latest == kNoStep || !steps_[latest].admits(loop, n.site)) latest = begin(latest, loop, n.site);
  steps_[latest].sites |= uint64_t{1} << (n.site % 64);
  steps_[latest].last = n.site;
  return latest;
}

// Counted as Graph counts rounds.
uint32_t Steps::round_in_step(Graph& graph, uint32_t node, uint32_t step) const {
  const Node& n = graph.node(node);
  const NodeId* args = graph.args(node);
  uint32_t round = 0;
  for (uint32_t k = 0; k < n.n_args; ++k) {
    const InStep& a = of_[args[k]];
    if (a.step == step) round = std::max(round, a.round + (graph.node(args[k]).site >= n.site));
  }
  return round;
}

// A step that follows another: the last one of the loop, if that admits the site.
uint32_t Steps::begin(uint32_t parent, uint32_t loop, uint32_t site) {
  const uint32_t fresh = static_cast<uint32_t>(steps_.size());
  uint32_t sibling = kNoStep;
  if (parent != kNoStep) {
    sibling = steps_[parent].child;
    for (uint32_t s = sibling, looked = 0; s != kNoStep && looked < kSiblings;
         s = steps_[s].sibling, ++looked) {
      if (steps_[s].loop != loop) continue;
      if (steps_[s].admits(loop, site)) return s;
      break;
    }
    steps_[parent].child = fresh;
  }
  if (kind_of_[site] == kNoStep) kind_of_[site] = kinds_++;
  steps_.push_back({parent, loop, kind_of_[site], 0, 0, kNoStep, sibling, 0, 0});
  return fresh;
}

void Steps::look_ahead() {
  float longest = 0;
  for (size_t s = steps_.size(); s-- > 0;) {  // a step comes after the one it follows
    steps_[s].ahead += cost_of(steps_[s].sites);
    longest = std::max(longest, steps_[s].ahead);
    if (steps_[s].parent == kNoStep) continue;
    Step& parent = steps_[steps_[s].parent];
    parent.ahead = std::max(parent.ahead, steps_[s].ahead);
  }
  for (Step& s : steps_) s.ahead /= longest;
}

// One launch for each weight, and what goes with it.
float Steps::cost_of(uint64_t sites) { return static_cast<float>(std::popcount(sites)); }

float Steps::urgency(float ahead, int power) {
  for (; power > 1; power /= 2) ahead *= ahead;
  return ahead;
}

// In each tick the kind of steps runs whose ready ones are the most urgent. Returns the cost of all ticks, or
// -1 as soon as that is not below `best`.
float Steps::run(Rule rule, float best) {
  ready_.resize(kinds_);
  ticks_.resize(steps_.size());
  for (Ready& r : ready_) {
    r.steps.clear();
    r.urgency = 0;
    r.sites = 0;
  }
  const auto make_ready = [&](uint32_t s) {
    Ready& r = ready_[steps_[s].kind];
    const float u = urgency(steps_[s].ahead, rule.power);
    r.steps.push_back(s);
    r.sites |= steps_[s].sites;
    r.urgency = rule.power == kLongest ? std::max(r.urgency, u) : r.urgency + u;
  };
  for (uint32_t s = 0; s < steps_.size(); ++s)
    if (steps_[s].parent == kNoStep) make_ready(s);
  float cost = 0;
  for (uint32_t tick = 1, done = 0; done < steps_.size(); ++tick) {
    uint32_t next = 0;
    float most = -1;
    for (uint32_t k = 0; k < kinds_; ++k) {
      const Ready& r = ready_[k];
      if (r.steps.empty()) continue;
      const float u = rule.per_cost ? r.urgency / cost_of(r.sites) : r.urgency;
      if (u > most) {
        most = u;
        next = k;
      }
    }
    Ready& r = ready_[next];
    running_.clear();
    running_.swap(r.steps);
    cost += cost_of(r.sites);
    r.urgency = 0;
    r.sites = 0;
    done += static_cast<uint32_t>(running_.size());
    if (best >= 0 && cost >= best) return -1;
    for (const uint32_t s : running_) {
      ticks_[s] = tick;
      for (uint32_t c = steps_[s].child; c != kNoStep; c = steps_[c].sibling) make_ready(c);
    }
  }
  return cost;
}

}  // namespace dyc
