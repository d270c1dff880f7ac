#include "plan/launch_writer.h"

namespace dyc {

void LaunchWriter::begin(uint32_t first, uint32_t copies) {
  first_launch_ = first;
  nodes_end_ = static_cast<uint32_t>(plan_.nodes.size());
  index_end_ = plan_.index.size();
  args_begin_.assign(copies, kNone);
}

BucketCursor LaunchWriter::open(const BucketStats& all, bool far) {
  const Sig& s = graph_.sig_number(all.sig);
  const OpInfo& info = op_info(s.op);
  Launch& l = plan_.launches.emplace_back();
  l.op = s.op;
  l.kind = info.meta->kind;
  l.sig = all.sig;
  l.batch_key = s.batch_key;
  l.count = all.count;
  l.uniform = !all.mixed;
  l.flat = s.flat;
  l.requires_grad = s.requires_grad;
  l.requires_grad_args = s.requires_grad_mask;
  l.fixed_arity = !(info.list && l.kind == OpKind::per_node);
  l.nodes = nodes_end_;
  l.total = all.floats;
  l.far = far;
  l.out = far ? graph_.values_arena.allocate_far(static_cast<size_t>(all.floats))
              : graph_.values_arena.allocate(static_cast<size_t>(all.floats), 16);
  nodes_end_ += all.count;
  constexpr uint32_t kMostInline = 31;
  uint32_t args = kNone;
  if (l.fixed_arity && s.n_args <= kMostInline) {  // all nodes have as many arguments, and the same weights
    args = static_cast<uint32_t>(index_end_);
    index_end_ += size_t{s.n_args} * all.count;
  }
  args_begin_.push_back(args);
  return cursor_at(static_cast<uint32_t>(plan_.launches.size() - 1));
}

// Of the launch's first node.
BucketCursor LaunchWriter::cursor_at(uint32_t launch) const {
  const Launch& l = plan_.launches[launch];
  const Sig& s = graph_.sig_number(l.sig);
  const uint32_t weights = s.columns || l.count == 1 ? s.weights : 0;
  return {l.out, l.uniform ? s.size : 0, l.nodes, args_begin(launch), l.count, launch, weights};
}

}  // namespace dyc
