#include "bindings/region_walk_stretches.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "bindings/region_replay.h"
#include "bindings/tuning.h"

namespace dyc::py {

namespace {

// ---------------------------------------------------------------- traces that memos share

using SharedTraces = std::unordered_multimap<uint64_t, std::weak_ptr<Trace>>;

SharedTraces& shared_traces() {
  static auto* const traces = new SharedTraces;
  return *traces;
}

// The one that is equal, if there is one.
std::shared_ptr<Trace> share(std::unique_ptr<Trace> trace) {
  const uint64_t hash = trace->hash();
  const auto [first, last] = shared_traces().equal_range(hash);
  for (auto at = first; at != last; ++at)
    if (std::shared_ptr<Trace> known = at->second.lock(); known && known->is_equal(*trace)) return known;
  trace->forget_captured();
  trace->count_in(&memo_memory);
  const auto forget = [hash](Trace* gone) {
    const auto [begin, end] = shared_traces().equal_range(hash);
    const auto at = std::find_if(begin, end, [](const auto& entry) { return entry.second.expired(); });
    if (at != end) shared_traces().erase(at);
    delete gone;
  };
  const std::shared_ptr<Trace> shared(trace.release(), forget);
  shared_traces().emplace(hash, shared);
  return shared;
}

// ---------------------------------------------------------------- joining

class StretchJoiner {
 public:
  StretchJoiner(Graph& g, const WalkedSteps& walked, const std::vector<NodeId>& inputs, WalkMemo* memo)
      : g_(g), walked_(walked), inputs_(inputs), memo_(*memo) {}
  void run();

 private:
  NodeId begin(size_t i) const { return i ? walked_.steps[i - 1].end : walked_.begin; }
  NodeId end(size_t i) const { return walked_.steps[i].end; }
  MemoNode first(size_t i) const {
    return i < walked_.steps.size() ? walked_.steps[i].first : static_cast<MemoNode>(walked_.made.size());
  }
  NodeId id_of(MemoNode n) const { return n & kMemoInput ? inputs_[n & ~kMemoInput] : walked_.made[n]; }
  MemoNode renumbered(MemoNode n) const { return n & kMemoInput ? n : renumbered_[n]; }
  bool may_join(size_t i, size_t from) const;
  bool is_plain(NodeId id) const;
  // Does it record nothing, as it asks a state for nodes?
  bool asks(size_t i) const { return before_.steps[i].kind == MemoStep::reads && begin(i) == end(i); }
  // The state that the step goes on from, or asks.
  const WalkedSteps::State& state(size_t i) const {
    return walked_.states[before_.words[before_.words_at[i]]];
  }
  bool is_made_in(MemoNode node, size_t i) const {
    return !(node & kMemoInput) && node >= first(i) && !asked_[node];
  }
  bool find_inputs(size_t i, size_t n);
  bool find_input(MemoNode node);
  bool join(size_t i, size_t n);
  void copy(size_t i);
  void copy_words(size_t i);
  void add_states(size_t i);
  void add_nodes(const std::vector<MemoNode>& nodes, MemoStep* step);

  Graph& g_;
  const WalkedSteps& walked_;
  const std::vector<NodeId>& inputs_;
  WalkMemo& memo_;
  struct Before {  // joining
    std::vector<MemoStep> steps;
    std::vector<MemoNode> nodes;
    std::vector<uint32_t> words;
    std::vector<size_t> nodes_at, words_at;  // of each step
  };
  Before before_;
  std::vector<MemoNode> renumbered_;  // of each node
  std::vector<bool> asked_;           // of each node: is it one that a state was asked for?
  MemoNode n_made_ = 0;
  std::vector<NodeId> ids_;  // of the inputs of a stretch
  std::vector<MemoNode> operands_, equal_;
  std::unordered_map<NodeId, MemoNode> known_;
};

// Does it do the same each time? A node that equal expressions share could be another one in another graph.
bool StretchJoiner::is_plain(NodeId id) const {
  if (g_.is_parameter(id) || g_.sig(id).op == op_id<Constant>) return true;
  const Node& n = g_.node(id);
  return !(n.flags & Node::leaf) && n.value_number == 0 && op_info(g_.sig(id).op).meta->kind != OpKind::user;
}

// A step, to those from `from` on.
bool StretchJoiner::may_join(size_t i, size_t from) const {
  switch (before_.steps[i].kind) {
    case MemoStep::trace:
    case MemoStep::op:
    case MemoStep::arithmetic:
    case MemoStep::with_left:
    case MemoStep::with_right:
    case MemoStep::lookup:
    case MemoStep::parameter:
      break;
    case MemoStep::add_inputs:
      if ((state(i).n_masks > 0 && state(i).masks == kNone) || first(i + 1) - first(i) > UINT16_MAX)
        return false;
      break;
    case MemoStep::reads:  // goes before the trace, as the state must
      return asks(i) && state(i).step < from;
    case MemoStep::start:
      break;
    default:
      return false;
  }
  for (NodeId id = begin(i); id < end(i); ++id)
    if (!is_plain(id)) return false;
  return true;
}

// A node that others have made. False: it cannot be one.
bool StretchJoiner::find_input(MemoNode node) {
  const NodeId id = id_of(node);
  if (g_.is_parameter(id)) {
    // The trace finds it by the parameter, so it must not be a node that happens to be it.
    const auto at = std::upper_bound(walked_.steps.begin(), walked_.steps.end(), node,
                                     [](MemoNode m, const WalkedSteps::Step& s) { return m < s.first; });
    return !(node & kMemoInput) &&
           before_.steps[static_cast<size_t>(at - walked_.steps.begin()) - 1].kind == MemoStep::parameter;
  }
  const auto [before, fresh] = known_.emplace(id, node);
  if (fresh) {
    ids_.push_back(id);
    operands_.push_back(node);
  } else if (before->second != node) {
    equal_.insert(equal_.end(), {before->second, node});
  }
  return true;
}

// What the steps read that others have made. Nodes that are one by chance must be one again: `equal_`.
bool StretchJoiner::find_inputs(size_t i, size_t n) {
  ids_.clear();
  operands_.clear();
  equal_.clear();
  known_.clear();
  for (size_t k = i; k < i + n; ++k) {
    const size_t at = before_.nodes_at[k];
    for (size_t j = at; j < at + before_.steps[k].n_nodes; ++j)
      if (!is_made_in(before_.nodes[j], i) && !find_input(before_.nodes[j])) return false;
    if (before_.steps[k].kind != MemoStep::add_inputs) continue;
    const WalkedSteps::State& from = state(k);
    if (from.nodes == kNone) continue;
    for (uint32_t j = 0; j < from.n_nodes; ++j)
      if (!is_made_in(from.nodes + j, i) && !find_input(from.nodes + j)) return false;
    for (uint32_t j = 0; j < from.n_masks; ++j)
      if (!find_input(from.masks + j)) return false;
  }
  return true;
}

void StretchJoiner::add_nodes(const std::vector<MemoNode>& nodes, MemoStep* step) {
  for (const MemoNode node : nodes) memo_.nodes.push_back(renumbered(node));
  step->n_nodes = static_cast<uint16_t>(step->n_nodes + nodes.size());
}

// False: it cannot be one.
bool StretchJoiner::join(size_t i, size_t n) {
  const NodeId from = begin(i), to = end(i + n - 1);
  if (to - from < tuning::kLeastStretch || !find_inputs(i, n)) return false;
  std::vector<uint32_t> indices;
  std::unique_ptr<Trace> trace = Trace::capture_stretch(g_, from, to, ids_, &indices);
  if (!trace || operands_.size() + equal_.size() > UINT16_MAX || indices.size() > UINT16_MAX) return false;
  for (MemoNode node = first(i); node < first(i + n); ++node)
    if (is_made_in(node, i) && trace->index_of(walked_.made[node]) - trace->n_inputs() >= trace->n_steps())
      return false;
  for (size_t k = i; k < i + n; ++k)
    if (asks(k)) copy(k);
  for (MemoNode node = first(i); node < first(i + n); ++node)
    if (is_made_in(node, i))
      renumbered_[node] = n_made_ + trace->index_of(walked_.made[node]) - trace->n_inputs();
  n_made_ += trace->n_steps();
  MemoStep step;
  step.kind = MemoStep::stretch;
  add_nodes(operands_, &step);
  add_nodes(equal_, &step);
  step.n_words = static_cast<uint16_t>(indices.size());
  memo_.words.insert(memo_.words.end(), indices.begin(), indices.end());
  memo_.traces.push_back(share(std::move(trace)));
  step.object = memo_.traces.back().get();
  memo_.steps.push_back(step);
  // Where the inputs do not fit, no sequence has been started: the statements may end before they start one.
  for (size_t k = i; k < i + n; ++k)
    if (before_.steps[k].kind == MemoStep::add_inputs) add_states(k);
    else if (before_.steps[k].kind == MemoStep::start) copy(k);
  return true;
}

// Of a step whose nodes the trace has made.
void StretchJoiner::add_states(size_t i) {
  MemoStep step = before_.steps[i];
  step.kind = MemoStep::recorded;
  step.n_nodes = 0;
  copy_words(i);
  std::vector<MemoNode> made(first(i + 1) - first(i));
  std::iota(made.begin(), made.end(), first(i));
  add_nodes(made, &step);
  memo_.steps.push_back(step);
}

void StretchJoiner::copy_words(size_t i) {
  const auto words = before_.words.begin() + static_cast<ptrdiff_t>(before_.words_at[i]);
  memo_.words.insert(memo_.words.end(), words, words + before_.steps[i].n_words);
}

void StretchJoiner::copy(size_t i) {
  MemoStep step = before_.steps[i];
  const auto at = before_.nodes.begin() + static_cast<ptrdiff_t>(before_.nodes_at[i]);
  const std::vector<MemoNode> operands(at, at + step.n_nodes);
  copy_words(i);
  step.n_nodes = 0;
  add_nodes(operands, &step);
  memo_.steps.push_back(step);
  for (MemoNode node = first(i); node < first(i + 1); ++node) renumbered_[node] = n_made_++;
}

void StretchJoiner::run() {
  before_.steps = std::exchange(memo_.steps, {});
  before_.nodes = std::exchange(memo_.nodes, {});
  before_.words = std::exchange(memo_.words, {});
  size_t nodes = 0, words = 0;
  std::unordered_set<const void*> confirmed;
  for (const MemoStep& s : before_.steps) {
    before_.nodes_at.push_back(std::exchange(nodes, nodes + s.n_nodes));
    before_.words_at.push_back(std::exchange(words, words + s.n_words));
    if (s.kind == MemoStep::trace && confirmed.insert(s.object).second)
      memo_.confirmed.push_back(static_cast<const Specialisation*>(s.object));
  }
  renumbered_.resize(walked_.made.size());
  asked_.resize(walked_.made.size());
  for (size_t i = 0; i < before_.steps.size(); ++i)
    std::fill(asked_.begin() + first(i), asked_.begin() + first(i + 1), asks(i));
  for (size_t i = 0; i < before_.steps.size();) {
    size_t n = 0;
    while (i + n < before_.steps.size() && may_join(i + n, i) &&
           end(i + n) - begin(i) <= tuning::kMostStretch)
      ++n;
    if (n > 0 && join(i, n)) {
      i += n;
      continue;
    }
    for (const size_t last = i + std::max(n, size_t{1}); i < last; ++i) copy(i);
  }
  for (MemoResult& r : memo_.results)
    if (r.kind == WalkResult::recorded) r.node = renumbered(r.node);
}

}  // namespace

size_t n_shared_traces() { return shared_traces().size(); }

void join_stretches(Graph& g, const WalkedSteps& walked, const std::vector<NodeId>& inputs, WalkMemo* memo) {
  StretchJoiner(g, walked, inputs, memo).run();
}

}  // namespace dyc::py
