#include "ops/table.h"

#include <array>

namespace dyc {

namespace {

template <class Op>
constexpr OpInfo make_info() {
  OpInfo info{&Op::meta, Op::params, static_cast<uint32_t>(std::size(Op::params)),
              nullptr,   nullptr,    Op::params[0].kind == Param::exprs,
              nullptr,   nullptr,    nullptr};
  if constexpr (requires(const KernelArgs& m) { Op::scratch(m); }) info.scratch = &Op::scratch;
  if constexpr (requires(const ShapeArgs& s) { Op::shape(s); }) info.shape = &Op::shape;
  if constexpr (requires(const KernelArgs& m) { Op::check(m, ""); }) info.check = &Op::check;
  if constexpr (requires { Op::column_role; }) info.column_role = Op::column_role;
  if constexpr (Op::meta.kind == OpKind::custom) {
    info.pieces = &Op::pieces;
    info.gradient_pieces = &Op::pieces;
    info.work = &Op::work;
  }
  return info;
}

template <class... Ops>
constexpr std::array<OpInfo, sizeof...(Ops)> make_infos(OpList<Ops...>) {
  return {make_info<Ops>()...};
}

constexpr auto kInfos = make_infos(AllOps{});

}  // namespace

const OpInfo& op_info(OpId id) { return kInfos[id]; }

}  // namespace dyc
