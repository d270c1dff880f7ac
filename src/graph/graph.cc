#include "graph/graph.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "graph/segment_schedule.h"

namespace dyc {

namespace {

uint32_t next_tables() {
  static std::atomic<uint32_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

Graph::Graph()
    : values_arena("value", [this] { return largest_nodes(); }),
      grads_arena("gradient"),
      parameters(values_arena),
      tables_(next_tables()) {
  values_arena.limit(grads_arena.capacity());  // gradients have the offsets of their values
}

NodeId Graph::append(const Node& n, int64_t offset) {
  recorded_floats_ += signatures_.brief(n.sig).size;
  if (!(n.flags & (Node::leaf | Node::view))) {
    ++unread_;
    ++pending_;
    no_grad_ += !(n.flags & Node::requires_grad);
  }
  *nodes_.extend(1) = n;
  *offsets_.extend(1) = offset;  // may throw: then neither is longer
  nodes_.advance(1);
  offsets_.advance(1);
  return static_cast<NodeId>(nodes_.size() - 1);
}

void Graph::refuse_argument() {
  throw ValueError("expected expressions of this graph, got one of an earlier graph");
}

// Of one element, always: most are losses. A value that is computed from parameters is looked for among the
// values before, for which its number must be an attribute.
bool Graph::owns_number(OpId op, NodeId x, uint32_t number, bool numbered) {
  return dim(x).batch_size() == 1 || (!numbered && varying_numbers_.vary(op, nodes_[x].site, number));
}

// `numbered`: all arguments have value numbers. Only a node that has none, and is not empty, may be cached.
[[gnu::noinline]] Graph::NewNode Graph::record_new(OpId op, const NodeId* args, uint32_t n,
                                                   const uint32_t* attrs, uint32_t n_attrs, const Ids& ids,
                                                   bool numbered) {
  if (may_own_number(op) && owns_number(op, args[0], attrs[0], numbered))
    return {record(with_own_number(op), args, 1, nullptr, 0, {attrs, 1, false}), false};
  uint32_t local[64];
  uint32_t* key = local;
  const uint32_t key_size = 3 + n_attrs + 2 * n;
  if (key_size > 64) {
    scratch_.resize(key_size);
    key = scratch_.data();
  }
  key[0] = op;
  key[1] = n;
  key[2] = n_attrs;
  uint32_t* k = std::copy_n(attrs, n_attrs, key + 3);
  const WeightPositions weights(op);
  for (uint32_t i = 0; i < n; ++i) {
    const Node& a = nodes_[args[i]];
    *k++ = signatures_.brief(a.sig).dim * 2 + (a.flags & Node::requires_grad);
    *k++ = weights.has(i) ? a.value_number : 0;
  }
  const uint32_t sig = signatures_.of(op, key, key_size);
  const Sig& s = signatures_[sig];
  if (s.empty) [[unlikely]]
    return {record_empty(s, args), false};

  uint32_t value_number = 0;
  if (numbered) {
    scratch_.assign(1, sig);
    for (uint32_t i = 0; i < n; ++i) scratch_.push_back(nodes_[args[i]].value_number);
    scratch_.insert(scratch_.end(), ids.data, ids.data + ids.n);
    value_number = value_numbers_.number(scratch_.data(), static_cast<uint32_t>(scratch_.size()));
    const NodeId known = value_numbers_.node(value_number, size());
    if (known != size()) return {duplicate_of(known, sig, args, n), false};
  }

  Node node{};
  node.sig = sig;
  node.value_number = value_number;
  node.flags = s.requires_grad ? Node::requires_grad : 0;
  node.args = static_cast<uint32_t>(arg_pool_.size());
  node.n_args = n;
  arg_pool_.append(args, n);
  set_ids(&node, ids);
  node.site = site_of(sig, args, n);
  bucket_node(node, args, n);
  return {append(node, kPending), !numbered};
}

// A constant input. Traces do not capture it, as its value may differ in the next run.
NodeId Graph::filled(const Dim& dim, float value) {
  const NodeId id = input(dim, false);
  std::fill_n(values(id), dim.size(), value);
  return id;
}

// An op with arguments or a result without elements, as {0}. No kernel sees it: the value is known, and no
// gradient passes.
NodeId Graph::record_empty(const Sig& s, const NodeId* args) {
  if (s.size == 0) return filled(*s.y, 0.f);
  switch (s.op) {
    case op_id<MatMul>:
    case op_id<SumElems>:
    case op_id<SumDim>:
    case op_id<SquaredNorm>:
    case op_id<DotProduct>:
      return filled(*s.y, 0.f);
    case op_id<MomentDim>:  // the mean is one
      return filled(*s.y, std::numeric_limits<float>::quiet_NaN());
    case op_id<Affine>: {  // without the products that add nothing
      std::vector<NodeId> rest = {args[0]};
      for (uint32_t i = 1; i < s.n_args; i += 2)
        if (s.x[i]->size() != 0) rest.insert(rest.end(), {args[i], args[i + 1]});
      const NodeId sum = record(s.op, rest.data(), static_cast<uint32_t>(rest.size()));
      return dim(sum) == *s.y ? sum : binary(op_id<Add>, sum, filled(*s.y, 0.f));
    }
    default: {
      const ShapeArgs shape{op_info(s.op).meta->name, s.x.data(), s.n_args, nullptr, 0};
      shape_error(shape, "arguments with elements");
    }
  }
}

void Graph::set_id_list(Node* n, const Ids& ids) {
  n->flags |= Node::list;
  n->aux = static_cast<uint32_t>(id_pool_.size());
  id_pool_.push_back(ids.n);
  id_pool_.insert(id_pool_.end(), ids.data, ids.data + ids.n);
}

uint32_t Graph::site_of(uint32_t sig, const NodeId* args, uint32_t n) {
  Sig& s = signatures_.at(sig);
  if (s.owns_weight || n == 0) {
    if (s.plain_site == kNone) s.plain_site = sites_.plain(s.batch_key, n == 0);
    return s.plain_site;
  }
  uint32_t local[32];
  uint32_t* arg_sites = local;
  std::vector<uint32_t> many;
  if (n > 32) {
    many.resize(n);
    arg_sites = many.data();
  }
  for (uint32_t i = 0; i < n; ++i) arg_sites[i] = nodes_[args[i]].site;
  return sites_.refined(s.batch_key, arg_sites, n);
}

void Graph::bucket_node(Node& node, const NodeId* args, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) sites_.edge(nodes_[args[i]].site, node.site);
  join_bucket(node, signatures_.brief(node.sig).size, args, n);
}

void Graph::mark_read(NodeId id) {
  nodes_[id].flags |= Node::has_reader;
  const NodeId o = base_of(id);
  if (o != id) {
    if (nodes_[o].flags & Node::has_reader) return;
    nodes_[o].flags |= Node::has_reader;
  }
  --unread_;
}

void Graph::mark_allocated(bool all) {
  counted_ = counted_ && all;
  if (!all) return;
  unread_ = pending_ = 0;
  buckets_.clear_stats();
}

void Graph::rebucket() {
  sites_.derive_phases();
  regroup(nullptr);
}

void Graph::regroup(const SegmentSchedule* schedule) {
  ++epoch_;
  buckets_.clear();
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    Node& n = nodes_[id];
    if (n.flags & Node::view) {
      const Node& o = nodes_[arg_pool_[n.args]];
      n.round = o.round;
      n.bucket = o.bucket;
      n.site = o.site;
    } else if (!(n.flags & Node::leaf) && offsets_[id] == kPending) {
      const uint32_t first_round = schedule ? schedule->first_round(id) : 0;
      join_bucket(n, signatures_.brief(n.sig).size, args(id), n.n_args, first_round);
    }
  }
  contradicted_ = false;
}

// ---------------------------------------------------------------- leaves

NodeId Graph::input(const Dim& dim, bool writable) {
  InputSignature& known = input_signatures_[(dim.nd + dim.rows()) % std::size(input_signatures_)];
  if (known.tables != tables_ || !(known.dim == dim))
    known = {tables_, signatures_.leaf(op_id<Input>, nullptr, 0, dim, false), dim};
  Node n{};
  n.sig = known.sig;
  n.site = site_of(n.sig, nullptr, 0);
  n.bucket = kNone;
  n.flags = Node::leaf | (writable ? 0 : Node::constant);
  return append(n, values_arena.allocate(dim.size()));
}

NodeId Graph::constant(const Dim& dim, float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  const uint32_t sig = signatures_.leaf(op_id<Constant>, &word, 1, dim, false);
  const uint32_t value_number = value_numbers_.number_of_leaf(sig);
  const NodeId known = value_numbers_.find(value_number, size());
  if (known != size()) return duplicate_of(known, sig, nullptr, 0);
  Node n{};
  n.sig = sig;
  n.site = site_of(sig, nullptr, 0);
  n.bucket = kNone;
  n.value_number = value_number;
  n.flags = Node::leaf | Node::constant;
  const int64_t offset = values_arena.allocate(dim.size());
  value_numbers_.node(value_number, size());  // only after allocating, which may throw
  std::fill_n(values_arena.base() + offset, dim.size(), value);
  return append(n, offset);
}

NodeId Graph::draw(DrawKind kind, float a, float b, const Dim& dim) {
  uint32_t words[3] = {static_cast<uint32_t>(kind)};
  std::memcpy(words + 1, &a, 4);
  std::memcpy(words + 2, &b, 4);
  Node n{};
  n.sig = signatures_.leaf(op_id<Draw>, words, 3, dim, false);
  n.site = site_of(n.sig, nullptr, 0);
  n.bucket = kNone;
  n.flags = Node::leaf;
  n.aux = instances.current();
  const bool now = n.aux != Instances::kOutside;
  const NodeId id = append(n, now ? values_arena.allocate(dim.size()) : kPending);
  draws_.push_back(id);
  if (now) fill_draw(id);
  return id;
}

void Graph::fill_draw(NodeId id) {
  const Sig& s = sig(id);
  float a, b;
  std::memcpy(&a, &s.attrs[1], 4);
  std::memcpy(&b, &s.attrs[2], 4);
  float* out = values(id);
  Random& r = instances.random(nodes_[id].aux);
  switch (static_cast<DrawKind>(s.attrs[0])) {
    case DrawKind::normal:
      return r.normal(out, s.size, a, b);
    case DrawKind::uniform:
      return r.uniform(out, s.size, a, b);
    case DrawKind::bernoulli:
      return r.bernoulli(out, s.size, a, b);
    case DrawKind::gumbel:
      return r.gumbel(out, s.size);
  }
}

NodeId Graph::parameter(const std::shared_ptr<Storage>& storage, uint32_t role) {
  parameters.use(storage);
  NodeId& cached = parameters.node(storage->uid, role);
  if (cached != kNone) return cached;
  ParameterTable::KnownSignature& known = parameters.parameter_signature(storage->uid, role);
  if (known.tables != tables_) known = signature_of(*storage, role);
  Node n{};
  n.sig = known.sig;
  n.site = site_of(n.sig, nullptr, 0);
  n.bucket = kNone;
  n.value_number = known.value_number;
  n.flags = Node::leaf | Node::constant | (role == kUpdated ? Node::requires_grad : 0);
  n.aux = parameters.size();
  cached = append(n, kParameter);
  parameters.add(storage, cached);
  return cached;
}

ParameterTable::KnownSignature Graph::signature_of(const Storage& storage, uint32_t role) {
  const uint32_t attrs[2] = {storage.uid, role};
  Dim dim = storage.dim;
  if (storage.is_lookup()) {  // the whole table: lookup axis last
    if (dim.nd == kMaxDims) throw ValueError(text("expected a table of at most 6 row dimensions, got ", dim));
    dim.d[dim.nd++] = storage.rows;
  }
  const uint32_t sig = signatures_.leaf(op_id<ParameterNode>, attrs, 2, dim, role == kUpdated);
  return {tables_, sig, value_numbers_.number_of_leaf(sig)};
}

[[gnu::noinline]] NodeId Graph::lookup_new(const Storage& storage, const Ids& ids, bool update) {
  Dim dim = storage.dim;
  dim.bd = ids.list ? ids.n : 1;
  if (storage.row_size() == 0) [[unlikely]] {
    const NodeId id = filled(dim, 0.f);
    set_ids(&nodes_[id], ids);
    return id;
  }
  Node n{};
  const uint32_t attrs[3] = {storage.uid, update, ids.list ? ids.n : 0};
  n.sig = signatures_.leaf(op_id<Lookup>, attrs, 3, dim, update);
  n.flags = update ? Node::requires_grad : 0;
  set_ids(&n, ids);
  n.site = site_of(n.sig, nullptr, 0);
  bucket_node(n, nullptr, 0);
  if (!ids.list)
    parameters.row_lookup(storage.uid, update) = {tables_,
                                                  {n.sig, n.site, signatures_.brief(n.sig).size, update}};
  return append(n, kPending);
}

// ---------------------------------------------------------------- views

// The arguments of such a view: the node whose value it has, then those it was recorded with.
NodeId Graph::duplicate_of(NodeId canonical, uint32_t sig, const NodeId* args, uint32_t n_args) {
  nodes_[canonical].flags |= Node::merged;
  Node n = nodes_[canonical];
  n.sig = sig;
  n.args = static_cast<uint32_t>(arg_pool_.size());
  n.aux = 0;
  n.flags = (n.flags & (Node::requires_grad | Node::leaf | Node::constant)) | Node::view | Node::merged;
  n.n_args = 1;
  arg_pool_.push_back(canonical);
  arg_pool_.append(args, n_args);
  return append(n, offsets_[canonical] >= 0 ? offsets_[canonical] : kPending);
}

NodeId Graph::view(OpId op, NodeId x, const Dim& dim, uint32_t offset) {
  const Node& source = nodes_[x];
  const bool requires_grad = source.flags & Node::requires_grad;
  const uint32_t attrs[3] = {signatures_[source.sig].dim, offset, requires_grad};
  const uint32_t sig = signatures_.leaf(op, attrs, 3, dim, requires_grad);
  uint32_t value_number = 0;
  if (source.value_number) {
    const uint32_t words[2] = {sig, source.value_number};
    value_number = value_numbers_.number(words, 2);
  }
  return view_cached(sig, x, offset, value_number);
}

NodeId Graph::view_cached(uint32_t sig, NodeId x, uint32_t offset, uint32_t value_number) {
  Node n = nodes_[x];
  n.sig = sig;
  n.flags = Node::view | (n.flags & (Node::leaf | Node::requires_grad));
  n.aux = offset;
  n.args = static_cast<uint32_t>(arg_pool_.size());
  n.n_args = 1;
  n.value_number = value_number;
  const int64_t at = offset_of(x);
  arg_pool_.push_back(x);
  return append(n, at >= 0 ? at + offset : kPending);
}

Graph::Ids Graph::ids(NodeId id) const {
  const Node& n = nodes_[id];
  if (n.flags & Node::list) return {id_pool_.data() + n.aux + 1, id_pool_[n.aux], true};
  return {&n.aux, 1, false};
}

uint32_t* Graph::mutable_ids(NodeId id) {
  Node& n = nodes_[id];
  return n.flags & Node::list ? id_pool_.data() + n.aux + 1 : &n.aux;
}

// ---------------------------------------------------------------- messages

std::string Graph::largest_nodes() const {
  constexpr size_t kShown = 5;
  std::vector<NodeId> ids;  // those with memory of their own
  for (NodeId id = 0; id < size(); ++id)
    if (!(nodes_[id].flags & Node::view) && !is_parameter(id)) ids.push_back(id);
  const size_t shown = std::min(kShown, ids.size());
  const auto larger = [this](NodeId a, NodeId b) {
    return sig(a).size != sig(b).size ? sig(a).size > sig(b).size : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(shown), ids.end(), larger);
  std::string out = text("; the graph has ", size(), " nodes");
  if (size() > tuning::kAdviceFrom)
    out += " (renew_cg() before each example or minibatch gives their memory back)";
  for (size_t i = 0; i < shown; ++i) {
    const Sig& s = sig(ids[i]);
    out += text(i ? ", " : ", the largest: ", op_info(s.op).meta->name, " ", *s.y, " ",
                bytes_text(s.size * 4.0), " (node ", ids[i], ")");
  }
  return out;
}

// ---------------------------------------------------------------- life

void Graph::own_numbers(std::optional<bool> always) {
  varying_numbers_.always = always;
  forget_layouts();
}

void Graph::forget_layouts() {
  tables_ = next_tables();
  record_cache_.clear();
}

bool Graph::renew() {
  note_renewal();
  drop_nodes();
  if (value_numbers_.renew()) forget_layouts();
  instances.clear();
  draws_.clear();
  buckets_.clear();
  recorded_floats_ = 0;
  ++epoch_;
  contradicted_ = false;
  counted_ = true;
  unread_ = pending_ = no_grad_ = 0;
  if (varying_numbers_.renew()) forget_layouts();
  if (signatures_.size() <= most_signatures_) {
    graphs_kept_++;
    return false;
  }
  // A program whose own signatures are that many would learn them again and again: let it keep more.
  if (graphs_kept_ < tuning::kGraphsKept) most_signatures_ *= 2;
  graphs_kept_ = 0;
  forget_layouts();
  signatures_ = Signatures();
  sites_ = Sites();
  value_numbers_ = ValueNumbers();
  varying_numbers_.clear();
  return true;
}

void Graph::lend_nodes(Graph& other) {
  nodes_.swap(other.nodes_);
  offsets_.swap(other.offsets_);
  arg_pool_.swap(other.arg_pool_);
  id_pool_.swap(other.id_pool_);
  parameters.swap(other.parameters);
  values_arena.swap_memory(other.values_arena);
  grads_arena.swap_memory(other.grads_arena);
  other.signatures_.refer_to(signatures_);
}

void Graph::drop_nodes() {
  parameters.renew();
  nodes_.truncate(0);
  offsets_.truncate(0);
  arg_pool_.truncate(0);
  id_pool_.clear();
  values_arena.reset();
  grads_arena.reset();
}

GraphMark Graph::mark() const {
  return {size(),
          static_cast<uint32_t>(arg_pool_.size()),
          static_cast<uint32_t>(id_pool_.size()),
          parameters.size(),
          values_arena.top(),
          values_arena.far(),
          draws_.size()};
}

void Graph::revert(const GraphMark& m) {
  parameters.revert(m.parameters, m.nodes, m.values);
  for (const ParameterUse& p : parameters.all())
    if (offsets_[p.node] >= m.values) offsets_[p.node] = kParameter;
  nodes_.truncate(m.nodes);
  offsets_.truncate(m.nodes);
  note_revert(m.nodes);
  counted_ = false;
  for (NodeId id = 0; id < m.nodes; ++id)
    if (nodes_[id].flags & Node::view && offsets_[base_of(id)] < 0) offsets_[id] = kPending;
  arg_pool_.truncate(m.args);
  id_pool_.resize(m.ids);
  draws_.resize(std::min(m.draws, draws_.size()));
  value_numbers_.revert(m.nodes);
  values_arena.reset(m.values, m.far_values);
}

}  // namespace dyc
