#include "ops/table.h"

#include <array>

namespace dyc {

namespace {

template <class Op>
constexpr OpRow make_row() {
  OpRow row{&Op::meta, Op::params, static_cast<uint32_t>(std::size(Op::params)),
            nullptr,   nullptr,    Op::params[0].kind == Param::exprs,
            nullptr,   nullptr,    nullptr};
  if constexpr (requires(const Member& m) { Op::room(m); }) row.room = &Op::room;
  if constexpr (requires(const ShapeArgs& s) { Op::shape(s); }) row.shape = &Op::shape;
  if constexpr (requires(const Member& m) { Op::check(m, ""); }) row.check = &Op::check;
  if constexpr (Op::meta.form == Form::structured) {
    row.pieces = &Op::pieces;
    row.gradient_pieces = &Op::pieces;
    row.work = &Op::work;
  }
  return row;
}

template <class... Ops>
constexpr std::array<OpRow, sizeof...(Ops)> make_rows(OpList<Ops...>) {
  return {make_row<Ops>()...};
}

constexpr auto kRows = make_rows(AllOps{});

}  // namespace

const OpRow& op_row(OpId id) { return kRows[id]; }

}  // namespace dyc
