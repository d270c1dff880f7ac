#include "exec/engine.h"
#include "exec/backward_task.h"
#include "exec/tuning.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

namespace dyc {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Engine::Engine() : executor_(make_executor(graph, planner.plan)), executor(*executor_) {
  planner.pair_losses = executor.pairs_losses();
}

void Engine::renew(const Options& o) {
  executor.refuse_reentry();
  executor.run_kept();
  options = o;
  timing.recorded_nodes += graph.size();
  update_attention();
  const bool forgotten = graph.renew();
  if (forgotten) planner.forget_orders();
  if (trace_) trace_->renewed(graph.renewals(), 0, forgotten);
  planner.forget();
  executor.cut_back(0);
  flushes.clear();
  valid_ = 0;
  drawn_ = 0;
  redraws_ = 0;
  checked_ = 0;
  stale_ = false;
  backward_root_ = kNone;
  unshared_.reset();
  checkpoints_.clear();
  if (!functions_.empty()) functions_.clear();  // its time is that of the table's capacity
}

// ---------------------------------------------------------------- values

const float* Engine::value(NodeId id) {
  const NodeId base = need(id);
  if (graph.is_parameter(base))
    return executor.parameter_values(graph.parameter_use(base)) + (base == id ? 0 : graph.node(id).aux);
  const uint32_t launch = planner.launch_of(base);
  if (launch != kNone) executor.fetch_values(launch, graph.offset_of(id), graph.sig(id).size);
  else executor.fetch_input(graph.offset_of(id));
  return graph.values_arena.base() + graph.offset_of(id);
}

namespace {

// The first NaN, else the first of the largest.
uint32_t first_largest(const float* v, uint32_t n) {
  using tuning::kArgmaxRun;
  uint32_t best = 0;
  for (uint32_t i = 0, end; i < n && !std::isnan(v[best]); i = end) {
    end = std::min(i + kArgmaxRun, n);
    const float most = v[best];
    int more = 0;
    if (end - i == kArgmaxRun)
      for (uint32_t k = 0; k < kArgmaxRun; ++k) more |= !(v[i + k] <= most);
    else more = 1;
    if (!more) continue;
    for (uint32_t k = i; k < end && !std::isnan(v[best]); ++k)
      if (!(v[k] <= v[best])) best = k;
  }
  return best;
}

}  // namespace

uint32_t Engine::argmax(NodeId id) {
  const NodeId base = need(id);
  const uint32_t launch = planner.launch_of(base), size = graph.sig(id).size;
  if (launch != kNone && graph.offset_of(id) == graph.offset_of(base) && size == graph.sig(base).size) {
    const uint32_t found = executor.argmax(launch, graph.offset_of(id));
    if (found != kNone) return found;
  }
  return first_largest(value(id), size);
}

// Computes it if needed. Returns the node that has its memory.
NodeId Engine::need(NodeId id) {
  const NodeId base = graph.base_of(id);
  if (stale_) draw_until(id);
  if (graph.is_parameter(base)) {
    graph.parameters.pin(graph.parameter_use(base));  // those of now
    return base;
  }
  if (graph.offset_of(id) < 0) compute_read(id);
  const uint32_t launch = planner.launch_of(base);
  if (launch != kNone && launch >= valid_) redo(launch + 1, now());
  return base;
}

void Engine::forward(NodeId id) {
  // In one plan, not what `id` needs and then the rest.
  if (graph.offset_of(id) == kPending) demand({&id, 1}, true);
  need(id);
  demand({&id, 1}, true);
}

void Engine::compute(std::vector<NodeId> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (ids.empty()) return;
  draw_until(ids.back());
  const auto is_pending = [this](NodeId id) { return graph.offset_of(id) == kPending; };
  std::vector<NodeId> pending;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(pending), is_pending);
  if (!pending.empty()) demand(pending, false);
  for (const NodeId id : ids) need(id);
}

void Engine::invalidate() {
  if (valid_ == 0 && stale_) return;
  forget_values();
  stale_ = true;
  drawn_ = 0;
  redraws_ = graph.draws().size();
  graph.parameters.unpin();
}

void Engine::redo(uint32_t launches, double start) {
  const ProfileTrace::Scope scope(valid_ < launches ? trace_.get() : nullptr, ProfileSpan::forward,
                                  "forward");
  if (executor.profiling > 1 && valid_ < launches) std::puts("Forward Call");
  executor.forward(valid_, launches);
  if (executor.profiling > 1) std::fflush(stdout);
  timing.forward += now() - start;
}

// Reads ahead; errors of nodes that were not asked for are left to the read that asks for them.
void Engine::compute_read(NodeId id) {
  if (options.batching && options.scheduler == Scheduler::bucket && !options.immediate) {
    draw_until(id);  // reading ahead must not change the order of draws
    const auto& draws = graph.draws();
    const NodeId end = drawn_ < draws.size() ? draws[drawn_] : static_cast<NodeId>(graph.size());
    const std::span<const NodeId> ids = ahead_.nodes(graph, id, planner.first_pending(), end);
    try {
      return demand(ids, false);
    } catch (const Error&) {
      if (ids.size() == 1) throw;
    }
  }
  demand({&id, 1}, false);
}

// `ids` ascend.
void Engine::demand(std::span<const NodeId> ids, bool everything) {
  draw_until(ids.back());
  if (valid_ < planner.plan.launches.size()) redo(static_cast<uint32_t>(planner.plan.launches.size()), now());
  const Scheduler scheduler = options.batching ? options.scheduler : Scheduler::none;
  const double start = now();
  if (scheduler == Scheduler::bucket && graph.wants_rebucket()) graph.rebucket();
  const PlanMark mark = planner.plan.mark();
  try {
    {
      ProfileTrace::Scope scope(trace_.get(), ProfileSpan::plan, "plan");
      planner.plan_roots(ids, scheduler, everything);
      scope.nodes(planner.plan.nodes.size() - mark.nodes);
    }
    if (planner.plan.launches.size() > mark.launches)
      flushes.push_back({static_cast<uint32_t>(mark.launches), site});
    const double planned = now();
    timing.plan += planned - start;
    timing.flushes += planner.plan.launches.size() > mark.launches;
    timing.planned_nodes += planner.plan.nodes.size() - mark.nodes;
    redo(static_cast<uint32_t>(planner.plan.launches.size()), planned);
  } catch (...) {
    undo(mark);
    throw;
  }
}

// Takes back launches that could not run, so that the graph is as before.
void Engine::undo(const PlanMark& mark) {
  std::vector<uint32_t>& launch_of = planner.plan.launch_of;
  for (NodeId id = 0; id < launch_of.size(); ++id) {
    if (launch_of[id] == kNone || launch_of[id] < mark.launches) continue;
    graph.set_offset(id, graph.is_parameter(id) ? kParameter : kPending);
    launch_of[id] = kNone;
  }
  planner.plan.revert(mark);
  executor.cut_back(static_cast<uint32_t>(mark.launches));
  while (!flushes.empty() && flushes.back().first >= mark.launches) flushes.pop_back();
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph.node(id).flags & Node::view && graph.offset_of(graph.base_of(id)) < 0)
      graph.set_offset(id, kPending);
  planner.discard_last();
  valid_ = std::min<uint32_t>(valid_, static_cast<uint32_t>(mark.launches));
}

// Random values are drawn in record order, independent of the order of computing. Those of instances were
// drawn when they were recorded, and after invalidate() are drawn again here.
void Engine::draw_until(NodeId id) {
  auto& draws = graph.draws();
  redraws_ = std::min(redraws_, draws.size());
  for (; drawn_ < draws.size() && draws[drawn_] <= id; ++drawn_) {
    const NodeId node = draws[drawn_];
    if (graph.offset_of(node) < 0) graph.set_offset(node, graph.values_arena.allocate(graph.sig(node).size));
    else if (drawn_ >= redraws_) continue;
    else forget_values();  // whatever read it is old
    graph.fill_draw(node);
  }
  if (drawn_ == draws.size()) stale_ = false;
}

void Engine::preview(NodeId id, bool everything, const std::function<void()>& f) {
  executor.refuse_reentry();
  const Scheduler scheduler = options.batching ? options.scheduler : Scheduler::none;
  if (scheduler == Scheduler::bucket && graph.wants_rebucket()) graph.rebucket();
  const PlanMark mark = planner.plan.mark();
  const int64_t top = graph.values_arena.top(), far = graph.values_arena.far();
  std::vector<NodeId> undrawn;
  const auto take_back = [&] {
    for (const NodeId draw : undrawn) graph.set_offset(draw, kPending);
    undo(mark);
    graph.values_arena.reset(top, far);
  };
  try {
    for (const NodeId draw : graph.draws()) {
      if (graph.offset_of(draw) >= 0) continue;
      undrawn.push_back(draw);
      graph.set_offset(draw, graph.values_arena.allocate(graph.sig(draw).size));
    }
    planner.plan_roots({&id, 1}, scheduler, everything);
    f();
  } catch (...) {
    take_back();
    throw;
  }
  take_back();
}

void Engine::set_trace(std::shared_ptr<ProfileTrace> trace, uint32_t session) {
  trace_ = std::move(trace);
  session_ = session;
  executor.trace = trace_.get();
  update_attention();
  if (trace_) trace_->renewed(graph.renewals(), graph.size(), true);
}

void Engine::attend(NodeId id) {
  if (trace_) trace_->recorded(id, graph.node(id).flags & Node::leaf ? graph.sig(id).size : 0);
  if (on_recorded) on_recorded(*this);
  if (options.immediate) compute_now(id);
}

void Engine::compute_now(NodeId id) {
  executor.refuse_reentry();
  value(id);
  if (!options.check_validity) return;
  const NodeId first =
      std::exchange(checked_, id + 1);  // each node is reported once, by the call that recorded it
  for (NodeId n = first; n <= id; ++n) check_value(n);
}

namespace {

// How many of n values are NaN or infinite, and the range of the others.
struct Spread {
  size_t nan = 0, infinite = 0, first_bad = 0;
  float least = INFINITY, most = -INFINITY;

  Spread(const float* v, size_t n) {
    for (size_t i = n; i-- > 0;) {
      if (std::isfinite(v[i])) {
        least = std::min(least, v[i]);
        most = std::max(most, v[i]);
        continue;
      }
      first_bad = i;
      ++(std::isnan(v[i]) ? nan : infinite);
    }
  }
  bool bad() const { return nan + infinite > 0; }
  std::string words() const {
    std::string s = most < least ? "no finite value" : text("values from ", least, " to ", most);
    return bad() ? text(s, ", ", nan, " NaN, ", infinite, " infinite") : s;
  }
};

}  // namespace

// The message names the node, its op and what its arguments are like.
void Engine::check_value(NodeId id) {
  const Sig& s = graph.sig(id);
  const float* v = value(id);
  const Spread r(v, s.size);
  if (!r.bad()) return;
  std::string message =
      text(op_info(s.op).meta->name, "(): node ", id, ", ", *s.y, ", has the value ", v[r.first_bad],
           " at element ", r.first_bad, " (", r.nan, " NaN, ", r.infinite, " infinite of ", s.size, ")");
  for (uint32_t i = 0; i < graph.node(id).n_args; ++i) {
    const NodeId arg = graph.args(id)[i];
    const Sig& a = graph.sig(arg);
    message += text(i ? "; " : "; inputs: ", "node ", arg, " ", op_info(a.op).meta->name, " ", *a.y, ": ",
                    Spread(value(arg), a.size).words());
  }
  throw InvalidValue(message);
}

// ---------------------------------------------------------------- gradients

// Which nodes let a gradient pass on its way from the root; visit(id, node, live) for those up to the root.
template <class F>
void Engine::find_live(F visit) {
  live_.assign(graph.size(), 0);  // launches have nodes that were recorded later, too
  live_[backward_root_] = 1;
  for (NodeId id = backward_root_ + 1; id-- > 0;) {
    const Node& n = graph.node(id);
    visit(id, n, live_[id]);
    if (!live_[id]) continue;
    const NodeId* args = graph.args(id);
    if (n.flags & Node::view) {
      live_[args[0]] = 1;
      continue;
    }
    for (uint32_t i = 0; i < n.n_args; ++i)
      if (backward_full_ || graph.node(args[i]).flags & Node::requires_grad) live_[args[i]] = 1;
  }
}

// How many nodes of each launch take part in backward; touches rows that were looked up but take no part.
void Engine::count_live() {
  live_nodes_.assign(planner.plan.launches.size(), 0);
  if (count_all_live()) return;
  find_live([this](NodeId id, const Node& n, bool live) {
    if (n.flags & Node::view) return;
    if (!live) return executor.mark_rows_used(id);
    const uint32_t launch = planner.launch_of(id);
    if (launch != kNone) ++live_nodes_[launch];
  });
}

// The usual graph: all that was recorded leads to the loss and takes a gradient. live_ is made when a node's
// gradient is asked for.
bool Engine::count_all_live() {
  const uint32_t n = planner.launches_of_single_root(backward_root_);
  if (n == 0 || !graph.all_require_grad() || graph.reverted()) return false;
  live_.clear();
  for (uint32_t i = 0; i < n; ++i) {
    const Launch& l = planner.plan.launches[i];
    const bool constant =
        l.kind == OpKind::parameter && !(graph.node(planner.plan.nodes[l.nodes]).flags & Node::requires_grad);
    live_nodes_[i] = constant && !backward_full_ ? 0 : l.count;
  }
  return true;
}

bool Engine::is_live(NodeId id) {
  if (live_.empty()) find_live([](NodeId, const Node&, bool) {});
  return live_[id];
}

void Engine::start_backward(NodeId root, bool full, bool direct) {
  executor.begin_backward(full, direct);
  executor.in_pieces = flushes.size() > 1 && options.batching && options.scheduler == Scheduler::bucket;
  backward_root_ = root;
  backward_full_ = full;
  count_live();
  unshared_.reset();
}

void Engine::begin_backward(NodeId root, bool full, BackwardTask& task) {
  start_backward(root, full, true);
  task.root = root;
  task.live = &live_;
  task.live_nodes = &live_nodes_;
  task.executor->root_gradient = executor.root_gradient;
  task.executor->in_pieces = executor.in_pieces;
  task.exchange(*this);
}

void Engine::end_backward(BackwardTask& task, bool back) {
  timing.backward += std::exchange(task.seconds, 0.);
  executor.counters += std::exchange(task.executor->counters, {});
  if (!back) {
    timing.recorded_nodes += task.graph.size();
    return task.clear();
  }
  task.exchange(*this);
  if (task.failed) backward_root_ = kNone;
}

void Engine::backward(NodeId root, bool full, bool direct) {
  if (graph.sig(root).size != 1)
    throw ValueError(text("backward(): expected an expression of one element, got ", graph.dim(root)));
  need(root);
  const ProfileTrace::Scope scope(trace_.get(), ProfileSpan::backward, "backward");
  const double start = now();
  start_backward(root, full, direct);
  try {
    executor.backward(root, live_, live_nodes_);
  } catch (...) {
    backward_root_ = kNone;  // there are no gradients to ask for
    throw;
  }
  timing.backward += now() - start;
}

const float* Engine::gradient(NodeId id) {
  executor.refuse_reentry();
  if (backward_root_ == kNone)
    throw RuntimeError("gradient(): expected backward() before, on an expression of this graph");
  if (id > backward_root_)
    throw RuntimeError("gradient(): this expression was recorded after the one backward() was called on");
  executor.run_kept();
  const NodeId base = graph.base_of(id);
  const bool merged = (graph.node(base).flags | graph.node(id).flags) & Node::merged;
  const bool part = graph.sig(id).op == op_id<SubView>;  // c of an LSTM step reaches its h inside one node
  if (!is_live(merged || part ? base : id)) return behind_a_stop(id) ? exact_gradient(id) : nullptr;
  if (graph.is_parameter(base)) {
    if (!alone && graph.parameter_use(base).direct)  // other threads add to it by now
      throw RuntimeError("gradient(): another thread has begun to record; call backward() again before");
    const float* g = executor.parameter_gradient(base);
    return g ? g + (base == id ? 0 : graph.node(id).aux) : nullptr;
  }
  if (merged) return exact_gradient(id);
  executor.fetch_gradients(graph.offset_of(id), graph.sig(id).size);
  return graph.grads_arena.base() + graph.offset_of(id);
}

// Whether a node descends from something that is updated, but only through ops that let no gradient pass
// (nobackprop). DyNet gives such nodes the gradient that arrives at them. Nobody trains with it, so backward
// leaves them out, and their gradient is made when it is asked for.
bool Engine::behind_a_stop(NodeId id) const {
  if (backward_full_) return false;  // that leaves nothing out
  std::vector<uint8_t> seen(id + 1, 0);
  std::vector<NodeId> todo = {id};
  while (!todo.empty()) {
    const NodeId at = todo.back();
    todo.pop_back();
    const Node& node = graph.node(at);
    if (node.flags & Node::requires_grad) return at != id;
    if (graph.is_parameter(at) && graph.sig(at).attrs[1] == kStopped) return true;
    const NodeId* args = graph.args(at);
    for (uint32_t i = 0; i < node.n_args; ++i)
      if (!seen[args[i]]) {
        seen[args[i]] = 1;
        todo.push_back(args[i]);
      }
  }
  return false;
}

// Equal expressions share one node's gradient. When one of them is asked for its own, the graph is
// recorded again without sharing, its leaves as inputs, and differentiated separately.
const float* Engine::exact_gradient(NodeId id) {
  if (unshared_) return unshared_->gradient(id);
  unshared_ = std::make_unique<Engine>();
  Graph& g = unshared_->graph;
  g.share_equal_values = false;
  for (NodeId n = 0; n <= backward_root_; ++n) {
    const Node& node = graph.node(n);
    const Sig& s = graph.sig(n);
    const OpKind kind = op_info(s.op).meta->kind;
    const bool view = node.flags & Node::view && !(node.flags & Node::merged);
    if (view) {
      g.view(s.op, graph.args(n)[0], *s.y, node.aux);
    } else if (s.n_args == 0 || kind == OpKind::lookup) {
      const float* v = graph.offset_of(n) == kPending && !graph.is_parameter(n) ? nullptr : value(n);
      const NodeId copy = g.input(*s.y, true);
      if (v) std::memcpy(g.values(copy), v, size_t{s.size} * 4);
    } else {
      const NodeId* args = graph.args(n) + (node.flags & Node::view ? 1 : 0);
      g.record(s.op, args, s.n_args, s.attrs.data(), static_cast<uint32_t>(s.attrs.size()),
               graph.ids(node.flags & Node::view ? graph.base_of(n) : n));
    }
  }
  unshared_->executor.root_gradient = executor.root_gradient;
  unshared_->backward(backward_root_, true);
  return unshared_->gradient(id);
}

// ---------------------------------------------------------------- checkpoints

void Engine::checkpoint() {
  executor.refuse_reentry();
  if (graph.size()) forward(graph.size() - 1);
  checkpoints_.push_back({graph.mark(), planner.plan.mark(), drawn_});
}

void Engine::revert() {
  if (checkpoints_.empty()) return;
  executor.refuse_reentry();
  executor.run_kept();
  const Checkpoint c = checkpoints_.back();
  checkpoints_.pop_back();
  planner.plan.revert(c.plan);
  while (!flushes.empty() && flushes.back().first >= c.plan.launches) flushes.pop_back();
  if (planner.plan.launch_of.size() > c.graph.nodes) planner.plan.launch_of.resize(c.graph.nodes);
  for (uint32_t& launch : planner.plan.launch_of)
    if (launch != kNone && launch >= c.plan.launches) launch = kNone;
  planner.limit(c.graph.nodes);
  graph.revert(c.graph);
  executor.cut_back(static_cast<uint32_t>(c.plan.launches));
  valid_ = std::min<uint32_t>(valid_, static_cast<uint32_t>(c.plan.launches));
  drawn_ = std::min<NodeId>(drawn_, static_cast<NodeId>(c.draws));
  checked_ = std::min(checked_, c.graph.nodes);
  backward_root_ = kNone;
}

}  // namespace dyc
