#include "bindings/region_walk_stretches.h"

#include <algorithm>
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
  bool may_join(size_t i) const;
  bool is_plain(NodeId id) const;
  // Does it only ask a state for nodes, which a builder has recorded before?
  bool asks(size_t i) const {
    return (before_.steps[i].kind == MemoStep::parts || before_.steps[i].kind == MemoStep::reads) &&
           begin(i) == end(i);
  }
  bool is_made_in(MemoNode node, size_t i) const {
    return !(node & kMemoInput) && node >= first(i) && !asked_[node];
  }
  bool find_inputs(size_t i, size_t n);
  bool join(size_t i, size_t n);
  void copy(size_t i);
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
};

// Does it do the same each time? A node that equal expressions share could be another one in another graph.
bool StretchJoiner::is_plain(NodeId id) const {
  if (g_.is_parameter(id)) return true;
  const Node& n = g_.node(id);
  return !(n.flags & Node::leaf) && n.value_number == 0 && op_info(g_.sig(id).op).meta->kind != OpKind::user;
}

bool StretchJoiner::may_join(size_t i) const {
  switch (before_.steps[i].kind) {
    case MemoStep::trace:
    case MemoStep::op:
    case MemoStep::arithmetic:
    case MemoStep::with_left:
    case MemoStep::with_right:
    case MemoStep::lookup:
    case MemoStep::parameter:
      break;
    default:
      return asks(i);
  }
  for (NodeId id = begin(i); id < end(i); ++id)
    if (!is_plain(id)) return false;
  return true;
}

// What the steps read that others have made. Nodes that are one by chance must be one again: `equal_`.
bool StretchJoiner::find_inputs(size_t i, size_t n) {
  ids_.clear();
  operands_.clear();
  equal_.clear();
  std::unordered_map<NodeId, MemoNode> known;
  const size_t last = i + n < before_.steps.size() ? before_.nodes_at[i + n] : before_.nodes.size();
  for (size_t k = before_.nodes_at[i]; k < last; ++k) {
    const MemoNode node = before_.nodes[k];
    if (is_made_in(node, i)) continue;
    const NodeId id = id_of(node);
    if (g_.is_parameter(id)) {
      // The trace finds it by the parameter, so it must not be a node that happens to be it.
      const auto at = std::upper_bound(walked_.steps.begin(), walked_.steps.end(), node,
                                       [](MemoNode m, const WalkedSteps::Step& s) { return m < s.first; });
      const bool input = node & kMemoInput;
      if (input ||
          before_.steps[static_cast<size_t>(at - walked_.steps.begin()) - 1].kind != MemoStep::parameter)
        return false;
      continue;
    }
    const auto [before, fresh] = known.emplace(id, node);
    if (fresh) {
      ids_.push_back(id);
      operands_.push_back(node);
    } else if (before->second != node) {
      equal_.insert(equal_.end(), {before->second, node});
    }
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
    if (asks(k)) copy(k);  // a state is asked before
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
  return true;
}

void StretchJoiner::copy(size_t i) {
  MemoStep step = before_.steps[i];
  const auto at = before_.nodes.begin() + static_cast<ptrdiff_t>(before_.nodes_at[i]);
  const std::vector<MemoNode> operands(at, at + step.n_nodes);
  const auto words = before_.words.begin() + static_cast<ptrdiff_t>(before_.words_at[i]);
  memo_.words.insert(memo_.words.end(), words, words + step.n_words);
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
    while (i + n < before_.steps.size() && may_join(i + n) && end(i + n) - begin(i) <= tuning::kMostStretch)
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
