#include "graph/trace.h"

#include <algorithm>
#include <utility>

#include "base/vectors.h"

namespace dyc {

uint32_t first_equal(const std::vector<NodeId>& nodes, size_t index) {
  uint32_t first = 0;  // there are few
  while (nodes[first] != nodes[index]) ++first;
  return first;
}

void first_equals(const std::vector<NodeId>& nodes, std::vector<uint32_t>* indices) {
  indices->clear();
  for (size_t i = 0; i < nodes.size(); ++i) indices->push_back(first_equal(nodes, i));
}

uint64_t Trace::next_number() {
  static uint64_t last = 0;
  return ++last;
}

// ---------------------------------------------------------------- capturing

std::unique_ptr<Trace> Trace::capture_nodes(Graph& g, NodeId begin, NodeId end,
                                            const std::vector<NodeId>& inputs) {
  auto p = std::make_unique<Trace>();
  for (NodeId input : inputs) {
    // The script may mean this very parameter rather than an input that happens to be it.
    if (g.is_parameter(input)) return nullptr;
    if (!p->captured_.emplace(input, p->n_inputs()).second) return nullptr;
    p->input_dims_.push_back(g.dim(input));
  }
  for (NodeId id = begin; id < end; ++id)
    if (!p->add(g, id)) return nullptr;
  p->nodes_.resize(p->n_inputs() + p->steps_.size());
  p->find_reads();
  p->plan_appends();
  return p;
}

std::unique_ptr<Trace> Trace::capture(Graph& g, NodeId begin, const std::vector<NodeId>& inputs,
                                      const std::vector<Placeholder>& placeholders) {
  auto p = capture_nodes(g, begin, g.size(), inputs);
  return p && p->bind_placeholders(placeholders) ? std::move(p) : nullptr;
}

std::unique_ptr<Trace> Trace::capture_stretch(Graph& g, NodeId begin, NodeId end,
                                              const std::vector<NodeId>& inputs,
                                              std::vector<uint32_t>* indices) {
  auto p = capture_nodes(g, begin, end, inputs);
  if (!p) return nullptr;
  for (const TraceStep& s : p->steps_)
    if (s.kind == TraceStep::draw) return nullptr;
  p->bind_indices(indices);
  for (const auto& [id, index] : p->captured_) p->nodes_[index] = id;
  bool fresh;
  const uint32_t layout = p->layout(g, p->nodes_.data(), &fresh);
  p->learn(g, layout);
  if (!p->layouts_.list[layout].appendable) return nullptr;
  p->learn_nodes(g, layout);
  return p;
}

void Trace::find_reads() {
  bulk_.read.assign(nodes_.size(), false);
  const auto is_view = [this](uint32_t i) {
    return i >= n_inputs() && steps_[i - n_inputs()].kind == TraceStep::view;
  };
  std::vector<bool> apart(nodes_.size(), false);
  for (const TraceStep& s : steps_)
    for (uint32_t k = 0; s.kind == TraceStep::op && k < s.n_args; ++k) {
      uint32_t i = words_[s.args + k];
      apart[i] = i < n_inputs() || (is_view(i) && !is_appended(i));
      for (bulk_.read[i] = true; is_view(i); bulk_.read[i] = true) i = words_[steps_[i - n_inputs()].args];
    }
  for (uint32_t i = 0; i < apart.size(); ++i)
    if (apart[i]) bulk_.outside_reads.push_back(i);
}

// Is this node of the trace an op, a lookup or a view of one?
bool Trace::is_appended(uint32_t index) const {
  if (index < n_inputs()) return false;
  const TraceStep& s = steps_[index - n_inputs()];
  if (s.kind == TraceStep::view) return is_appended(words_[s.args]);
  return s.kind == TraceStep::op || s.kind == TraceStep::lookup;
}

void Trace::add_table(uint32_t storage) {
  const auto same = [&](uint32_t known) { return storages_[known] == storages_[storage]; };
  if (std::none_of(bulk_.tables.begin(), bulk_.tables.end(), same)) bulk_.tables.push_back(storage);
}

void Trace::plan_appends() {
  const auto begin = [this] {
    return Append{static_cast<uint32_t>(bulk_.ops.size()), 0, static_cast<uint32_t>(bulk_.args.size()), 0,
                  kNone};
  };
  Append run = begin(), fresh = begin();
  const auto end = [&](std::vector<Append>* appends, Append* a, uint32_t then) {
    a->then = then;
    if (a->n || then != kNone) appends->push_back(*a);
    *a = begin();
  };
  for (uint32_t i = 0; i < steps_.size(); ++i) {
    const TraceStep& s = steps_[i];
    if (is_appended(n_inputs() + i)) {
      if (s.kind == TraceStep::lookup) add_table(s.storage);
      if (s.n_ids || s.list) bulk_.indexed.push_back({n_inputs() + i, s.ids, s.n_ids, s.list});
      bulk_.ops.push_back(n_inputs() + i);
      bulk_.args.insert(bulk_.args.end(), words_.begin() + s.args, words_.begin() + s.args + s.n_args);
      for (Append* a : {&run, &fresh}) {
        ++a->n;
        a->n_args += s.n_args;
      }
      continue;
    }
    end(&bulk_.fresh, &fresh, i);
    if (s.kind == TraceStep::parameter)
      bulk_.parameters.push_back({n_inputs() + i, storages_[s.storage].uid, words_[s.attrs]});
    else end(&bulk_.appends, &run, i);
  }
  end(&bulk_.appends, &run, kNone);
  end(&bulk_.fresh, &fresh, kNone);
}

void Trace::add_step(const Graph& g, NodeId id, TraceStep step) {
  const auto known = std::find(dims_.begin(), dims_.end(), g.dim(id));
  step.dim = static_cast<uint32_t>(known - dims_.begin());
  if (known == dims_.end()) dims_.push_back(g.dim(id));
  captured_.emplace(id, n_inputs() + static_cast<uint32_t>(steps_.size()));
  steps_.push_back(step);
}

bool Trace::draws() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const TraceStep& s) { return s.kind == TraceStep::draw; });
}

uint32_t Trace::index_of(NodeId id) const {
  const auto at = captured_.find(id);
  return at == captured_.end() ? kNone : at->second;
}

void Trace::forget_captured() {
  captured_ = {};
  shrink_to_fit(steps_, dims_, words_, bound_, input_dims_, storages_, nodes_, bulk_.ops, bulk_.args,
                bulk_.tables, bulk_.indexed, layouts_.cached, layouts_.nodes, layouts_.joins,
                layouts_.sources, layouts_.counts);
}

size_t Trace::bytes() const {
  return sizeof *this + bytes_in(steps_) + bytes_in(dims_) + bytes_in(words_) + bytes_in(bound_) +
         bytes_in(input_dims_) + bytes_in(storages_) + bytes_in(nodes_) + bytes_in(bulk_.ops) +
         bytes_in(bulk_.args) + bytes_in(bulk_.tables) + bytes_in(bulk_.indexed) + layouts_.keys.bytes() +
         bytes_in(layouts_.list) + bytes_in(layouts_.cached) + bytes_in(layouts_.nodes) +
         bytes_in(layouts_.joins) + bytes_in(layouts_.sources) + bytes_in(layouts_.counts) +
         placements_.keys.bytes() + bytes_in(placements_.list) + bytes_in(placements_.places);
}

void Trace::count_bytes() {
  if (!budget_) return;
  const size_t now = bytes();
  budget_->bytes += now - counted_;
  counted_ = now;
}

void Trace::count_in(TraceBudget* budget) {
  budget_ = budget;
  count_bytes();
}

Trace::~Trace() {
  if (budget_) budget_->bytes -= counted_;
}

void Trace::add_parameter(Graph& g, NodeId id) {
  TraceStep step;
  step.kind = TraceStep::parameter;
  step.attrs = static_cast<uint32_t>(words_.size());
  step.n_attrs = 1;
  words_.push_back(g.sig(id).attr(1));  // its role
  storages_.push_back({g.sig(id).attr(0), g.parameters.shared_storage(g.sig(id).attr(0))});
  step.storage = static_cast<uint32_t>(storages_.size() - 1);
  add_step(g, id, step);
}

void Trace::add_constant(Graph& g, NodeId id) {
  TraceStep step;
  step.kind = TraceStep::constant;
  step.attrs = static_cast<uint32_t>(words_.size());
  step.n_attrs = 1;
  words_.push_back(g.sig(id).attr(0));  // its value
  add_step(g, id, step);
}

namespace {

bool same_in_all_graphs(const Graph& g, NodeId id) {
  return g.is_parameter(id) || g.sig(id).op == op_id<Constant>;
}

}  // namespace

// Appends the index of an argument, which must be part of the trace or the same in every graph.
bool Trace::add_reference(Graph& g, NodeId id, std::vector<uint32_t>* indices) {
  uint32_t index = index_of(id);
  if (index == kNone) {  // recorded before the trace begins
    if (!same_in_all_graphs(g, id)) return false;
    if (g.is_parameter(id)) add_parameter(g, id);
    else add_constant(g, id);
    index = n_inputs() + static_cast<uint32_t>(steps_.size()) - 1;
  }
  indices->push_back(index);
  return true;
}

void Trace::add_ids(const Graph& g, NodeId id, TraceStep* step) {
  const Graph::Ids ids = g.ids(id);
  step->list = ids.list;
  step->ids = static_cast<uint32_t>(words_.size());
  step->n_ids = ids.n;
  words_.insert(words_.end(), ids.data, ids.data + ids.n);
}

bool Trace::add(Graph& g, NodeId id) {
  if (same_in_all_graphs(g, id)) return true;  // where it is first used: it may have been there before
  const Node& n = g.node(id);
  const Sig& s = g.sig(id);
  const OpKind kind = op_info(s.op).meta->kind;
  TraceStep step;
  step.code = with_shared_number(s.op);
  std::vector<uint32_t> indices;
  if (kind == OpKind::draw) {
    step.kind = TraceStep::draw;
  } else if (kind == OpKind::lookup) {
    step.kind = TraceStep::lookup;
    storages_.push_back({s.attr(0), g.parameters.shared_storage(s.attr(0))});
    step.storage = static_cast<uint32_t>(storages_.size() - 1);
    step.limit = storage(step.storage)->rows;
    add_ids(g, id, &step);
  } else if (kind == OpKind::view) {
    step.kind = TraceStep::view;
    if (!add_reference(g, g.args(id)[0], &indices)) return false;
  } else if (kind == OpKind::input || kind == OpKind::user) {
    return false;
  } else {
    const bool duplicate = n.flags & Node::view;  // its arguments follow the node it is equal to
    for (uint32_t i = 0; i < s.n_args; ++i)
      if (!add_reference(g, g.args(id)[i + duplicate], &indices)) return false;
    if (s.op == op_id<Pick>) step.limit = g.dim(g.args(id)[duplicate])[s.attr(0)];
    if (duplicate && op_info(s.op).ids()) return false;
  }
  step.args = static_cast<uint32_t>(words_.size());
  step.n_args = static_cast<uint32_t>(indices.size());
  words_.insert(words_.end(), indices.begin(), indices.end());
  if (step.kind == TraceStep::op && op_info(s.op).ids()) add_ids(g, id, &step);
  // The other attributes of a view follow from its argument.
  const auto attrs = step.kind == TraceStep::view ? s.attrs.begin() + 1 : s.attrs.begin();
  const auto attrs_end = step.kind == TraceStep::view ? attrs + 1 : s.attrs.end();
  step.attrs = static_cast<uint32_t>(words_.size());
  step.n_attrs = static_cast<uint32_t>(attrs_end - attrs);
  words_.insert(words_.end(), attrs, attrs_end);
  if (may_own_number(step.code)) {  // one word, which is an attribute or an id
    step.attrs = step.ids = static_cast<uint32_t>(words_.size()) - 1;
    step.n_attrs = step.n_ids = 1;
  }
  add_step(g, id, step);
  return true;
}

bool Trace::bind_placeholders(const std::vector<Placeholder>& placeholders) {
  for (uint32_t h = 0; h < placeholders.size(); ++h) {
    uint32_t uses = 0;
    for (const TraceStep& s : steps_) {
      if (!has_indices(s)) continue;
      for (uint32_t i = 0; i < s.n_ids; ++i)
        if (words_[s.ids + i] == placeholders[h].value) {
          bound_.push_back({s.ids + i, h, s.limit});
          ++uses;
        }
    }
    if (uses != placeholders[h].uses) return false;
  }
  return true;
}

void Trace::bind_indices(std::vector<uint32_t>* indices) {
  for (const TraceStep& s : steps_)
    for (uint32_t i = 0; has_indices(s) && i < s.n_ids; ++i) {
      bound_.push_back({s.ids + i, static_cast<uint32_t>(indices->size()), s.limit});
      indices->push_back(words_[s.ids + i]);
    }
}

uint64_t Trace::hash() const {
  std::vector<uint32_t> words = words_;
  for (const BoundPlaceholder& f : bound_) words[f.at] = 0;
  uint64_t h = mix(steps_.size(), bound_.size());
  for (const Dim& d : input_dims_) h = mix(h, d.size());
  for (const WeakStorage& s : storages_) h = mix(h, s.uid);
  for (const TraceStep& s : steps_) h = mix(h, s.code);
  for (const uint32_t word : words) h = mix(h, word);
  return h;
}

void Trace::make_constant(uint32_t placeholder, uint32_t value) {
  for (const BoundPlaceholder& f : bound_)
    if (f.placeholder == placeholder) words_[f.at] = value;
  std::erase_if(bound_, [placeholder](const BoundPlaceholder& f) { return f.placeholder == placeholder; });
  for (BoundPlaceholder& f : bound_) f.placeholder -= f.placeholder > placeholder;
}

std::string Trace::difference(const Trace& other) const {
  if (bound_ != other.bound_) return "other indices";
  if (storages_ != other.storages_) return "other parameters";
  if (steps_.size() != other.steps_.size()) return text(steps_.size(), " steps, not ", other.steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Dim &mine = dims_[steps_[i].dim], &theirs = other.dims_[other.steps_[i].dim];
    if (!(steps_[i] == other.steps_[i]) || !(mine == theirs))
      return text("step ", i, ": ", op_info(steps_[i].code).meta->name, " ", mine, ", not ",
                  op_info(other.steps_[i].code).meta->name, " ", theirs);
  }
  std::vector<uint32_t> mine = words_, theirs = other.words_;
  for (const BoundPlaceholder& f : bound_) mine[f.at] = theirs[f.at] = 0;
  const auto differs = std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end());
  if (differs.first == mine.end()) return {};
  return text("other arguments, at word ", differs.first - mine.begin());
}

}  // namespace dyc
