// Gradients of weights and parameters, on any device.
#include "exec/executor.h"

#include <utility>

#include "exec/user_ops.h"

namespace dyc {

void Executor::run_deferred_of(const Launch& l) {
  if (!deferred_.any_computed()) return;
  for (uint32_t i = 0; i < deferred_.size(); ++i) {
    DeferredGradient& d = deferred_[i];
    if (d.offset >= l.out && d.offset < l.out + l.total) run_deferred(d);
  }
}

void Executor::begin_backward(bool full, bool direct) {
  full_ = full;
  direct_ = direct;
  deferred_.clear();
  rows_.clear();
  // A parameter that already holds a gradient, or is also read like any value, collects this
  // backward's gradient apart, so that its node gradient is of this backward alone.
  for (ParameterUse& use : graph_.parameters.all()) {
    use.direct = false;
    use.gradient = -1;
    const bool needs = graph_.node(use.node).flags & Node::requires_grad;
    if (!needs && !full) continue;
    int64_t at = graph_.offset_of(use.node);
    // Rows of a table add to its storage too, so the whole table's gradient is kept apart.
    if (at < 0 &&
        (!direct || always_separate() || use.storage->has_grad() || !needs || use.storage->is_lookup())) {
      if (use.slot < 0) use.slot = graph_.values_arena.allocate(use.storage->size(), 16);
      at = use.slot;
    }
    if (at < 0) continue;
    use.gradient = at;
    zero_gradients(at, use.storage->size());
  }
}

void Executor::exchange(Executor& other) {
  std::swap(full_, other.full_);
  std::swap(direct_, other.direct_);
  rows_.swap(other.rows_);
  deferred_.clear();  // what a pass that has failed has left
  other.deferred_.clear();
}

// Sparse updates of DyNet visit every row that was looked up before the loss, also where the loss does not
// depend on it: momentum moves such a row, too. Its gradient is zero.
void Executor::mark_rows_used(NodeId id) {
  const Sig& sig = graph_.sig(id);
  if (op_info(sig.op).meta->kind != OpKind::lookup || !sig.attrs[1]) return;  // attrs[1]: update
  Storage& storage = graph_.parameters.storage(sig.attrs[0]);
  const Graph::Ids ids = graph_.ids(id);
  for (uint32_t j = 0; j < ids.n; ++j)
    if (ids.data[j] < storage.rows)
      rows_.push_back({&storage, ids.data[j], !ids.list, -1});  // else an error if asked for
}

void Executor::call_functions(const Launch& l, float* values, float* gradients,
                              const std::shared_ptr<const void>& values_memory,
                              const std::shared_ptr<const void>& gradients_memory) {
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    UserNode node{
        it.sig,          {}, values + it.out, gradients ? gradients + it.out : nullptr, {}, values_memory,
        gradients_memory};
    for (uint32_t a = 0; a < it.sig->n_args; ++a) {
      const int64_t at = argument(l, operand(l, a), i);
      node.x.push_back(values + at);
      if (!gradients) continue;
      node.dx.push_back(full_ || it.sig->requires_grad_args[a] ? gradients + at : nullptr);
    }
    call_user_op(node);
  }
}

void Executor::accumulate() {
  for (const ParameterUse& use : graph_.parameters.all())
    if (has_gradient(use)) add_to_storage(use);
  add_to_storage(rows_);
  rows_.clear();
}

}  // namespace dyc
