#include "exec/cuda/follower_launcher.h"

#include <bit>

#include "ops/followers.h"
#include "ops/table.h"

namespace dyc {

using cuda::Follower;

namespace {

template <class... Ops>
uint32_t number_of(OpList<Ops...>, OpId op) {
  uint32_t number = 0, found = 0;
  ((++number, found = op == op_id<Ops> ? number : found), ...);
  return found;
}

}  // namespace

bool FollowerLauncher::may_follow() const {
  return c_.commands.has_products() && c_.device.options.chains && !c_.strategy().syncs_always();
}

bool FollowerLauncher::describe(const Launch& l, FollowingOp& op) const {
  const bool unary = l.kind == OpKind::unary;
  if (!may_follow() || l.total == 0) return false;
  if (!unary && (l.kind != OpKind::binary || !l.flat)) return false;
  op.op = number_of(Followers{}, l.op);
  if (!op.op) return false;
  for (uint32_t k = 0; k < l.n_operands; ++k)
    if (c_.launches.operand(l, k).kind == Operand::weight) return false;
  const Sig& sig = c_.graph().sig_number(l.sig);
  op.attr = sig.attrs.empty() ? 0.f : std::bit_cast<float>(sig.attrs[0]);
  op.values = c_.values();
  op.gradients = c_.gradients();
  c_.launches.each_flat(l, 0, l.count, [&](int64_t floats, int64_t x, int64_t y, int64_t z) {
    op.add({floats, {x, unary ? -1 : y, z, z, z}});
  });
  return true;
}

bool FollowerLauncher::forward(const Launch& l) {
  FollowingOp op{Follower::forward, 0, 0.f, nullptr, nullptr, {}};
  if (!describe(l, op)) return false;
  for (FollowingNode& node : op.nodes) node.at[kZ] = node.at[kDz] = -1;
  return c_.commands.follow_products(op);
}

bool FollowerLauncher::backward(const Launch& l, uint32_t k) {
  FollowingOp op{k == 0 ? Follower::backward : Follower::backward_second, 0, 0.f, nullptr, nullptr, {}};
  if (!describe(l, op)) return false;
  const auto& meta = *op_info(l.op).meta;
  for (FollowingNode& node : op.nodes) {
    node.at[kTo] = node.at[k == 0 ? kX : kY];
    if (!meta.reads_x) node.at[kX] = node.at[kY] = -1;
    if (!meta.reads_y) node.at[kZ] = -1;
  }
  return c_.commands.follow_products(op);
}

bool FollowerLauncher::add_columns(const LaunchReader::Columns& to, const LaunchReader::Columns& dy,
                                   int64_t rows) {
  if (!may_follow()) return false;
  FollowingOp op{
      Follower::backward, number_of(Followers{}, op_id<Add>), 0.f, c_.values(), c_.gradients(), {}};
  for (int64_t j = 0; j < dy.count; ++j) op.add({rows, {-1, -1, -1, dy.at(j), to.at(j)}});
  return c_.commands.follow_products(op);
}

}  // namespace dyc
