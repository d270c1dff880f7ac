// How a trace is recorded: step by step the first time, then with the layout that was learned of it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "graph/trace.h"
#include "graph/tuning.h"

namespace dyc {

// ---------------------------------------------------------------- what is recorded on

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

Trace::InputKey Trace::input_key(Graph& g, NodeId input) {
  const uint32_t bucket = g.pending_bucket(input);
  const Node& n = g.node(input);
  return {n.sig << 2 | uint32_t{bucket != kNone} << 1 | (n.flags & Node::requires_grad), n.site,
          n.value_number, bucket};
}

// Interns all that decides the signatures and sites of the steps, and their buckets but for those of the
// inputs. `fresh`: it was not known yet. kNone: it is not learned.
uint32_t Trace::layout(Graph& g, const NodeId* inputs, bool* fresh) {
  const size_t most =
      std::clamp(tuning::kLayoutSteps / (steps_.size() + 1), tuning::kFewLayouts, tuning::kMostLayouts);
  if (layouts_.tables != g.tables() || layouts_.list.size() >= most) {
    layouts_ = Layouts();
    layouts_.tables = g.tables();
    placements_ = Placements();
  }
  key_.resize(1 + 3 * n_inputs());
  buckets_.resize(n_inputs());
  uint32_t* k = key_.data();
  *k++ = g.share_equal_values;
  for (uint32_t i = 0; i < n_inputs(); ++i) {
    const InputKey key = input_key(g, inputs[i]);
    *k++ = key.kind;
    *k++ = key.site;
    *k++ = key.value_number;
    buckets_[i] = key.bucket;
  }
  uint64_t hash;
  const auto n = static_cast<uint32_t>(key_.size());
  const uint32_t known = layouts_.keys.find(key_.data(), n, &hash);
  *fresh = known == kNone;
  if (!*fresh || (is_full() && !layouts_.list.empty())) return known;
  layouts_.list.push_back({});
  return layouts_.keys.add(key_.data(), n, hash);
}

// Sets placements_.last: for the layout and these inputs, whose buckets are in buckets_.
void Trace::place(Graph& g, const NodeId* inputs, uint32_t layout) {
  Placements& p = placements_;
  if (p.epoch != g.epoch()) {
    p.epoch = g.epoch();
    p.last = kNone;
    p.generation = next_number();
    p.keys.clear();
    p.list.clear();
    p.places.clear();
  }
  const auto fits = [&](const Placement& last) {
    const Graph::JoinedBucket* places = p.places.data() + last.places;
    for (uint32_t i = 0; i < n_inputs(); ++i)
      if (places[i].bucket != buckets_[i]) return false;
    return last.layout == layout;
  };
  if (p.last != kNone && fits(p.list[p.last])) return;
  key_.assign(1, layout);
  key_.insert(key_.end(), buckets_.begin(), buckets_.end());
  bool fresh;
  p.last = p.keys.intern(key_.data(), static_cast<uint32_t>(key_.size()), &fresh);
  if (!fresh) return;
  const Layout& l = layouts_.list[layout];
  const size_t first = p.places.size(), room = p.places.capacity();
  p.list.push_back({layout, static_cast<uint32_t>(first), 0, {}, kNone});
  p.places.resize(first + n_inputs() + l.n_joins);
  Graph::JoinedBucket* places = p.places.data() + first;
  for (uint32_t i = 0; i < n_inputs(); ++i) {
    const Node& n = g.node(inputs[i]);
    places[i] = {n.site, n.round, buckets_[i]};
  }
  g.join_buckets(layouts_.joins.data() + l.joins, l.n_joins, layouts_.sources.data() + l.sources, places,
                 n_inputs());
  if (p.places.capacity() != room) count_bytes();
}

// ---------------------------------------------------------------- step by step

std::shared_ptr<Storage> Trace::storage(uint32_t number) const {
  std::shared_ptr<Storage> s = storages_[number].storage.lock();
  if (!s) throw RuntimeError("a parameter of the trace is gone");
  return s;
}

NodeId Trace::record_step(Graph& g, const TraceStep& s) {
  const uint32_t* attrs = words_.data() + s.attrs;
  switch (s.kind) {
    case TraceStep::lookup:
      return g.lookup(storage(s.storage), ids_of(s), attrs[1]);
    case TraceStep::parameter: {
      const uint32_t uid = storages_[s.storage].uid;
      if (!g.parameters.uses(uid)) g.parameters.use(storage(s.storage));
      const NodeId known = g.parameters.node(uid, attrs[0]);
      return known != kNone ? known : g.parameter(g.parameters.shared_storage(uid), attrs[0]);
    }
    case TraceStep::constant: {
      float value;
      std::memcpy(&value, attrs, 4);
      return g.constant(dims_[s.dim], value);
    }
    case TraceStep::draw: {
      float a, b;
      std::memcpy(&a, attrs + 1, 4);
      std::memcpy(&b, attrs + 2, 4);
      return g.draw(static_cast<DrawKind>(attrs[0]), a, b, dims_[s.dim]);
    }
    case TraceStep::view:
      return g.view(s.code, nodes_[words_[s.args]], dims_[s.dim], attrs[0]);
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
  const bool number = may_own_number(s.code);
  return g.record(s.code, args, s.n_args, attrs, s.n_attrs, number ? Graph::Ids{} : ids_of(s));
}

// f() records everything or, if it throws, nothing: there may be no memory for what a step draws.
template <class F>
void Trace::or_revert(Graph& g, F f) {
  const GraphMark before = g.mark();
  try {
    f();
  } catch (...) {
    layouts_.tables = 0;
    placements_ = Placements();
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
  // The placement follows from the last one and from one other input.
  if (others.size() < 2)
    return record_predicted(g, *this, inputs, others.empty() ? InputKey{} : input_key(g, inputs[others[0]]),
                            indices);
  if (!matches(g, inputs, indices)) return false;
  record(g, inputs, indices);
  return true;
}

// The placement follows from that of `before` and from the key of the one input that is not among its nodes.
bool Trace::record_predicted(Graph& g, Trace& before, const NodeId* inputs, const InputKey& key,
                             const uint32_t* indices) {
  const bool current = before.layouts_.tables == g.tables() && before.placements_.epoch == g.epoch();
  const uint32_t known = current ? before.placements_.last : kNone;  // placement of `before`
  const uint64_t generation = before.placements_.generation;
  if (known != kNone) {
    const Placement& p = before.placements_.list[known];
    if (p.next_generation == placements_.generation && p.next != kNone && p.next_input == key) {
      if (!indices_fit(indices)) return false;
      set_indices(indices);
      placements_.last = p.next;
      std::copy(inputs, inputs + n_inputs(), nodes_.begin());
      or_revert(g, [&] { append_placed(g, this == &before); });
      return true;
    }
  }
  if (!matches(g, inputs, indices)) return false;
  record(g, inputs, indices);
  if (known == kNone || placements_.last == kNone || before.placements_.generation != generation) return true;
  Placement& p = before.placements_.list[known];
  p.next_generation = placements_.generation;
  p.next_input = key;
  p.next = placements_.last;
  return true;
}

void Trace::record_all(Graph& g, const NodeId* inputs, const uint32_t* indices) {
  set_indices(indices);
  std::copy(inputs, inputs + n_inputs(), nodes_.begin());
  bool fresh;
  const uint32_t known = layout(g, inputs, &fresh);
  if (known != kNone && layouts_.list[known].learned) {
    place(g, inputs, known);
    return append_placed(g, false);
  }
  placements_.last = kNone;
  if (!fresh) {
    record_cached(g, known);
    if (layouts_.list[known].appendable) learn_nodes(g, known);
  } else {
    NodeId* next = nodes_.data() + n_inputs();
    for (const TraceStep& s : steps_) *next++ = record_step(g, s);
    if (known != kNone) learn(g, known);
  }
  count_bytes();
}

void Trace::record_cached(Graph& g, uint32_t layout) {
  NodeId* next = nodes_.data() + n_inputs();
  const CachedSignature* known = layouts_.cached.data() + layout * steps_.size();
  for (size_t i = 0; i < steps_.size(); ++i, ++next) {
    const TraceStep& s = steps_[i];
    const CachedSignature& k = known[i];
    if (s.kind == TraceStep::parameter || k.sig == kNone) {
      *next = record_step(g, s);
    } else if (s.kind == TraceStep::view) {
      *next = g.view_cached(k.sig, nodes_[words_[s.args]], words_[s.attrs], 0);
    } else {
      if (s.kind == TraceStep::lookup && !g.parameters.uses(storages_[s.storage].uid))
        g.parameters.use(storage(s.storage));
      *next = g.record_cached(k, nodes_.data(), words_.data() + s.args, s.n_args, ids_of(s));
    }
  }
}

// ---------------------------------------------------------------- in bulk

// Fills in the nodes of the parameters; false if one is not in the graph yet.
bool Trace::find_parameters(const Graph& g) {
  return std::all_of(bulk_.parameters.begin(), bulk_.parameters.end(), [&](const Parameter& p) {
    return (nodes_[p.index] = g.parameters.find(p.uid, p.role)) != kNone;
  });
}

// Appends the nodes of the placement placements_.last.
void Trace::append_placed(Graph& g, bool parameters_known) {
  const Placement& placement = placements_.list[placements_.last];
  const Layout& layout = layouts_.list[placement.layout];
  const Graph::JoinedBucket* places = placements_.places.data() + placement.places;
  const Node* nodes = layouts_.nodes.data() + layout.nodes;
  const CachedSignature* known = layouts_.cached.data() + placement.layout * steps_.size();
  for (const uint32_t table : bulk_.tables)
    if (!g.parameters.uses(storages_[table].uid)) g.parameters.use(storage(table));
  parameters_known = parameters_known || find_parameters(g);
  for (const Append& r : parameters_known ? bulk_.appends : bulk_.fresh) {
    if (r.n)
      g.append_nodes({nodes + r.first, bulk_.ops.data() + r.first, r.n, bulk_.args.data() + r.args, r.n_args,
                      r.args, places},
                     nodes_.data());
    if (r.then == kNone) continue;
    const TraceStep& s = steps_[r.then];
    NodeId* to = &nodes_[n_inputs() + r.then];
    if (s.kind == TraceStep::view)
      *to = g.view_cached(known[r.then].sig, nodes_[words_[s.args]], words_[s.attrs], 0);
    else *to = record_step(g, s);
  }
  for (const IndexedNode& i : bulk_.indexed)
    g.fill_ids(nodes_[i.index], {words_.data() + i.ids, i.n_ids, i.list});
  g.count_appended(layouts_.counts.data() + layout.counts, layout.n_counts, places, layout.stats);
  for (const uint32_t index : bulk_.outside_reads) g.note_read(nodes_[index]);
}

// ---------------------------------------------------------------- learning

bool Trace::is_leaf(const TraceStep& s) {
  return s.kind == TraceStep::parameter || s.kind == TraceStep::draw || s.kind == TraceStep::constant;
}

// The nodes were just recorded in full.
void Trace::learn(const Graph& g, uint32_t layout) {
  layouts_.cached.resize((size_t{layout} + 1) * steps_.size());
  bool& appendable = layouts_.list[layout].appendable = true;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const NodeId id = nodes_[n_inputs() + i];
    const Node& n = g.node(id);
    const bool op = steps_[i].kind == TraceStep::op && !(n.flags & Node::view) && n.value_number == 0;
    const bool plain = op || steps_[i].kind == TraceStep::lookup ||
                       (steps_[i].kind == TraceStep::view && n.value_number == 0);
    layouts_.cached[layout * steps_.size() + i] = {plain ? n.sig : kNone, n.site, g.sig(id).size,
                                                   n.flags & Node::requires_grad};
    appendable = appendable && (plain || is_leaf(steps_[i]));
  }
}

// The nodes were just recorded.
void Trace::learn_nodes(const Graph& g, uint32_t layout) {
  Layout& p = layouts_.list[layout];
  p.nodes = static_cast<uint32_t>(layouts_.nodes.size());
  p.joins = static_cast<uint32_t>(layouts_.joins.size());
  p.sources = static_cast<uint32_t>(layouts_.sources.size());
  p.counts = static_cast<uint32_t>(layouts_.counts.size());
  Learning l;
  l.place_of.assign(n_nodes(), kNone);
  for (uint32_t i = 0; i < n_nodes(); ++i) {  // leaves have no place
    if (i < n_inputs()) {
      if (is_pending(i)) l.place_of[i] = i;
      continue;
    }
    const TraceStep& s = steps_[i - n_inputs()];
    if (s.kind == TraceStep::view) l.place_of[i] = l.place_of[words_[s.args]];
    else if (is_appended(i)) l.place_of[i] = learn_place(i, g.node(nodes_[i]).site, layout, &l);
  }
  l.count_of.assign(n_inputs() + p.n_joins, kNone);
  uint32_t args = 0;
  for (const uint32_t index : bulk_.ops) {
    const uint32_t step = index - n_inputs();
    Node n = g.node(nodes_[index]);
    n.flags &= Node::requires_grad | Node::view;
    if (bulk_.read[index]) n.flags |= Node::has_reader;
    if (steps_[step].kind != TraceStep::view) n.aux = 0;
    n.args = std::exchange(args, args + steps_[step].n_args);
    n.bucket = l.place_of[index];
    layouts_.nodes.push_back(n);
    add_to_stats(&p, n, layouts_.cached[layout * steps_.size() + step].size, &l);
  }
  p.learned = true;
}

// The place of a node of this site: nodes that read the same places share one.
uint32_t Trace::learn_place(uint32_t index, uint32_t site, uint32_t layout, Learning* l) {
  Layout& p = layouts_.list[layout];
  const TraceStep& s = steps_[index - n_inputs()];
  std::vector<uint32_t>& sources = layouts_.sources;
  const auto first = static_cast<ptrdiff_t>(sources.size());
  l->last_reader.resize(n_inputs() + p.n_joins, kNone);
  for (uint32_t i = 0; i < s.n_args; ++i) {
    const uint32_t from = l->place_of[words_[s.args + i]];
    if (from != kNone && std::exchange(l->last_reader[from], index) != index) sources.push_back(from);
  }
  l->key.assign(1, site);
  l->key.insert(l->key.end(), sources.begin() + first, sources.end());
  std::sort(l->key.begin() + 1, l->key.end());
  const auto n = static_cast<uint32_t>(l->key.size());
  bool fresh;
  const uint32_t place = l->joins.intern(l->key.data(), n, &fresh);
  if (fresh) {
    layouts_.joins.push_back({site, n - 1});
    ++p.n_joins;
  } else {
    sources.resize(static_cast<size_t>(first));
  }
  return n_inputs() + place;
}

void Trace::add_to_stats(Layout* p, const Node& n, uint32_t size, Learning* l) {
  p->stats.floats += size;
  if (n.flags & Node::view) return;
  ++p->stats.nodes;
  p->stats.unread += !(n.flags & Node::has_reader);
  p->stats.no_grad += !(n.flags & Node::requires_grad);
  uint32_t& count = l->count_of[n.bucket];
  if (count == kNone) {
    count = p->n_counts++;
    layouts_.counts.push_back({n.bucket, {}});
  }
  layouts_.counts[p->counts + count].stats.add(n.sig, size);
}

}  // namespace dyc
