#include "exec/profile_trace.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "base/error.h"
#include "exec/executor.h"
#include "exec/tuning.h"

namespace dyc {

int64_t profile_clock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// ---------------------------------------------------------------- the buffer

void ProfileTrace::keep(const ProfileSpan& span) {
  if (closed_) return;
  if (contents_.spans.size() >= most_) ++contents_.dropped;
  else contents_.spans.push_back(span);
}

ProfileTrace::Contents ProfileTrace::drain() {
  const std::lock_guard lock(mutex_);
  end_recording();
  closed_ = true;
  return std::move(contents_);
}

void ProfileTrace::renewed(uint32_t graph, NodeId size, bool signatures_forgotten) {
  const std::lock_guard lock(mutex_);
  graph_ = graph;
  next_ = size;
  if (signatures_forgotten) shapes_.clear();
}

void ProfileTrace::Scope::open(ProfileSpan::Kind kind, const char* name) {
  if (std::this_thread::get_id() != trace_->owner_) {  // a part of a kernel, on a thread of the pool
    trace_ = nullptr;
    return;
  }
  ProfileSpan& span = span_.emplace();
  span.kind = kind;
  span.name = name;
  exceptions_ = std::uncaught_exceptions();
  if (kind != ProfileSpan::kernel) {
    const std::lock_guard lock(trace_->mutex_);
    trace_->end_recording();
    span.graph = trace_->graph_;
  }
  span.begin = profile_clock();
}

void ProfileTrace::Scope::close() {
  ProfileSpan& span = *span_;
  span.end = profile_clock();
  span.failed = std::uncaught_exceptions() > exceptions_;
  const std::lock_guard lock(trace_->mutex_);
  if (span.kind == ProfileSpan::kernel) span.graph = trace_->graph_;
  trace_->keep(span);
  if (span.kind != ProfileSpan::kernel) trace_->resumed_ = span.end;
}

// ---------------------------------------------------------------- recording

// Only the end of recording each node is timed: the beginning of a stretch is the end of our function before
// it, or else an estimate.
void ProfileTrace::recorded(NodeId id, uint32_t leaf_floats) {
  using namespace tuning;
  const int64_t now = profile_clock();
  const std::lock_guard lock(mutex_);
  const uint32_t nodes = id >= next_ ? id + 1 - next_ : 1;
  next_ = id + 1;
  if (now - resumed_ > kPause + kPerNode * nodes + kPerNumber * leaf_floats) {
    end_recording();
    resumed_ = std::max(resumed_, now - kLeastPerNode * nodes - kLeastPerNumber * leaf_floats);
  }
  if (!stretch_.nodes) {
    stretch_.kind = ProfileSpan::record;
    stretch_.name = "record";
    stretch_.graph = graph_;
    stretch_.begin = resumed_;
  }
  stretch_.nodes += nodes;
  stretch_.end = resumed_ = now;
}

void ProfileTrace::recorded_until(NodeId size) {
  {
    const std::lock_guard lock(mutex_);
    if (size <= next_) return;
  }
  recorded(size - 1, 0);
}

void ProfileTrace::end_recording() {
  if (!stretch_.nodes) return;
  keep(stretch_);
  stretch_.nodes = 0;
}

// ---------------------------------------------------------------- launches

uint32_t ProfileTrace::shapes_of(const Graph& graph, uint32_t sig) {
  if (sig >= shapes_.size()) shapes_.resize(sig + 64, kNone);
  uint32_t& number = shapes_[sig];
  if (number != kNone) return number;
  const Sig& s = graph.sig_number(sig);
  std::string words;
  constexpr size_t kShown = 6;
  for (size_t i = 0; i < s.x.size() && i < kShown; ++i) words += text(i ? " " : "", *s.x[i]);
  if (s.x.size() > kShown) words += text(" .. (", s.x.size(), ")");
  words += text(s.x.empty() ? "-> " : " -> ", *s.y);
  number = static_cast<uint32_t>(contents_.texts.size());
  contents_.texts.push_back(words);
  return number;
}

void ProfileTrace::add_launch(ProfileSpan span, const Graph& graph, const Launch* launches,
                              const std::vector<int64_t>& sizes) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  span.graph = graph_;
  span.shapes = shapes_of(graph, launches[0].sig);
  span.ops = static_cast<uint32_t>(contents_.ops.size());
  span.n_ops = static_cast<uint32_t>(sizes.size());
  for (uint32_t i = 0; i < span.n_ops; ++i) contents_.ops.push_back(launches[i].op);
  contents_.sizes.insert(contents_.sizes.end(), sizes.begin(), sizes.end());
  keep(span);
}

namespace {

// Multiply-adds count as two; anything else as one per number read. Backward, a weight's gradient counts
// where it is computed: here only if each node has a weight of its own.
double flops_of_node(const Sig& s, bool backward) {
  const OpInfo& info = op_info(s.op);
  double flops = s.size;
  switch (info.meta->kind) {
    case OpKind::matmul:
      if (s.op == op_id<MatMul> || backward) flops = 0;  // there is a bias in the others
      for (uint32_t k = s.op == op_id<Affine>; k + 1 < s.n_args; k += 2) {
        const bool to_weight = !s.columns && s.requires_grad_args[k], to_x = s.requires_grad_args[k + 1];
        flops += 2.0 * s.size * s.x[k]->cols() * (backward ? to_weight + to_x : 1);
      }
      return flops;
    case OpKind::custom: {
      KernelArgs m{};
      m.xd = s.x.data();
      m.yd = s.y;
      m.n = s.n_args;
      m.attrs = s.attrs.data();
      return 2.0 * static_cast<double>(info.work(m));
    }
    case OpKind::per_node:
      for (const Dim* d : s.x) flops += static_cast<double>(d->size());
      return flops;
    case OpKind::unary:
    case OpKind::binary:
      return flops;
    default:
      return 0;
  }
}

// How often argument a of a node is read or written backward.
int backward_passes(const Sig& s, uint32_t a) {
  const Meta& meta = *op_info(s.op).meta;
  const int gradient = s.requires_grad_args[a] ? 2 : 0;
  if (meta.kind != OpKind::matmul) return gradient + meta.reads_x;
  if (s.op == op_id<Affine> && a == 0) return 0;  // with the weights
  const bool weight = (a - (s.op == op_id<Affine>)) % 2 == 0;
  if (weight) return s.requires_grad_args[a + 1] + (s.columns ? 0 : gradient);
  return gradient + (!s.columns && s.requires_grad_args[a - 1]);
}

}  // namespace

// `nodes` nodes of the launches [first, end), which ran together. What one launch writes and another one
// reads is in the cache.
void Executor::trace_launches(uint32_t first, uint32_t end, bool backward, uint32_t nodes, int64_t from,
                              int64_t to) {
  ProfileSpan span;
  span.kind = backward ? ProfileSpan::back_launch : ProfileSpan::launch;
  span.begin = from;
  span.end = to;
  span.nodes = nodes;
  const int64_t begin = plan_.launches[first].out;
  std::vector<int64_t> sizes;
  for (uint32_t i = first; i < end; ++i) {
    const Launch& l = plan_.launches[i];
    span.mixed = span.mixed || !l.uniform;
    if (l.kind == OpKind::parameter) span.bytes += 8.0 * l.total;
    double numbers = 0;  // read or written
    int64_t arguments = 0;
    for (uint32_t k = 0; k < (l.uniform ? 1 : l.count); ++k) {
      const Sig& s = l.uniform ? graph_.sig_number(l.sig) : graph_.sig(plan_.nodes[l.nodes + k]);
      const double times = l.uniform ? l.count : 1;
      span.flops += flops_of_node(s, backward) * times;
      for (uint32_t a = 0; a < s.n_args; ++a) {
        const Operand* o = l.fixed_arity && a < l.n_operands ? &plan_.operands[l.operands + a] : nullptr;
        arguments += static_cast<int64_t>(s.x[a]->size() * times);
        const bool once = o && (o->kind == Operand::weight || o->kind == Operand::shared);
        const bool placed = o && o->kind != Operand::indexed && o->kind != Operand::weight;
        if ((once && k > 0) || (placed && i > first && o->base >= begin && o->base < l.out)) continue;
        numbers += s.x[a]->size() * (once ? 1 : times) * (backward ? backward_passes(s, a) : 1);
      }
    }
    if (l.kind == OpKind::lookup) numbers += l.total;
    const Meta& meta = *op_info(l.op).meta;
    const bool reads_result = backward && meta.reads_y && l.kind != OpKind::matmul;
    span.bytes += 4 * (numbers + l.total * (reads_result ? 2.0 : 1.0));
    sizes.push_back(std::max(arguments, l.total));
    if (i > first) continue;
    for (uint32_t k = 0; k < l.n_operands && k < 16; ++k, ++span.n_operands)
      span.modes |= uint64_t{plan_.operands[l.operands + k].kind} << 4 * k;
  }
  trace->add_launch(span, graph_, plan_.launches.data() + first, sizes);
}

}  // namespace dyc
