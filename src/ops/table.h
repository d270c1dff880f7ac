// The op table. An op's number is its place in AllOps; every table of the project (kernels per ISA,
// Python entry points, documentation, test ids) is generated from this list.
#pragma once
#include <type_traits>

#include "ops/arithmetic.h"
#include "ops/contract.h"
#include "ops/conv.h"
#include "ops/elementwise.h"
#include "ops/input.h"
#include "ops/linalg.h"
#include "ops/list.h"
#include "ops/loss.h"
#include "ops/lstm.h"
#include "ops/lstm_cell.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/number.h"
#include "ops/pooling.h"
#include "ops/reduce.h"
#include "ops/select.h"
#include "ops/shape.h"
#include "ops/simplex.h"
#include "ops/softmax.h"
#include "ops/user.h"

namespace dyc {

namespace detail {
template <class... Lists>
struct Joined;
template <class... Ops>
struct Joined<OpList<Ops...>> {
  using List = OpList<Ops...>;
};
template <class... A, class... B, class... Lists>
struct Joined<OpList<A...>, OpList<B...>, Lists...> : Joined<OpList<A..., B...>, Lists...> {};
}  // namespace detail

// Every header of ops ends with the list of them.
using AllOps =
    typename detail::Joined<InputOps, MatmulOps, ElementwiseOps, NumberOps, ArithmeticOps, ListOps, ShapeOps,
                            SelectOps, ReduceOps, NormOps, SoftmaxOps, LossOps, SimplexOps, LinalgOps,
                            ContractOps, ConvOps, PoolingOps, LstmOps, LstmCellOps, UserOps>::List;

using OpId = uint16_t;
constexpr uint32_t kOps = AllOps::size;

namespace detail {
template <class Op, class... Ops>
constexpr OpId index_of(OpList<Ops...>) {
  OpId i = 0;
  const bool found = ((std::is_same_v<Op, Ops> ? true : (++i, false)) || ...);
  return found ? i : 0xffff;
}
}  // namespace detail

template <class Op>
constexpr OpId op_id = detail::index_of<Op>(AllOps{});

template <class... Ops>
constexpr bool is_one_of(OpId op, OpList<Ops...>) {
  return ((op == op_id<Ops>) || ...);
}

using ShapeRule = Dim (*)(const ShapeArgs&);
using CheckRule = void (*)(const KernelArgs&, const char* op);

using ResultPieces = uint32_t (*)(const KernelArgs&);
using GradientPieces = uint32_t (*)(const KernelArgs&, uint32_t arg);
using WorkRule = uint64_t (*)(const KernelArgs&);
using ScratchRule = size_t (*)(const KernelArgs&);

// The definition of an op at run time.
struct OpInfo {
  const Meta* meta;
  const Param* params;
  uint32_t n_params;
  ShapeRule shape;                // null for leaves: the recorder is given the shape
  CheckRule check;                // null: nothing left to check when computed
  bool list;                      // first parameter is a list of expressions
  ScratchRule scratch = nullptr;  // bytes of scratch memory that a node takes on a device; null: none
  // custom kernels
  ResultPieces pieces = nullptr;
  GradientPieces gradient_pieces = nullptr;
  WorkRule work = nullptr;
  ColumnRole column_role = ColumnRole::none;

  // Does a node have indices, or a number, of its own?
  bool ids() const {
    for (uint32_t i = 0; i < n_params; ++i)
      if (params[i].kind >= Param::index) return true;
    return false;
  }
};

const OpInfo& op_info(OpId id);

}  // namespace dyc
