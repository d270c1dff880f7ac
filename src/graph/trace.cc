#include "graph/trace.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "graph/tuning.h"

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

std::unique_ptr<Trace> Trace::capture(Graph& g, NodeId begin, const std::vector<NodeId>& inputs,
                                      const std::vector<Placeholder>& placeholders) {
  auto p = std::make_unique<Trace>();
  for (NodeId input : inputs) {
    // The script may mean this very parameter rather than an input that happens to be it.
    if (g.is_parameter(input)) return nullptr;
    if (std::find(p->captured_.begin(), p->captured_.end(), input) != p->captured_.end()) return nullptr;
    p->captured_.push_back(input);
    p->input_dims_.push_back(g.dim(input));
  }
  for (NodeId id = begin; id < g.size(); ++id)
    if (!p->add(g, id)) return nullptr;
  if (!p->bind_placeholders(placeholders)) return nullptr;
  p->nodes_.resize(p->captured_.size());
  p->find_outside_reads();
  p->plan_appends();
  return p;
}

void Trace::find_outside_reads() {
  for (uint32_t i = 0; i < n_inputs() + steps_.size(); ++i) {
    const bool apart = i < n_inputs() || (steps_[i - n_inputs()].kind == TraceStep::view && !is_appended(i));
    const auto reads = [&](const TraceStep& s) {
      const auto args = words_.begin() + s.args;
      return s.kind == TraceStep::op && std::find(args, args + s.n_args, i) != args + s.n_args;
    };
    if (apart && std::any_of(steps_.begin(), steps_.end(), reads)) bulk_.outside_reads.push_back(i);
  }
}

// Is this node of the trace an op, a lookup or a view of one?
bool Trace::is_appended(uint32_t index) const {
  if (index < n_inputs()) return false;
  const TraceStep& s = steps_[index - n_inputs()];
  if (s.kind == TraceStep::view) return is_appended(words_[s.args]);
  return s.kind == TraceStep::op || s.kind == TraceStep::lookup;
}

void Trace::plan_appends() {
  Append run{0, 0, 0, 0, kNone};
  const auto end = [&](uint32_t then) {
    run.then = then;
    if (run.n || then != kNone) bulk_.appends.push_back(run);
    run = {static_cast<uint32_t>(bulk_.ops.size()), 0, static_cast<uint32_t>(bulk_.args.size()), 0, kNone};
  };
  for (uint32_t i = 0; i < steps_.size(); ++i) {
    const TraceStep& s = steps_[i];
    if (s.kind == TraceStep::parameter) {
      bulk_.parameters.push_back({n_inputs() + i, storages_[s.storage].uid, words_[s.attrs]});
    } else if (is_appended(n_inputs() + i)) {
      if (s.kind == TraceStep::lookup) bulk_.lookups.push_back(i);
      if (s.n_ids || s.list) bulk_.with_ids.push_back(i);
      bulk_.ops.push_back(n_inputs() + i);
      bulk_.args.insert(bulk_.args.end(), words_.begin() + s.args, words_.begin() + s.args + s.n_args);
      ++run.n;
      run.n_args += s.n_args;
    } else {
      end(i);
    }
  }
  end(kNone);
}

void Trace::add_step(const Graph& g, NodeId id, TraceStep step) {
  step.dim = g.dim(id);
  steps_.push_back(step);
  captured_.push_back(id);
}

bool Trace::draws() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const TraceStep& s) { return s.kind == TraceStep::draw; });
}

uint32_t Trace::index_of(NodeId id) const {
  const auto at = std::find(captured_.begin(), captured_.end(), id);
  return at == captured_.end() ? kNone : static_cast<uint32_t>(at - captured_.begin());
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

bool takes_ids(const OpInfo& info) {
  return std::any_of(info.params, info.params + info.n_params,
                     [](const Param& p) { return p.kind == Param::index || p.kind == Param::indices; });
}

}  // namespace

// Appends the index of an argument, which must be part of the trace or the same in every graph.
bool Trace::add_reference(Graph& g, NodeId id, std::vector<uint32_t>* indices) {
  uint32_t index = index_of(id);
  if (index == kNone) {  // recorded before the trace begins
    if (!same_in_all_graphs(g, id)) return false;
    if (g.is_parameter(id)) add_parameter(g, id);
    else add_constant(g, id);
    index = static_cast<uint32_t>(captured_.size() - 1);
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
  step.code = s.op;
  std::vector<uint32_t> indices;
  if (kind == OpKind::draw) {
    step.kind = TraceStep::draw;
  } else if (kind == OpKind::lookup) {
    step.kind = TraceStep::lookup;
    storages_.push_back({s.attr(0), g.parameters.shared_storage(s.attr(0))});
    step.storage = static_cast<uint32_t>(storages_.size() - 1);
    step.limit = storage(step)->rows;
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
    if (!duplicate && takes_ids(op_info(s.op))) add_ids(g, id, &step);
    if (s.op == op_id<Pick>) step.limit = g.dim(g.args(id)[duplicate])[s.attr(0)];
    if (duplicate && takes_ids(op_info(s.op))) return false;
  }
  step.args = static_cast<uint32_t>(words_.size());
  step.n_args = static_cast<uint32_t>(indices.size());
  words_.insert(words_.end(), indices.begin(), indices.end());
  // The other attributes of a view follow from its argument.
  const auto attrs = step.kind == TraceStep::view ? s.attrs.begin() + 1 : s.attrs.begin();
  const auto attrs_end = step.kind == TraceStep::view ? attrs + 1 : s.attrs.end();
  step.attrs = static_cast<uint32_t>(words_.size());
  step.n_attrs = static_cast<uint32_t>(attrs_end - attrs);
  words_.insert(words_.end(), attrs, attrs_end);
  add_step(g, id, step);
  return true;
}

bool Trace::bind_placeholders(const std::vector<Placeholder>& placeholders) {
  for (uint32_t h = 0; h < placeholders.size(); ++h) {
    uint32_t uses = 0;
    for (const TraceStep& s : steps_)
      for (uint32_t i = 0; i < s.n_ids; ++i)
        if (words_[s.ids + i] == placeholders[h].value) {
          bound_.push_back({s.ids + i, h, s.limit});
          ++uses;
        }
    if (uses != placeholders[h].uses) return false;
  }
  return true;
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
  for (size_t i = 0; i < steps_.size(); ++i)
    if (!(steps_[i] == other.steps_[i]))
      return text("step ", i, ": ", op_info(steps_[i].code).meta->name, " ", steps_[i].dim, ", not ",
                  op_info(other.steps_[i].code).meta->name, " ", other.steps_[i].dim);
  std::vector<uint32_t> mine = words_, theirs = other.words_;
  for (const BoundPlaceholder& f : bound_) mine[f.at] = theirs[f.at] = 0;
  const auto differs = std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end());
  if (differs.first == mine.end()) return {};
  return text("other arguments, at word ", differs.first - mine.begin());
}

// ---------------------------------------------------------------- recording

bool Trace::matches(const Graph& g, const NodeId* inputs, const uint32_t* indices) {
  const bool numbered = numbers_of_ == g.tables();
  for (uint32_t i = 0; i < n_inputs(); ++i)
    if (numbered ? g.dim_number(inputs[i]) != dim_numbers_[i] : !(g.dim(inputs[i]) == input_dims_[i]))
      return false;
  if (!numbered) {
    numbers_of_ = g.tables();
    dim_numbers_.clear();
    for (uint32_t i = 0; i < n_inputs(); ++i) dim_numbers_.push_back(g.dim_number(inputs[i]));
  }
  return indices_fit(indices);
}

bool Trace::indices_fit(const uint32_t* indices) const {
  return std::all_of(bound_.begin(), bound_.end(),
                     [indices](const BoundPlaceholder& f) { return indices[f.placeholder] < f.limit; });
}

void Trace::set_indices(const uint32_t* indices) {
  for (const BoundPlaceholder& f : bound_) words_[f.at] = indices[f.placeholder];
}

// Interns all that decides the signatures and sites of the steps. `fresh`: it was not known yet.
uint32_t Trace::signature_set(const Graph& g, const NodeId* inputs, bool* fresh) {
  if (sets_.tables != g.tables()) {
    sets_.tables = g.tables();
    sets_.keys = InternTable();
    sets_.cached.clear();
    sets_.appendable.clear();
  }
  key_.assign(1, g.share_equal_values);
  for (uint32_t i = 0; i < n_inputs(); ++i) {
    const Node& n = g.node(inputs[i]);
    key_.push_back(n.sig);
    key_.push_back(n.site);
    key_.push_back(n.value_number * 2 + (n.flags & Node::requires_grad));
  }
  return sets_.keys.intern(key_.data(), static_cast<uint32_t>(key_.size()), fresh);
}

// As short as possible, because these keys are most of the cost of a short trace: a bucket implies its site,
// and few nodes have a value number.
Trace::InputKey Trace::input_key(Graph& g, NodeId input) {
  const uint32_t bucket = g.pending_bucket(input);
  const Node& n = g.node(input);
  const bool pending = bucket != kNone;
  return {{n.sig << 3 | uint32_t{n.value_number != 0} << 2 | uint32_t{pending} << 1 |
               (n.flags & Node::requires_grad),
           pending ? bucket : n.site, n.value_number},
          n.value_number ? 3u : 2u};
}

// Interns all that decides the buckets of the steps, too.
uint32_t Trace::layout(Graph& g, const NodeId* inputs) {
  if (sets_.tables != g.tables() || layouts_.epoch != g.epoch()) {
    layouts_.epoch = g.epoch();
    layouts_.learn_at_once =
        tuning::kLayoutsLearned * layouts_.used > tuning::kLayoutUses * layouts_.list.size();
    layouts_.used = 0;
    layouts_.keys.clear();
    layouts_.list.clear();
    layouts_.nodes.clear();
    layouts_.counts.clear();
    layouts_.generation = next_number();
  }
  key_.resize(1 + 3 * n_inputs());
  uint32_t* k = key_.data();
  *k++ = g.share_equal_values;
  for (uint32_t i = 0; i < n_inputs(); ++i) {
    const InputKey key = input_key(g, inputs[i]);
    k = std::copy_n(key.words, key.n, k);
  }
  return layouts_.keys.intern(key_.data(), static_cast<uint32_t>(k - key_.data()));
}

std::shared_ptr<Storage> Trace::storage(const TraceStep& step) const {
  std::shared_ptr<Storage> s = storages_[step.storage].storage.lock();
  if (!s) throw RuntimeError("a parameter of the trace is gone");
  return s;
}

NodeId Trace::record_step(Graph& g, const TraceStep& s) {
  const uint32_t* attrs = words_.data() + s.attrs;
  switch (s.kind) {
    case TraceStep::lookup:
      return g.lookup(storage(s), ids_of(s), attrs[1]);
    case TraceStep::parameter: {
      const NodeId known = g.parameters.find(storages_[s.storage].uid, attrs[0]);
      return known != kNone ? known : g.parameter(storage(s), attrs[0]);
    }
    case TraceStep::constant: {
      float value;
      std::memcpy(&value, attrs, 4);
      return g.constant(s.dim, value);
    }
    case TraceStep::draw: {
      float a, b;
      std::memcpy(&a, attrs + 1, 4);
      std::memcpy(&b, attrs + 2, 4);
      return g.draw(static_cast<DrawKind>(attrs[0]), a, b, s.dim);
    }
    case TraceStep::view:
      return g.view(s.code, nodes_[words_[s.args]], s.dim, attrs[0]);
    case TraceStep::op:
      break;
  }
  NodeId local[16];
  std::vector<NodeId> many;
  NodeId* args = local;
  if (s.n_args > 16) {
    many.resize(s.n_args);
    args = many.data();
  }
  for (uint32_t i = 0; i < s.n_args; ++i) args[i] = nodes_[words_[s.args + i]];
  return g.record(s.code, args, s.n_args, attrs, s.n_attrs, ids_of(s));
}

bool Trace::is_leaf(const TraceStep& s) {
  return s.kind == TraceStep::parameter || s.kind == TraceStep::draw || s.kind == TraceStep::constant;
}

void Trace::learn(const Graph& g, uint32_t signature_set) {
  sets_.cached.resize((size_t{signature_set} + 1) * steps_.size());
  sets_.appendable.resize(size_t{signature_set} + 1);
  bool appendable = true;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const NodeId id = nodes_[n_inputs() + i];
    const Node& n = g.node(id);
    const bool op = steps_[i].kind == TraceStep::op && !(n.flags & Node::view) && n.value_number == 0;
    const bool plain = op || steps_[i].kind == TraceStep::lookup ||
                       (steps_[i].kind == TraceStep::view && n.value_number == 0);
    sets_.cached[signature_set * steps_.size() + i] = {plain ? n.sig : kNone, n.site, g.sig(id).size,
                                                       n.flags & Node::requires_grad};
    appendable = appendable && (plain || is_leaf(steps_[i]));
  }
  sets_.appendable[signature_set] = appendable;
}

// f() records everything or, if it throws, nothing: there may be no memory for what a step draws.
template <class F>
void Trace::or_revert(Graph& g, F f) {
  const GraphMark before = g.mark();
  try {
    f();
  } catch (...) {
    sets_.tables = 0;
    layouts_.last = kNone;
    g.revert(before);
    throw;
  }
}

void Trace::record(Graph& g, const NodeId* inputs, const uint32_t* indices) {
  or_revert(g, [&] { record_all(g, inputs, indices); });
}

bool Trace::record_after(Graph& g, Trace& before, const std::vector<uint32_t>& from, NodeId x) {
  next_inputs_.clear();
  for (const uint32_t index : from) next_inputs_.push_back(before.nodes_[index]);
  next_inputs_.push_back(x);
  return record_predicted(g, before, next_inputs_.data(), input_key(g, x), nullptr);
}

bool Trace::record_again(Graph& g, const NodeId* inputs, const std::vector<uint32_t>& others,
                         const uint32_t* indices) {
  // The layout follows from the last one and from one other input.
  if (others.size() < 2)
    return record_predicted(g, *this, inputs, others.empty() ? InputKey{} : input_key(g, inputs[others[0]]),
                            indices);
  if (!matches(g, inputs, indices)) return false;
  record(g, inputs, indices);
  return true;
}

// The layout follows from that of `before` and from the key of the one input that is not among its nodes.
bool Trace::record_predicted(Graph& g, Trace& before, const NodeId* inputs, const InputKey& key,
                             const uint32_t* indices) {
  const bool current = before.sets_.tables == g.tables() && before.layouts_.epoch == g.epoch();
  const uint32_t known = current ? before.layouts_.last : kNone;  // layout of `before`
  if (known != kNone) {
    const BucketLayout& p = before.layouts_.list[known];
    const bool same = p.next_generation == layouts_.generation && p.next != kNone && p.next_input == key;
    if (same && layouts_.list[p.next].signature_set != kNone) {
      if (!indices_fit(indices)) return false;
      set_indices(indices);
      layouts_.last = p.next;
      ++layouts_.used;
      std::copy(inputs, inputs + n_inputs(), nodes_.begin());
      or_revert(g, [&] { record_layout(g, this == &before); });
      return true;
    }
  }
  if (!matches(g, inputs, indices)) return false;
  record(g, inputs, indices);
  if (known == kNone || layouts_.last == kNone) return true;
  BucketLayout& p = before.layouts_.list[known];
  p.next_generation = layouts_.generation;
  p.next_input = key;
  p.next = layouts_.last;
  return true;
}

// Appends the nodes of the layout layouts_.last.
void Trace::record_layout(Graph& g, bool parameters_known) {
  const BucketLayout& p = layouts_.list[layouts_.last];
  if (parameters_known || find_parameters(g)) append_layout(g, p);
  else record_cached(g, p.signature_set);
}

void Trace::record_all(Graph& g, const NodeId* inputs, const uint32_t* indices) {
  set_indices(indices);
  std::copy(inputs, inputs + n_inputs(), nodes_.begin());
  layouts_.last = layout(g, inputs);
  ++layouts_.used;
  if (layouts_.last < layouts_.list.size() && layouts_.list[layouts_.last].signature_set != kNone)
    return record_layout(g, false);
  bool fresh;
  const uint32_t v = signature_set(g, inputs, &fresh);
  if (fresh) {
    NodeId* next = nodes_.data() + n_inputs();
    for (const TraceStep& s : steps_) *next++ = record_step(g, s);
    learn(g, v);
  } else {
    record_cached(g, v);
  }
  const bool again = layouts_.last < layouts_.list.size();
  if (!again) layouts_.list.resize(layouts_.last + 1, BucketLayout{});
  if (sets_.appendable[v] && (again || layouts_.learn_at_once)) learn_layout(g, layouts_.last, v);
}

void Trace::record_cached(Graph& g, uint32_t signature_set) {
  NodeId* next = nodes_.data() + n_inputs();
  const CachedSignature* known = sets_.cached.data() + signature_set * steps_.size();
  for (size_t i = 0; i < steps_.size(); ++i, ++next) {
    const TraceStep& s = steps_[i];
    const CachedSignature& k = known[i];
    if (s.kind == TraceStep::parameter || k.sig == kNone) {
      *next = record_step(g, s);
    } else if (s.kind == TraceStep::view) {
      *next = g.view_cached(k.sig, nodes_[words_[s.args]], words_[s.attrs], 0);
    } else {
      if (s.kind == TraceStep::lookup && !g.parameters.uses(storages_[s.storage].uid))
        g.parameters.use(storage(s));
      *next = g.record_cached(k, nodes_.data(), words_.data() + s.args, s.n_args, ids_of(s));
    }
  }
}

// Fills in the nodes of the parameters; false if one is not in the graph yet.
bool Trace::find_parameters(const Graph& g) {
  return std::all_of(bulk_.parameters.begin(), bulk_.parameters.end(), [&](const Parameter& p) {
    return (nodes_[p.index] = g.parameters.find(p.uid, p.role)) != kNone;
  });
}

void Trace::append_layout(Graph& g, const BucketLayout& layout) {
  const Node* nodes = layouts_.nodes.data() + layout.nodes;
  const CachedSignature* known = sets_.cached.data() + layout.signature_set * steps_.size();
  for (const uint32_t i : bulk_.lookups)
    if (!g.parameters.uses(storages_[steps_[i].storage].uid)) g.parameters.use(storage(steps_[i]));
  for (const Append& r : bulk_.appends) {
    g.append_nodes({nodes + r.first, bulk_.ops.data() + r.first, r.n, bulk_.args.data() + r.args, r.n_args},
                   nodes_.data());
    if (r.then == kNone) continue;
    const TraceStep& s = steps_[r.then];
    const bool view = s.kind == TraceStep::view;
    nodes_[n_inputs() + r.then] =
        view ? g.view_cached(known[r.then].sig, nodes_[words_[s.args]], words_[s.attrs], 0)
             : record_step(g, s);
  }
  for (const uint32_t i : bulk_.with_ids) g.fill_ids(nodes_[n_inputs() + i], ids_of(steps_[i]));
  g.count_appended(layouts_.counts.data() + layout.counts, layout.n_counts, layout.stats);
  for (const uint32_t index : bulk_.outside_reads) g.note_read(nodes_[index]);
}

// The nodes were just recorded and have no readers but each other.
void Trace::learn_layout(const Graph& g, uint32_t layout, uint32_t signature_set) {
  BucketLayout& p = layouts_.list[layout];
  p = {};
  p.signature_set = signature_set;
  p.nodes = static_cast<uint32_t>(layouts_.nodes.size());
  p.counts = static_cast<uint32_t>(layouts_.counts.size());
  for (const Append& r : bulk_.appends) {
    uint32_t args = 0;
    for (uint32_t i = r.first; i < r.first + r.n; ++i) {
      const uint32_t step = bulk_.ops[i] - n_inputs();
      Node n = g.node(nodes_[bulk_.ops[i]]);
      n.flags &= Node::requires_grad | Node::has_reader | Node::view;
      if (steps_[step].kind != TraceStep::view) n.aux = 0;
      n.args = std::exchange(args, args + steps_[step].n_args);
      layouts_.nodes.push_back(n);
      add_to_stats(&p, n, sets_.cached[signature_set * steps_.size() + step].size);
    }
  }
}

void Trace::add_to_stats(BucketLayout* p, const Node& n, uint32_t size) {
  p->stats.floats += size;
  if (n.flags & Node::view) return;
  ++p->stats.nodes;
  p->stats.unread += !(n.flags & Node::has_reader);
  p->stats.no_grad += !(n.flags & Node::requires_grad);
  const auto first = layouts_.counts.begin() + p->counts;
  const auto at =
      std::find_if(first, layouts_.counts.end(), [&](const auto& t) { return t.bucket == n.bucket; });
  if (at != layouts_.counts.end()) return at->stats.add(n.sig, size);
  layouts_.counts.push_back({n.bucket, {}});
  layouts_.counts.back().stats.add(n.sig, size);
  ++p->n_counts;
}

}  // namespace dyc
