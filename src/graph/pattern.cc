#include "graph/pattern.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dyc {

uint32_t first_equal(const std::vector<NodeId>& nodes, size_t place) {
  uint32_t first = 0;  // there are few
  while (nodes[first] != nodes[place]) ++first;
  return first;
}

void first_equals(const std::vector<NodeId>& nodes, std::vector<uint32_t>* places) {
  places->clear();
  for (size_t i = 0; i < nodes.size(); ++i) places->push_back(first_equal(nodes, i));
}

uint64_t Pattern::next_number() {
  static uint64_t last = 0;
  return ++last;
}

// ---------------------------------------------------------------- taking

std::unique_ptr<Pattern> Pattern::take(Graph& g, NodeId begin, const std::vector<NodeId>& inputs,
                                       const std::vector<Hole>& holes) {
  auto p = std::make_unique<Pattern>();
  for (NodeId input : inputs) {
    // The script may mean the parameter where the pattern would see its input.
    if (g.is_parameter(input)) return nullptr;
    if (std::find(p->taken_.begin(), p->taken_.end(), input) != p->taken_.end()) return nullptr;
    p->taken_.push_back(input);
    p->input_dims_.push_back(g.dim(input));
  }
  for (NodeId id = begin; id < g.size(); ++id)
    if (!p->add(g, id)) return nullptr;
  if (!p->fill_holes(holes)) return nullptr;
  p->nodes_.resize(p->taken_.size());
  p->find_reads();
  p->plan_runs();
  return p;
}

void Pattern::find_reads() {
  for (uint32_t i = 0; i < n_inputs() + steps_.size(); ++i) {
    const bool apart = i < n_inputs() || (steps_[i - n_inputs()].kind == Step::view && !in_run(i));
    const auto reads = [&](const Step& s) {
      const auto args = words_.begin() + s.args;
      return s.kind == Step::op && std::find(args, args + s.n_args, i) != args + s.n_args;
    };
    if (apart && std::any_of(steps_.begin(), steps_.end(), reads)) read_.push_back(i);
  }
}

// Is the place one of an op or a lookup of the pattern, or of a view of one?
bool Pattern::in_run(uint32_t place) const {
  if (place < n_inputs()) return false;
  const Step& s = steps_[place - n_inputs()];
  if (s.kind == Step::view) return in_run(words_[s.args]);
  return s.kind == Step::op || s.kind == Step::lookup;
}

void Pattern::plan_runs() {
  Run run{0, 0, 0, 0, kNone};
  const auto end = [&](uint32_t then) {
    run.then = then;
    if (run.n || then != kNone) runs_.push_back(run);
    run = {static_cast<uint32_t>(ops_.size()), 0, static_cast<uint32_t>(run_args_.size()), 0, kNone};
  };
  for (uint32_t i = 0; i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    if (s.kind == Step::parameter) {
      parameters_.push_back({n_inputs() + i, storages_[s.storage].uid, words_[s.attrs]});
    } else if (in_run(n_inputs() + i)) {
      if (s.kind == Step::lookup) lookups_.push_back(i);
      if (s.n_ids || s.list) with_ids_.push_back(i);
      ops_.push_back(n_inputs() + i);
      run_args_.insert(run_args_.end(), words_.begin() + s.args, words_.begin() + s.args + s.n_args);
      ++run.n;
      run.n_args += s.n_args;
    } else {
      end(i);
    }
  }
  end(kNone);
}

void Pattern::add_step(NodeId id, Step step) {
  steps_.push_back(step);
  taken_.push_back(id);
}

uint32_t Pattern::place_of(NodeId id) const {
  const auto at = std::find(taken_.begin(), taken_.end(), id);
  return at == taken_.end() ? kNone : static_cast<uint32_t>(at - taken_.begin());
}

void Pattern::add_parameter(Graph& g, NodeId id) {
  Step step;
  step.kind = Step::parameter;
  step.attrs = static_cast<uint32_t>(words_.size());
  step.n_attrs = 1;
  words_.push_back(g.sig(id).attr(1));  // its role
  storages_.push_back({g.sig(id).attr(0), g.shared_storage(g.sig(id).attr(0))});
  step.storage = static_cast<uint32_t>(storages_.size() - 1);
  add_step(id, step);
}

void Pattern::add_constant(Graph& g, NodeId id) {
  Step step;
  step.kind = Step::constant;
  step.dim = g.dim(id);
  step.attrs = static_cast<uint32_t>(words_.size());
  step.n_attrs = 1;
  words_.push_back(g.sig(id).attr(0));  // its value
  add_step(id, step);
}

namespace {

bool known_to_all_graphs(const Graph& g, NodeId id) {
  return g.is_parameter(id) || g.sig(id).op == op_id<Constant>;
}

bool takes_ids(const OpInfo& info) {
  return std::any_of(info.params, info.params + info.n_params,
                     [](const Param& p) { return p.kind == Param::index || p.kind == Param::indices; });
}

}  // namespace

// Puts the place of the node, which the pattern knows or which is the same in every graph, into `places`.
bool Pattern::add_reference(Graph& g, NodeId id, std::vector<uint32_t>* places) {
  uint32_t place = place_of(id);
  if (place == kNone) {  // recorded before the pattern begins
    if (!known_to_all_graphs(g, id)) return false;
    if (g.is_parameter(id)) add_parameter(g, id);
    else add_constant(g, id);
    place = static_cast<uint32_t>(taken_.size() - 1);
  }
  places->push_back(place);
  return true;
}

void Pattern::add_ids(const Graph& g, NodeId id, Step* step) {
  const Graph::Ids ids = g.ids(id);
  step->list = ids.list;
  step->ids = static_cast<uint32_t>(words_.size());
  step->n_ids = ids.n;
  words_.insert(words_.end(), ids.data, ids.data + ids.n);
}

bool Pattern::add(Graph& g, NodeId id) {
  if (known_to_all_graphs(g, id)) return true;  // where it is first used: it may have been there before
  const Node& n = g.node(id);
  const Sig& s = g.sig(id);
  const OpKind kind = op_info(s.op).meta->kind;
  Step step;
  step.row = s.op;
  std::vector<uint32_t> places;
  if (kind == OpKind::draw) {
    step.kind = Step::draw;
  } else if (kind == OpKind::lookup) {
    step.kind = Step::lookup;
    storages_.push_back({s.attr(0), g.shared_storage(s.attr(0))});
    step.storage = static_cast<uint32_t>(storages_.size() - 1);
    step.limit = storage(step)->rows;
    add_ids(g, id, &step);
  } else if (kind == OpKind::view) {
    step.kind = Step::view;
    if (!add_reference(g, g.args(id)[0], &places)) return false;
  } else if (kind == OpKind::input) {
    return false;
  } else {
    const bool alias = n.flags & Node::alias;  // its arguments follow the node it is equal to
    for (uint32_t i = 0; i < s.n_args; ++i)
      if (!add_reference(g, g.args(id)[i + alias], &places)) return false;
    if (!alias && takes_ids(op_info(s.op))) add_ids(g, id, &step);
    if (s.op == op_id<Pick>) step.limit = g.dim(g.args(id)[alias])[s.attr(0)];
    if (alias && takes_ids(op_info(s.op))) return false;
  }
  step.dim = *s.y;
  step.args = static_cast<uint32_t>(words_.size());
  step.n_args = static_cast<uint32_t>(places.size());
  words_.insert(words_.end(), places.begin(), places.end());
  // Of a view the rest of the attributes follows from its argument.
  const auto attrs = step.kind == Step::view ? s.attrs.begin() + 1 : s.attrs.begin();
  const auto attrs_end = step.kind == Step::view ? attrs + 1 : s.attrs.end();
  step.attrs = static_cast<uint32_t>(words_.size());
  step.n_attrs = static_cast<uint32_t>(attrs_end - attrs);
  words_.insert(words_.end(), attrs, attrs_end);
  add_step(id, step);
  return true;
}

bool Pattern::fill_holes(const std::vector<Hole>& holes) {
  for (uint32_t h = 0; h < holes.size(); ++h) {
    uint32_t uses = 0;
    for (const Step& s : steps_)
      for (uint32_t i = 0; i < s.n_ids; ++i)
        if (words_[s.ids + i] == holes[h].value) {
          filled_.push_back({s.ids + i, h, s.limit});
          ++uses;
        }
    if (uses != holes[h].uses) return false;
  }
  return true;
}

void Pattern::fix(uint32_t hole, uint32_t value) {
  for (const Filled& f : filled_)
    if (f.hole == hole) words_[f.at] = value;
  std::erase_if(filled_, [hole](const Filled& f) { return f.hole == hole; });
  for (Filled& f : filled_) f.hole -= f.hole > hole;
}

std::string Pattern::difference(const Pattern& other) const {
  if (filled_ != other.filled_) return "other indices";
  if (storages_ != other.storages_) return "other parameters";
  if (steps_.size() != other.steps_.size()) return text(steps_.size(), " steps, not ", other.steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i)
    if (!(steps_[i] == other.steps_[i]))
      return text("step ", i, ": ", op_info(steps_[i].row).meta->name, " ", steps_[i].dim, ", not ",
                  op_info(other.steps_[i].row).meta->name, " ", other.steps_[i].dim);
  std::vector<uint32_t> mine = words_, theirs = other.words_;
  for (const Filled& f : filled_) mine[f.at] = theirs[f.at] = 0;
  const auto differs = std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end());
  if (differs.first == mine.end()) return {};
  return text("other arguments, at word ", differs.first - mine.begin());
}

// ---------------------------------------------------------------- recording

bool Pattern::fits(const Graph& g, const NodeId* inputs, const uint32_t* holes) {
  const bool numbered = numbers_of_ == g.tables();
  for (uint32_t i = 0; i < n_inputs(); ++i)
    if (numbered ? g.dim_number(inputs[i]) != dim_numbers_[i] : !(g.dim(inputs[i]) == input_dims_[i]))
      return false;
  if (!numbered) {
    numbers_of_ = g.tables();
    dim_numbers_.clear();
    for (uint32_t i = 0; i < n_inputs(); ++i) dim_numbers_.push_back(g.dim_number(inputs[i]));
  }
  return holes_fit(holes);
}

bool Pattern::holes_fit(const uint32_t* holes) const {
  return std::all_of(filled_.begin(), filled_.end(),
                     [holes](const Filled& f) { return holes[f.hole] < f.limit; });
}

void Pattern::fill(const uint32_t* holes) {
  for (const Filled& f : filled_) words_[f.at] = holes[f.hole];
}

// Number of the combination of what decides the signatures and sites of the steps.
uint32_t Pattern::variant(const Graph& g, const NodeId* inputs, bool* fresh) {
  if (tables_ != g.tables()) {
    tables_ = g.tables();
    variants_ = InternTable();
    known_.clear();
  }
  key_.assign(1, g.share_equal_values);
  for (uint32_t i = 0; i < n_inputs(); ++i) {
    const Node& n = g.node(inputs[i]);
    key_.push_back(n.sig);
    key_.push_back(n.site);
    key_.push_back(n.inv * 2 + (n.flags & Node::needs));
  }
  return variants_.intern(key_.data(), static_cast<uint32_t>(key_.size()), fresh);
}

// A bucket has one site, and few nodes are the same for every instance: few words, as this is what a short
// pattern costs most.
Pattern::InputKey Pattern::input_key(Graph& g, NodeId input) {
  const uint32_t bucket = g.pending_bucket(input);
  const Node& n = g.node(input);
  const bool pending = bucket != kNone;
  return {{n.sig << 3 | uint32_t{n.inv != 0} << 2 | uint32_t{pending} << 1 | (n.flags & Node::needs),
           pending ? bucket : n.site, n.inv},
          n.inv ? 3u : 2u};
}

// The same with the buckets of the inputs.
uint32_t Pattern::placement(Graph& g, const NodeId* inputs) {
  if (tables_ != g.tables() || epoch_ != g.epoch()) {
    epoch_ = g.epoch();
    often_ = 2 * placements_used_ > 3 * placed_.size();
    placements_used_ = 0;
    placements_.clear();
    placed_.clear();
    placed_nodes_.clear();
    tallies_.clear();
    generation_ = next_number();
  }
  key_.resize(1 + 3 * n_inputs());
  uint32_t* k = key_.data();
  *k++ = g.share_equal_values;
  for (uint32_t i = 0; i < n_inputs(); ++i) {
    const InputKey key = input_key(g, inputs[i]);
    k = std::copy_n(key.words, key.n, k);
  }
  return placements_.intern(key_.data(), static_cast<uint32_t>(k - key_.data()));
}

std::shared_ptr<Storage> Pattern::storage(const Step& step) const {
  std::shared_ptr<Storage> s = storages_[step.storage].storage.lock();
  if (!s) throw RuntimeError("a parameter of the pattern is gone");
  return s;
}

NodeId Pattern::record_step(Graph& g, const Step& s) {
  const uint32_t* attrs = words_.data() + s.attrs;
  switch (s.kind) {
    case Step::lookup:
      return g.lookup(storage(s), ids_of(s), attrs[1]);
    case Step::parameter: {
      const NodeId known = g.known_parameter(storages_[s.storage].uid, attrs[0]);
      return known != kNone ? known : g.parameter(storage(s), attrs[0]);
    }
    case Step::constant: {
      float value;
      std::memcpy(&value, attrs, 4);
      return g.constant(s.dim, value);
    }
    case Step::draw: {
      float a, b;
      std::memcpy(&a, attrs + 1, 4);
      std::memcpy(&b, attrs + 2, 4);
      return g.draw(static_cast<DrawKind>(attrs[0]), a, b, s.dim);
    }
    case Step::view:
      return g.view(s.row, nodes_[words_[s.args]], s.dim, attrs[0]);
    case Step::op:
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
  return g.record(s.row, args, s.n_args, attrs, s.n_attrs, ids_of(s));
}

void Pattern::learn(const Graph& g, uint32_t variant) {
  known_.resize((size_t{variant} + 1) * steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const NodeId id = nodes_[n_inputs() + i];
    const Node& n = g.node(id);
    const bool op = steps_[i].kind == Step::op && !(n.flags & Node::alias) && n.inv == 0;
    const bool plain = op || steps_[i].kind == Step::lookup || (steps_[i].kind == Step::view && n.inv == 0);
    known_[variant * steps_.size() + i] = {plain ? n.sig : kNone, n.site, g.sig(id).size,
                                           n.flags & Node::needs};
  }
}

// f() records, all or nothing: where there is no memory for what a step draws, half of the nodes would not be
// counted, and a variant not be learned.
template <class F>
void Pattern::undoing(Graph& g, F f) {
  const Graph::Mark before = g.mark();
  try {
    f();
  } catch (...) {
    tables_ = 0;
    last_ = kNone;
    g.revert(before);
    throw;
  }
}

void Pattern::record(Graph& g, const NodeId* inputs, const uint32_t* holes) {
  undoing(g, [&] { record_all(g, inputs, holes); });
}

bool Pattern::record_after(Graph& g, Pattern& before, const std::vector<uint32_t>& from, NodeId x) {
  next_inputs_.clear();
  for (const uint32_t place : from) next_inputs_.push_back(before.nodes_[place]);
  next_inputs_.push_back(x);
  return follow(g, before, next_inputs_.data(), input_key(g, x), nullptr);
}

bool Pattern::record_again(Graph& g, const NodeId* inputs, const std::vector<uint32_t>& others,
                           const uint32_t* holes) {
  // Where it comes to lie follows from where it lay before, and from one other input.
  if (others.size() < 2)
    return follow(g, *this, inputs, others.empty() ? InputKey{} : input_key(g, inputs[others[0]]), holes);
  if (!fits(g, inputs, holes)) return false;
  record(g, inputs, holes);
  return true;
}

// Where `before` came to lie and the key tell where this comes to lie.
bool Pattern::follow(Graph& g, Pattern& before, const NodeId* inputs, const InputKey& key,
                     const uint32_t* holes) {
  const bool current = before.tables_ == g.tables() && before.epoch_ == g.epoch();
  const uint32_t known = current ? before.last_ : kNone;  // placement of `before`
  if (known != kNone) {
    const Placement& p = before.placed_[known];
    const bool same = p.next_generation == generation_ && p.next != kNone && p.next_input == key;
    if (same && placed_[p.next].variant != kNone) {
      if (!holes_fit(holes)) return false;
      fill(holes);
      last_ = p.next;
      ++placements_used_;
      std::copy(inputs, inputs + n_inputs(), nodes_.begin());
      undoing(g, [&] { record_found(g, this == &before); });
      return true;
    }
  }
  if (!fits(g, inputs, holes)) return false;
  record(g, inputs, holes);
  if (known == kNone || last_ == kNone) return true;
  Placement& p = before.placed_[known];
  p.next_generation = generation_;
  p.next_input = key;
  p.next = last_;
  return true;
}

// The placement last_, which is known.
void Pattern::record_found(Graph& g, bool parameters_known) {
  const Placement& p = placed_[last_];
  if (parameters_known || find_parameters(g)) record_placed(g, p);
  else record_known(g, p.variant);
}

void Pattern::record_all(Graph& g, const NodeId* inputs, const uint32_t* holes) {
  fill(holes);
  std::copy(inputs, inputs + n_inputs(), nodes_.begin());
  last_ = placeable_ ? placement(g, inputs) : kNone;
  ++placements_used_;
  if (last_ < placed_.size() && placed_[last_].variant != kNone) return record_found(g, false);
  bool fresh;
  const uint32_t v = variant(g, inputs, &fresh);
  if (fresh) {
    NodeId* next = nodes_.data() + n_inputs();
    for (const Step& s : steps_) *next++ = record_step(g, s);
    learn(g, v);
  } else {
    record_known(g, v);
  }
  if (last_ == kNone) return;
  const bool again = last_ < placed_.size();
  if (!again) placed_.resize(last_ + 1, Placement{});
  if (again || often_) learn_placement(g, last_, v);
  if (!placeable_) last_ = kNone;
}

void Pattern::record_known(Graph& g, uint32_t variant) {
  NodeId* next = nodes_.data() + n_inputs();
  const Graph::Known* known = known_.data() + variant * steps_.size();
  for (size_t i = 0; i < steps_.size(); ++i, ++next) {
    const Step& s = steps_[i];
    const Graph::Known& k = known[i];
    if (s.kind == Step::parameter || k.sig == kNone) {
      *next = record_step(g, s);
    } else if (s.kind == Step::view) {
      *next = g.view_known(k.sig, nodes_[words_[s.args]], words_[s.attrs], 0);
    } else {
      if (s.kind == Step::lookup && !g.uses_storage(storages_[s.storage].uid)) g.use_storage(storage(s));
      *next = g.record_known(k, nodes_.data(), words_.data() + s.args, s.n_args, ids_of(s));
    }
  }
}

// Nodes of the parameters in the graph; false where one is not in it yet.
bool Pattern::find_parameters(const Graph& g) {
  return std::all_of(parameters_.begin(), parameters_.end(), [&](const Parameter& p) {
    return (nodes_[p.place] = g.known_parameter(p.uid, p.role)) != kNone;
  });
}

void Pattern::record_placed(Graph& g, const Placement& placement) {
  const Node* nodes = placed_nodes_.data() + placement.nodes;
  const Graph::Known* known = known_.data() + placement.variant * steps_.size();
  for (const uint32_t i : lookups_)
    if (!g.uses_storage(storages_[steps_[i].storage].uid)) g.use_storage(storage(steps_[i]));
  for (const Run& r : runs_) {
    g.record_run({nodes + r.first, ops_.data() + r.first, r.n, run_args_.data() + r.args, r.n_args},
                 nodes_.data());
    if (r.then == kNone) continue;
    const Step& s = steps_[r.then];
    const bool view = s.kind == Step::view;
    nodes_[n_inputs() + r.then] =
        view ? g.view_known(known[r.then].sig, nodes_[words_[s.args]], words_[s.attrs], 0)
             : record_step(g, s);
  }
  for (const uint32_t i : with_ids_) g.fill_ids(nodes_[n_inputs() + i], ids_of(steps_[i]));
  g.count_run(tallies_.data() + placement.tallies, placement.n_tallies, placement.sums);
  for (const uint32_t place : read_) g.note_read(nodes_[place]);
}

// The nodes were just recorded, nothing but the pattern reads them.
void Pattern::learn_placement(const Graph& g, uint32_t placement, uint32_t variant) {
  Placement& p = placed_[placement];
  p = {};
  p.variant = variant;
  p.nodes = static_cast<uint32_t>(placed_nodes_.size());
  p.tallies = static_cast<uint32_t>(tallies_.size());
  for (const Run& r : runs_) {
    uint32_t args = 0;
    for (uint32_t i = r.first; i < r.first + r.n; ++i) {
      const uint32_t step = ops_[i] - n_inputs();
      Node n = g.node(nodes_[ops_[i]]);
      n.flags &= Node::needs | Node::used | Node::alias;
      if (steps_[step].kind != Step::view) n.aux = 0;
      n.args = std::exchange(args, args + steps_[step].n_args);
      placed_nodes_.push_back(n);
      add_to_sums(&p, n, known_[variant * steps_.size() + step].size);
    }
  }
  const Graph::Known* known = known_.data() + variant * steps_.size();
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step::Kind kind = steps_[i].kind;
    const bool leaf = kind == Step::parameter || kind == Step::draw || kind == Step::constant;
    if (!leaf && known[i].sig == kNone) placeable_ = false;
  }
}

void Pattern::add_to_sums(Placement* p, const Node& n, uint32_t size) {
  p->sums.floats += size;
  if (n.flags & Node::alias) return;
  ++p->sums.nodes;
  p->sums.unread += !(n.flags & Node::used);
  p->sums.idle += !(n.flags & Node::needs);
  const auto first = tallies_.begin() + p->tallies;
  const auto at = std::find_if(first, tallies_.end(), [&](const auto& t) { return t.bucket == n.bucket; });
  if (at != tallies_.end()) return at->tally.add(n.sig, size);
  tallies_.push_back({n.bucket, {}});
  tallies_.back().tally.add(n.sig, size);
  ++p->n_tallies;
}

}  // namespace dyc
