// What all builders share: the tree of steps, and the life of dropout masks.
#include "model/builders.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/instance.h"
#include "model/tuning.h"

namespace dyc {

namespace {

uint32_t next_number() {
  static std::atomic<uint32_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

RnnBuilder::RnnBuilder(const CellShape& shape, const BuilderSize& size,
                       const std::shared_ptr<Collection>& outer)
    : number(next_number()), shape_(shape), size_(size), cells_(shape.cells) {
  if (size.layers && size.hidden == 0)
    throw ValueError(text(shape.name, "(): expected hidden_dim >= 1, got 0"));
  per_graph_ = graphs_.emplace_back(std::make_unique<PerGraph>()).get();
  per_instance_ = &per_graph_->outside;
  if (outer) collection_ = outer->add_subcollection(shape.collection);
  else if (size.layers)
    throw TypeError(text(shape.name, "(): expected a ParameterCollection for model, got None"));
}

std::vector<StoragePtr> RnnBuilder::layer_parameters(uint32_t layer) const {
  const auto first = storages_.begin() + static_cast<std::ptrdiff_t>(layer * shape_.per_layer);
  return {first, first + shape_.visible};
}

std::vector<NodeId> RnnBuilder::layer_expressions(Engine& engine, uint32_t layer) {
  if (!started(engine))
    throw ValueError(
        "get_parameter_expressions(): expected initial_state() of this builder before, in the current graph");
  const std::vector<NodeId> nodes = listed(engine.graph, layer);
  for (const NodeId node : nodes) engine.recorded(node);
  return nodes;
}

std::vector<NodeId> RnnBuilder::listed(Graph& g, uint32_t layer) {
  std::vector<NodeId> nodes;
  for (uint32_t i = 0; i < shape_.visible; ++i) nodes.push_back(p(g, layer, i));
  return nodes;
}

void RnnBuilder::start(Engine& engine, bool update) {
  if (started(engine)) return;
  const uint32_t version = engine.version();
  if (per_graph_->version != version) {
    per_graph_->version = version;
    per_graph_->steps.clear();
    std::erase_if(per_graph_->parts, [this](const auto& p) { return &p.second != per_instance_; });
  }
  *per_instance_ = {.version = version, .started = true, .update = update};
}

// Rare: the builder was last used by another thread, or another instance of batch_map.
void RnnBuilder::find_graph(Engine& engine) {
  const uint32_t number = engine.graph.number;
  if (per_graph_->graph != number) {
    const auto found =
        std::find_if(graphs_.begin(), graphs_.end(), [number](const auto& r) { return r->graph == number; });
    if (found != graphs_.end()) {
      per_graph_ = found->get();
    } else {
      auto fresh = std::make_unique<PerGraph>();
      fresh->graph = number;
      fresh->life = engine.graph.life();
      per_graph_ = fresh.get();
      graphs_.push_back(std::move(fresh));
      std::erase_if(graphs_, [this](const auto& r) { return r.get() != per_graph_ && r->life.expired(); });
    }
  }
  find_instance(engine);
}

RnnBuilder::PerInstance* RnnBuilder::known_instance(uint32_t instance) {
  if (instance == Instances::kOutside) return &per_graph_->outside;
  const auto found = per_graph_->parts.find(instance);
  return found == per_graph_->parts.end() ? nullptr : &found->second;
}

// An instance goes on with what there was before it.
void RnnBuilder::find_instance(const Engine& engine) {
  const Instances& instances = engine.graph.instances;
  uint32_t number = per_graph_->instance = instances.current();
  per_instance_ = known_instance(number);
  if (per_instance_) return;
  per_instance_ = &per_graph_->parts[number];
  while (number != Instances::kOutside) {
    number = instances.parent(number);
    const PerInstance* outer = known_instance(number);
    if (!outer || !outer->started || outer->version != engine.version()) continue;
    *per_instance_ = *outer;
    per_instance_->steps.clear();
    return;
  }
}

// ---------------------------------------------------------------- steps

NodeId* RnnBuilder::append(const Graph& g, Step* step) {
  *step = steps();
  per_graph_->steps.resize(per_graph_->steps.size() + width(), kNone);
  if (cells_) {
    if (per_instance_->version != per_graph_->version) *per_instance_ = {.version = per_graph_->version};
    per_instance_->steps.push_back({*step, g.generation()});
  }
  if (StepLog* log = StepLog::of(g)) log->made_.push_back({this, per_graph_, per_instance_});
  return per_graph_->steps.data() + static_cast<size_t>(*step) * width();
}

void RnnBuilder::remove_last(PerGraph* graph, PerInstance* instance) const {
  graph->steps.resize(graph->steps.size() - width());
  if (cells_) instance->steps.pop_back();
}

void RnnBuilder::StepLog::take_back() {
  for (; !made_.empty(); made_.pop_back())
    made_.back().builder->remove_last(made_.back().graph, made_.back().instance);
}

void RnnBuilder::check_input(const Graph& g, NodeId x) const {
  if (size_.layers == 0)
    throw ValueError(
        text("add_input(): expected a builder of at least 1 layer, got a ", shape_.name, " of 0 layers"));
  const Dim& dim = g.dim(x);
  if (dim.rows() != size_.input || dim.nd > 2)
    throw ValueError(text("add_input(): expected x of {", size_.input, "}, got ", dim));
}

// fill(nodes) records the nodes of the step after the others.
template <class F>
RnnBuilder::Step RnnBuilder::make_step(Engine& engine, F fill) {
  Step step;
  NodeId* next = append(engine.graph, &step);
  const uint32_t before = engine.graph.size();
  try {
    fill(next);
    engine.timing.builder_nodes += engine.graph.size() - before;
    engine.recorded(next[state_size()]);
  } catch (...) {
    remove_last(per_graph_, per_instance_);
    if (StepLog* log = StepLog::of(engine.graph)) log->made_.pop_back();
    throw;
  }
  return step;
}

RnnBuilder::Step RnnBuilder::add_input(Engine& engine, Step from, NodeId x) {
  select(engine);
  check_input(engine.graph, x);
  return make_step(engine, [&](NodeId* next) { record_step(engine, from, x, next); });
}

RnnBuilder::Step RnnBuilder::add_inputs(Engine& engine, Step from, const std::vector<NodeId>& xs) {
  select(engine);
  const Step first = steps();
  uint64_t last = 0;  // number of the trace that recorded the step before; 0: none did
  for (const NodeId x : xs) {
    select(engine);  // a step may have been computed, and other threads have run meanwhile
    check_input(engine.graph, x);
    from = make_step(engine, [&](NodeId* next) {
      const uint64_t before = engine.attentive() ? 0 : last;
      last = record_next(engine, before, x, next);
      if (last) return;
      last = record_step(engine, from, x, next);
      if (last && before) link(find_trace(before), *find_trace(last));
    });
  }
  return first;
}

// Returns the number of the trace it was recorded by, or 0.
uint64_t RnnBuilder::record_step(Engine& engine, Step from, NodeId x, NodeId* next) {
  Graph& g = engine.graph;
  if (drops() && !masks_exist(g)) draw_masks(g, g.dim(x).bd);
  read_step(engine, from, x);
  const NodeId begin = g.size();
  if (record_again(engine, from, next)) return traces_[0].trace->number;
  record(g, from == kStart ? nullptr : nodes(from), x, next);
  learn_step(engine, from, begin, next);
  return 0;
}

// ---- steps recorded again

void RnnBuilder::read_step(Engine& engine, Step from, NodeId x) {
  read_.clear();
  reads(engine, from, &read_);
  read_.push_back(x);
  first_equals(read_, &equals_);
  inputs_.clear();
  for (uint32_t i = 0; i < read_.size(); ++i)
    if (equals_[i] == i) inputs_.push_back(read_[i]);
}

bool RnnBuilder::record_again(Engine& engine, Step from, NodeId* next) {
  Graph& g = engine.graph;
  const uint32_t now = settings(engine);
  const auto found = std::find_if(traces_.begin(), traces_.end(), [&](const CellTrace& p) {
    return p.start == (from == kStart) && p.settings == now && p.equals == equals_ &&
           p.trace->matches(g, inputs_.data(), nullptr);
  });
  if (found == traces_.end()) return false;
  std::rotate(traces_.begin(), found, found + 1);
  CellTrace& p = traces_.front();
  p.trace->record(g, inputs_.data(), nullptr);
  p.copy_nodes(next);
  return true;
}

RnnBuilder::CellTrace* RnnBuilder::find_trace(uint64_t number) {
  for (CellTrace& s : traces_)
    if (s.trace->number == number) return &s;
  return nullptr;
}

// The step right after the one that trace `last` has recorded; returns the number of its trace, or 0
// where nothing was recorded.
uint64_t RnnBuilder::record_next(Engine& engine, uint64_t last, NodeId x, NodeId* next) {
  const CellTrace* const before = last ? find_trace(last) : nullptr;
  CellTrace* const p = before && before->next ? find_trace(before->next) : nullptr;
  if (!p || !p->trace->record_after(engine.graph, *before->trace, before->chain, x)) return 0;
  p->copy_nodes(next);
  const uint64_t number = p->trace->number;
  if (p - traces_.data() > 1) std::rotate(traces_.data(), p, p + 1);  // it was used: others go first
  return number;
}

namespace {

// Which of the inputs, each of them once, is the one read at `place`.
uint32_t input_of(const std::vector<uint32_t>& equals, uint32_t place) {
  uint32_t input = 0;
  for (uint32_t i = 0; i < place; ++i) input += equals[i] == i;
  return input;
}

}  // namespace

// `next` is what the step after `p` was recorded by. They are linked where all but x that it reads is what p
// recorded, or the masks.
void RnnBuilder::link(CellTrace* p, const CellTrace& next) const {
  p->next = 0;
  p->chain.clear();
  if (next.start || next.settings != p->settings || next.equals.back() + 1 != next.equals.size()) return;
  for (uint32_t i = 0; i + 1 < next.equals.size(); ++i) {
    if (i < width()) {
      // A node that p returns from its own inputs may be the next x.
      if (p->places[i] < p->trace->n_inputs() || first_equal(p->places, i) != next.equals[i]) return;
      if (next.equals[i] == i) p->chain.push_back(p->places[i]);
    } else {
      const uint32_t mask = p->start ? i - width() : i;  // where p reads it
      if (next.equals[i] != i || p->equals[mask] != mask) return;
      p->chain.push_back(input_of(p->equals, mask));
    }
  }
  p->next = next.trace->number;
}

void RnnBuilder::learn_step(Engine& engine, Step from, NodeId begin, const NodeId* next) {
  CellTrace p{
      from == kStart, settings(engine), equals_, Trace::capture(engine.graph, begin, inputs_, {}), {}};
  if (!p.trace) return;
  for (uint32_t i = 0; i < width(); ++i) {
    p.places.push_back(p.trace->index_of(next[i]));
    if (p.places.back() == kNone) return;
  }
  if (traces_.size() == tuning::kCellTraces) traces_.pop_back();
  traces_.insert(traces_.begin(), std::move(p));
}

bool RnnBuilder::reads(Engine& engine, Step from, std::vector<NodeId>* out) {
  if (!started(engine) || from >= steps() || size_.layers == 0) return false;
  if (from != kStart) out->insert(out->end(), nodes(from), nodes(from) + width());
  if (!drops()) return true;
  if (!masks_exist(engine.graph)) return false;
  out->insert(out->end(), per_instance_->masks.begin(), per_instance_->masks.end());
  return true;
}

RnnBuilder::Step RnnBuilder::add_step(Engine& engine, const NodeId* nodes) {
  select(engine);
  Step step;
  std::copy(nodes, nodes + width(), append(engine.graph, &step));
  return step;
}

bool RnnBuilder::keeps(const Graph& g, Step step, uint32_t generation) const {
  if (step == kStart || generation < g.version()) return generation >= g.version();
  const NodeId* const all = nodes(step);
  return std::all_of(all, all + width(), [&](NodeId id) { return g.keeps(id, generation); });
}

// The most recent step, of this instance or before it, whose nodes are still there: a revert takes nodes
// back, and others may have their numbers.
const NodeId* RnnBuilder::latest(const Graph& g) {
  for (uint32_t number = per_graph_->instance;; number = g.instances.parent(number)) {
    const PerInstance* part = known_instance(number);
    if (part && part->version == per_graph_->version)
      for (size_t i = part->steps.size(); i-- > 0;) {
        const PerInstance::Made& made = part->steps[i];
        if (keeps(g, made.step, made.generation)) return nodes(made.step);
      }
    if (number == Instances::kOutside) return nullptr;
  }
}

RnnBuilder::Step RnnBuilder::set_h(Engine& engine, const std::vector<NodeId>& es) {
  if (es.size() != size_.layers || es.empty())
    throw ValueError(
        text("set_h(): expected one Expression per layer (", size_.layers, "), got ", es.size()));
  record_set(engine, nullptr, es.data());
  return steps() - 1;
}

RnnBuilder::Step RnnBuilder::set_s(Engine& engine, const std::vector<NodeId>& es) {
  const size_t n = size_.layers;
  if (es.empty() || (es.size() != n && !(cells_ && es.size() == 2 * n)))
    throw ValueError(text("set_s(): expected one Expression per layer (", n, ")",
                          cells_ ? text(", the cells, or two, the cells and then h (", 2 * n, ")") : "",
                          ", got ", es.size()));
  if (!cells_) record_set(engine, nullptr, es.data());
  else record_set(engine, es.data(), es.size() == n ? nullptr : es.data() + n);
  return steps() - 1;
}

// null: as in the latest step, zeros if there is none.
void RnnBuilder::record_set(Engine& engine, const NodeId* cells, const NodeId* h) {
  select(engine);
  const uint32_t n = size_.layers;
  Graph& g = engine.graph;
  const NodeId* last = latest(g);
  const size_t at = last ? static_cast<size_t>(last - per_graph_->steps.data()) : 0;
  const auto missing = [&](uint32_t i) {
    if (last) return per_graph_->steps[at + i];
    const NodeId zeros = g.constant(Dim({size_.hidden}), 0.f);
    engine.recorded(zeros);
    return zeros;
  };
  Step step;
  NodeId* next = append(g, &step);
  if (cells_)
    for (uint32_t i = 0; i < n; ++i) next[i] = cells ? cells[i] : missing(i);
  const uint32_t first = cells_ ? n : 0;
  for (uint32_t i = 0; i < n; ++i) next[first + i] = h ? h[i] : missing(first + i);
  next[state_size()] = next[first + n - 1];
}

// ---------------------------------------------------------------- dropout

void RnnBuilder::check_rate(const char* call, float rate) const {
  if (!(rate >= 0.f && rate <= 1.f))
    throw ValueError(text(call, "(): expected a probability, 0 <= rate <= 1, got ", rate));
}

void RnnBuilder::change(const char* call, uint32_t rate, float to) {
  if (rates_[rate] == to) return;
  differs_ = true;
  if (trying_) return;
  refuse_inside_instance(call, "set it before batch_map()");
  if (known_settings_.size() == tuning::kSettings) known_settings_.clear();
  if (known_settings_.empty()) known_settings_.push_back({rates_, settings_});
  rates_[rate] = to;
  const auto known = std::find_if(known_settings_.begin(), known_settings_.end(),
                                  [this](const NumberedRates& s) { return s.rates == rates_; });
  if (known != known_settings_.end()) {
    settings_ = known->number;
    return;
  }
  settings_ = ++last_settings_;
  known_settings_.push_back({rates_, settings_});
}

void RnnBuilder::set_dropout(float rate) {
  check_rate("set_dropout", rate);
  for (uint32_t kind = 0; kind < shape_.masks; ++kind) change("set_dropout()", kind, rate);
}

void RnnBuilder::set_dropouts(float rate, float rate_h) {
  check_rate("set_dropouts", rate);
  check_rate("set_dropouts", rate_h);
  change("set_dropouts()", 0, rate);
  change("set_dropouts()", 1, rate_h);
}

void RnnBuilder::set_dropout_masks(Engine& engine, uint32_t batch) {
  if (!started(engine))
    throw ValueError(
        "set_dropout_masks(): expected initial_state() of this builder before, in the current graph");
  if (batch == 0) throw ValueError("set_dropout_masks(): expected a batch size of at least 1, got 0");
  per_instance_->masks.clear();
  if (drops()) draw_masks(engine.graph, batch);
}

bool RnnBuilder::masks_exist(const Graph& g) const {
  if (per_instance_->masks.empty()) return false;
  for (const NodeId id : per_instance_->masks)  // after a revert other nodes may have their numbers
    if (!g.keeps(id, per_instance_->masks_generation)) return false;
  return true;
}

void RnnBuilder::draw_masks(Graph& g, uint32_t batch) {
  per_instance_->masks.clear();
  per_instance_->masks_generation = g.generation();
  for (uint32_t layer = 0; layer < size_.layers; ++layer)
    for (uint32_t kind = 0; kind < shape_.masks; ++kind) {
      const float keep = 1.f - rates_[kind];
      const Dim dim({kind == 0 ? input_size(layer) : size_.hidden}, batch);
      per_instance_->masks.push_back(g.draw(DrawKind::bernoulli, keep, 1.f / keep, dim));
    }
}

// ---------------------------------------------------------------- nodes

NodeId RnnBuilder::with_number(Graph& g, OpId op, NodeId x, float number) {
  uint32_t word;
  std::memcpy(&word, &number, 4);
  return g.record(op, &x, 1, &word, 1, Graph::Ids{});
}

NodeId RnnBuilder::expanded(Graph& g, NodeId x, const Dim& dim) {
  if (g.dim(x).bd == dim.bd && g.dim(x).same_sizes_padded(dim)) return x;
  return g.binary(op_id<Add>, x, g.constant(dim, 0.f));
}

}  // namespace dyc
